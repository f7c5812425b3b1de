//! Functions that a request allows the model to call.

use std::sync::Arc;

use emberlm_generate::Constraint;
use emberlm_generate::json_schema::is_unsupported;
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::callable::Callable;
use super::messages::ToolKind;
use super::without_template;
use crate::api::body::Object;
use crate::api::error::ApiError;
use crate::api::model_request::ModelRequest;
use crate::grammars::GrammarError;
use crate::limits::MOST_TOOLS;
use crate::memory::Memory;
use crate::model::ServedModel;
use crate::request_log::Trace;
use crate::tools::{CallFormat, Function, ToolUse, tool_grammar};

/// The maximum length of a function's name in bytes.
const MOST_NAME: usize = 64;
/// The most functions of a request whose arguments are not restricted because their schemas do not compile.
const MOST_LOOSENED: usize = 8;

/// A function that the model may call, in the form in which chat templates receive it.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tool {
    /// The tool's type.
    #[serde(rename = "type")]
    kind: ToolKind,
    /// The function.
    function: Object<ToolFunction>,
}

impl Tool {
    pub fn new(function: Object<ToolFunction>) -> Self {
        Self {
            kind: ToolKind::Function,
            function,
        }
    }

    /// The function with a description, which is empty if it has none.
    pub fn described(mut self) -> Self {
        self.function.0.description.get_or_insert_default();
        self
    }
}

/// A function's name, description and parameters.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolFunction {
    /// Up to 64 letters, digits, `_` and `-`.
    pub name: String,
    /// A description, for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON schema of the arguments, an object. Default: no arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Map<String, Value>>,
    /// True to reject a schema with keywords that are not supported, which otherwise do not restrict the arguments. All
    /// others are enforced in any case.
    #[serde(skip_serializing)]
    pub strict: Option<bool>,
}

/// The functions that the answer calls: a mode, or one function by name, in the form `N`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ToolChoice<N> {
    Mode(ToolMode),
    Named(N),
}

impl<N> Default for ToolChoice<N> {
    fn default() -> Self {
        Self::Mode(ToolMode::Auto)
    }
}

/// The use of functions in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolMode {
    /// Text, or calls from the opening marker of a call on.
    Auto,
    /// Text; the functions are not in the prompt.
    None,
    /// Calls from the first token.
    Required,
}

/// A JSON representation of the function that an answer must call.
pub(crate) trait NamesFunction: DeserializeOwned {
    /// An example in JSON.
    const EXAMPLE: &'static str;
    /// The path of the name in the request, for errors.
    const FIELD: &'static str;

    /// The function's name.
    fn function(&self) -> &str;
}

/// One call of the named function.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedTool {
    /// The tool's type.
    #[serde(rename = "type")]
    kind: ToolKind,
    /// The function.
    function: Object<ToolName>,
}

/// A function's name.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ToolName {
    /// The name of one of `tools`.
    name: String,
}

impl NamesFunction for NamedTool {
    const EXAMPLE: &'static str = "{\"type\": \"function\", \"function\": {\"name\": …}}";
    const FIELD: &'static str = "tool_choice.function.name";

    fn function(&self) -> &str {
        &self.function.0.name
    }
}

/// The functions that an answer calls, whatever the form in which an API says it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum CallChoice<'a> {
    /// See [`ToolMode::Auto`].
    #[default]
    Auto,
    /// See [`ToolMode::None`].
    None,
    /// See [`ToolMode::Required`].
    Required,
    /// One call of a function.
    Function {
        name: &'a str,
        /// The path of the name in the request, for errors.
        field: &'static str,
    },
}

impl<N: NamesFunction> ToolChoice<N> {
    /// The choice in the common form.
    pub fn chosen(&self) -> CallChoice<'_> {
        match self {
            Self::Mode(ToolMode::Auto) => CallChoice::Auto,
            Self::Mode(ToolMode::None) => CallChoice::None,
            Self::Mode(ToolMode::Required) => CallChoice::Required,
            Self::Named(named) => CallChoice::Function {
                name: named.function(),
                field: N::FIELD,
            },
        }
    }
}

impl<'de, N: NamesFunction> Deserialize<'de> for ToolChoice<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rule = || {
            let example = N::EXAMPLE;
            D::Error::custom(format!(
                "must be \"auto\", \"none\", \"required\" or {example}"
            ))
        };
        let value = Value::deserialize(deserializer)?;
        let read = match value {
            Value::String(_) => serde_json::from_value(value).map(Self::Mode),
            Value::Object(_) => serde_json::from_value(value).map(Self::Named),
            _ => return Err(rule()),
        };
        read.map_err(|_| rule())
    }
}

/// The function calls that the answers to a request may contain.
#[derive(Clone, Debug)]
pub(crate) struct Calling<'a> {
    /// The call format of the model, with the types of the functions' parameters.
    pub format: CallFormat,
    /// The functions of the request.
    tools: &'a [Object<Tool>],
    /// The functions that may be called.
    callable: Vec<Callable>,
    tool_use: ToolUse,
    /// Receives warnings about the parts of schemas that are not enforced.
    trace: &'a Trace,
}

