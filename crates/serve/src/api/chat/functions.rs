//! The deprecated fields `functions` and `function_call`. The functions are tools, and an answer has at most one call, in the
//! field `function_call`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::conversation::NamesFunction;
use crate::api::error::ApiError;

/// One call of the named function.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FunctionName {
    /// The name of one of `functions`.
    name: String,
}

impl NamesFunction for FunctionName {
    const EXAMPLE: &'static str = "{\"name\": …}";
    const FIELD: &'static str = "function_call.name";

    fn function(&self) -> &str {
        &self.name
    }
}

/// Renames the field of an error about tools to the deprecated one.
pub(crate) fn renamed(error: ApiError) -> ApiError {
    error.renamed(|field| match field {
        "tools" => Some("functions".to_owned()),
        // Such as `tools[0].function.name`.
        field => {
            let place = field.strip_prefix("tools[")?;
            Some(format!(
                "functions[{}",
                place.replacen(".function.", ".", 1)
            ))
        }
    })
}
