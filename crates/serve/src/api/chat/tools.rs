//! The functions that a request lets the model call.

use std::sync::Arc;

use emberlm_generate::Constraint;
use schemars::JsonSchema;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::messages::ToolKind;
use crate::api::body::Object;
use crate::api::error::ApiError;
use crate::grammars::GrammarError;
use crate::limits::MOST_TOOLS;
use crate::model::ServedModel;
use crate::tools::{Function, ToolFormat, ToolUse, tool_grammar};

/// The most bytes of a function's name.
const MOST_NAME: usize = 64;

/// A function that the model may call. The template reads it as it stands here.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tool {
    #[serde(rename = "type")]
    kind: ToolKind,
    /// The function.
    function: Object<ToolFunction>,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ToolFunction {
    /// Up to 64 letters, digits, `_` and `-`.
    name: String,
    /// What it does, for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// The JSON schema of its arguments, an object; without it there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Map<String, Value>>,
    /// Has no effect: arguments always are what the schema describes.
    #[allow(dead_code)]
    #[serde(skip_serializing)]
    strict: Option<bool>,
}

/// Which functions an answer calls: `"auto"`, `"none"`, `"required"`, or a function by its name.
#[derive(Clone, Debug, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ToolChoice {
    /// By a word.
    Mode(ToolMode),
    /// This function.
    Named(NamedTool),
}

/// A word for how an answer calls functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolMode {
    /// As the model chooses.
    Auto,
    /// None.
    None,
    /// One at least.
    Required,
}

/// The function that an answer calls.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedTool {
    #[allow(dead_code)]
    #[serde(rename = "type")]
    kind: ToolKind,
    /// It.
    function: Object<ToolName>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ToolName {
    /// The name of one of `tools`.
    name: String,
}

impl<'de> Deserialize<'de> for ToolChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rule = "must be \"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": …}}";
        let value = Value::deserialize(deserializer)?;
        let read = match value {
            Value::String(_) => serde_json::from_value(value).map(Self::Mode),
            Value::Object(_) => serde_json::from_value(value).map(Self::Named),
            _ => return Err(D::Error::custom(rule)),
        };
        read.map_err(|_| D::Error::custom(rule))
    }
}

/// How the answers of a request call functions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calling<'a> {
    /// The format of the model's template.
    pub format: &'static ToolFormat,
    /// The functions; those of the template.
    tools: &'a [Object<Tool>],
    /// The only function that may be called, if there is one.
    named: Option<&'a str>,
    tool_use: ToolUse,
}

impl<'a> Calling<'a> {
    /// The functions of a request for `model`; `None` where it may call none.
    ///
    /// # Errors
    /// The model's template does not support tools; too many, or a name that is not one.
    pub fn new(
        model: &ServedModel,
        tools: &'a [Object<Tool>],
        choice: Option<&'a ToolChoice>,
        parallel: bool,
    ) -> Result<Option<Self>, ApiError> {
        if tools.len() > MOST_TOOLS {
            let rule = format!("must be at most {MOST_TOOLS} functions");
            return Err(ApiError::field("tools", rule));
        }
        for (index, tool) in tools.iter().enumerate() {
            tool.0.function.0.check(index, &tools[..index])?;
        }
        let (named, required) = match choice {
            Some(ToolChoice::Mode(ToolMode::None)) => return Ok(None),
            None | Some(ToolChoice::Mode(ToolMode::Auto)) if tools.is_empty() => return Ok(None),
            None | Some(ToolChoice::Mode(ToolMode::Auto)) => (None, false),
            Some(ToolChoice::Mode(ToolMode::Required)) => (None, true),
            Some(ToolChoice::Named(named)) => (Some(&*named.function.0.name), true),
        };
        if tools.is_empty() {
            return Err(ApiError::field("tool_choice", "needs tools"));
        }
        if let Some(name) = named
            && tools.iter().all(|tool| tool.0.function.0.name != name)
        {
            let rule = "must name one of tools";
            return Err(ApiError::field("tool_choice.function.name", rule));
        }
        Ok(Some(Self {
            format: tool_format(model, "tools")?,
            tools,
            named,
            tool_use: ToolUse {
                required,
                // A function that is asked for by its name is called once.
                parallel: parallel && named.is_none(),
            },
        }))
    }

    /// The functions, for the template.
    pub fn tools(&self) -> &'a [Object<Tool>] {
        self.tools
    }

    /// The constraint of an answer, compiled in a sandbox first.
    ///
    /// # Errors
    /// The schemas exceed a limit, or too many others wait.
    pub async fn constraint(&self, model: &Arc<ServedModel>) -> Result<Constraint, ApiError> {
        let functions = self.tools.iter().map(|tool| &tool.0.function.0);
        let functions =
            functions.filter(|function| self.named.is_none_or(|name| name == function.name));
        let functions: Vec<_> = functions
            .map(|function| Function {
                name: &function.name,
                parameters: function.parameters.as_ref(),
            })
            .collect();
        let grammar = tool_grammar(self.format, &functions, self.tool_use);
        model
            .constraint(grammar)
            .await
            .map_err(|error| match error {
                GrammarError::Refused(error) => ApiError::field("tools", error.rule),
                error => error.into(),
            })
    }
}

impl ToolFunction {
    /// Checks the name, which is different from those `before` it, and the kind of the arguments.
    fn check(&self, index: usize, before: &[Object<Tool>]) -> Result<(), ApiError> {
        let at = |field: &str| format!("tools[{index}].function.{field}");
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !(1..=MOST_NAME).contains(&self.name.len()) || !self.name.chars().all(allowed) {
            let rule = format!("must be 1 to {MOST_NAME} letters, digits, _ and -");
            return Err(ApiError::field(at("name"), rule));
        }
        if before
            .iter()
            .any(|tool| tool.0.function.0.name == self.name)
        {
            return Err(ApiError::field(at("name"), "must differ from the others"));
        }
        let kind = self
            .parameters
            .as_ref()
            .and_then(|schema| schema.get("type"));
        match kind.is_none_or(|kind| kind == "object") {
            true => Ok(()),
            false => Err(ApiError::field(at("parameters.type"), "must be \"object\"")),
        }
    }
}

/// The format of the model's template.
///
/// # Errors
/// Its template writes no tools: `field` is what needs them.
pub(super) fn tool_format(
    model: &ServedModel,
    field: &str,
) -> Result<&'static ToolFormat, ApiError> {
    let source = model
        .chat
        .as_ref()
        .map(|chat| chat.encoder.template().source());
    source.and_then(ToolFormat::of_template).ok_or_else(|| {
        let rule = format!(
            "the chat template of {} does not support tools (it would have to write calls as Hermes, Qwen or Llama 3 do)",
            model.name
        );
        ApiError::field(field, rule)
    })
}