impl<'a> Calling<'a> {
    /// Validates the functions of a request to `model`. `None` if the answer may not call any.
    ///
    /// # Errors
    /// The model has no chat template, there are too many functions, a name is invalid, or a schema is not
    /// supported.
    pub async fn new(
        request: &'a ModelRequest,
        model: &ServedModel,
        tools: &'a Arc<Vec<Object<Tool>>>,
        choice: CallChoice<'_>,
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
            CallChoice::None => return Ok(None),
            CallChoice::Auto if tools.is_empty() => return Ok(None),
            CallChoice::Auto => (None, false),
            CallChoice::Required => (None, true),
            CallChoice::Function { name, field } => (Some((name, field)), true),
        };
        if tools.is_empty() {
            return Err(ApiError::field("tool_choice", "needs tools"));
        }
        let names = tools.iter().map(|tool| &tool.0.function.0.name);
        let mut chosen: Vec<usize> = (0..tools.len()).collect();
        if let Some((named, field)) = named {
            let index = names.clone().position(|name| name == named);
            let index = index.ok_or_else(|| ApiError::field(field, "must name one of tools"))?;
            chosen = vec![index];
        }
        let format = model.tool_format();
        let format = format.ok_or_else(|| without_template(model))?;
        let shared = Arc::clone(tools);
        let simplify = move || {
            let callable = chosen
                .into_iter()
                .map(|index| Callable::new(index, &shared[index].0.function.0, format));
            callable.collect::<Result<Vec<Callable>, _>>()
        };
        let callable = request.app.work(request.body_len, simplify).await?;
        for callable in &callable {
            for reason in &callable.loosened {
                callable.warn(&request.trace, reason);
            }
        }
        let functions = callable.iter().map(|callable| Function {
            name: &tools[callable.index].0.function.0.name,
            parameters: callable.schema.as_ref(),
        });
        Ok(Some(Self {
            format: CallFormat::new(format, functions),
            tools,
            callable,
            trace: &request.trace,
            tool_use: ToolUse {
                required,
                // A function chosen by name is called exactly once.
                parallel: parallel && named.is_none(),
            },
        }))
    }

    fn function(&self, callable: &Callable) -> &'a ToolFunction {
        &self.tools[callable.index].0.function.0
    }

    /// The constraint for an answer, compiled in a sandbox first. Arguments whose schema is not supported may be any
    /// object, unless the function is strict.
    ///
    /// # Errors
    /// The schemas exceed a limit, or too many grammars are queued.
    pub async fn constraint(
        &self,
        model: &Arc<ServedModel>,
        memory: &Memory,
    ) -> Result<Constraint, ApiError> {
        let mut callable = self.callable.clone();
        let mut loosened = 0;
        loop {
            let rule = match self.compile(model, memory, &callable).await {
                Err(GrammarError::Refused(error)) => error.rule,
                compiled => return Ok(compiled?),
            };
            let Some((at, rule)) = self.culprit(model, memory, &callable, &rule).await? else {
                return Err(ApiError::field("tools", rule));
            };
            let culprit = &mut callable[at];
            let is_strict = self.function(culprit).strict == Some(true);
            if is_strict || !is_unsupported(&rule) || loosened == MOST_LOOSENED {
                return Err(culprit.refused(&rule));
            }
            culprit.schema = Some(Map::new());
            culprit.warn(self.trace, &rule);
            loosened += 1;
        }
    }

    async fn compile(
        &self,
        model: &Arc<ServedModel>,
        memory: &Memory,
        callable: &[Callable],
    ) -> Result<Constraint, GrammarError> {
        let functions = callable.iter().map(|callable| Function {
            name: &self.function(callable).name,
            parameters: callable.schema.as_ref(),
        });
        let functions: Vec<_> = functions.collect();
        let grammar = tool_grammar(&self.format, &functions, self.tool_use);
        model.constraint(grammar, memory).await
    }

    /// Bisects functions that failed to compile together to find one that does not compile by itself, with its reason.
    /// `None` if there is none.
    async fn culprit(
        &self,
        model: &Arc<ServedModel>,
        memory: &Memory,
        callable: &[Callable],
        rule: &str,
    ) -> Result<Option<(usize, String)>, ApiError> {
        let (mut start, mut end) = (0, callable.len());
        while end - start > 1 {
            let middle = start.midpoint(end);
            match self.compile(model, memory, &callable[start..middle]).await {
                Err(GrammarError::Refused(_)) => end = middle,
                Err(error) => return Err(error.into()),
                Ok(_) => start = middle,
            }
        }
        if callable.len() == 1 {
            return Ok(Some((0, rule.to_owned())));
        }
        match self.compile(model, memory, &callable[start..end]).await {
            Err(GrammarError::Refused(error)) => Ok(Some((start, error.rule))),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(None),
        }
    }
}

impl ToolFunction {
    /// Checks that the name is valid and differs from those in `before`, and that the arguments are an
    /// object.
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
        let may_be_object = match kind {
            None | Some(Value::Null) => true,
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
            Some(kind) => kind == "object",
        };
        match may_be_object {
            true => Ok(()),
            false => Err(ApiError::field(at("parameters.type"), "must be \"object\"")),
        }
    }
}
