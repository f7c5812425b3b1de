//! Functions in the format of the Responses API, which has their fields next to `type`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api::body::Object;
use crate::api::conversation::{NamesFunction, Tool, ToolFunction, ToolKind};

/// A function that the model may call.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FunctionTool {
    /// The tool's type.
    #[serde(rename = "type")]
    kind: ToolKind,
    /// Up to 64 letters, digits, `_` and `-`.
    name: String,
    /// A description, for the model.
    description: Option<String>,
    /// The JSON schema of the arguments, an object. Default: no arguments.
    parameters: Option<Map<String, Value>>,
    /// True to reject a schema with keywords that are not supported, which otherwise do not restrict the arguments. All
    /// others are enforced in any case.
    strict: Option<bool>,
}

impl FunctionTool {
    /// Converts the function for chat templates.
    pub fn to_tool(&self) -> Tool {
        Tool::new(Object::new(ToolFunction {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
            strict: self.strict,
        }))
    }
}

/// One call of the named function.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedFunction {
    /// The tool's type.
    #[serde(rename = "type")]
    kind: ToolKind,
    /// The name of one of `tools`.
    name: String,
}

impl NamesFunction for NamedFunction {
    const EXAMPLE: &'static str = "{\"type\": \"function\", \"name\": …}";
    const FIELD: &'static str = "tool_choice.name";

    fn function(&self) -> &str {
        &self.name
    }
}
