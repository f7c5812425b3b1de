//! Messages of a conversation, as in requests and in chat templates.

use schemars::JsonSchema;
use serde::ser::{Error, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api::body::Object;
use crate::api::error::ApiError;

/// A message of a conversation.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Message {
    /// The speaker: system, user, assistant, tool, or another that the model's template supports.
    role: String,
    /// The text; only a message with calls of functions may lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Content>,
    /// The speaker's name, for templates that write names.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The functions that an assistant's message calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<Object<ToolCall>>>,
    /// The call that a tool's message answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    /// Has no effect: messages that were answers have it.
    #[allow(dead_code)]
    #[serde(skip_serializing)]
    refusal: Option<String>,
}

/// A text, or parts that are texts.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "a text, or a list of parts of type text")]
enum Content {
    /// A text.
    Text(String),
    /// Its parts.
    Parts(Vec<Object<Part>>),
}

/// A part that is text.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Part {
    #[serde(rename = "type")]
    kind: PartKind,
    /// The text of the part.
    text: String,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum PartKind {
    Text,
}

/// A call of a function in a message.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ToolCall {
    /// The identifier by which a tool's message answers it.
    id: String,
    #[serde(rename = "type")]
    kind: ToolKind,
    /// The function and its arguments.
    function: Object<CalledFunction>,
}

/// The kind of a tool.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolKind {
    /// A function of the client.
    Function,
}

/// A function that was called. Templates read the arguments as an object.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CalledFunction {
    /// The function's name.
    name: String,
    /// The arguments: a JSON object, written as a text.
    #[serde(serialize_with = "as_object")]
    arguments: String,
}

/// Serializes the arguments as an object.
fn as_object<S: Serializer>(arguments: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let object = read_arguments(arguments).map_err(S::Error::custom)?;
    object.serialize(serializer)
}

/// Parses the arguments of a call. Empty text counts as an empty object: functions without parameters are
/// called that way.
pub(crate) fn read_arguments(text: &str) -> serde_json::Result<Map<String, Value>> {
    match text.trim() {
        "" => Ok(Map::new()),
        text => serde_json::from_str(text),
    }
}

impl Message {
    /// A message with text content.
    pub fn of_text(role: &str, text: String) -> Self {
        Self {
            role: role.to_owned(),
            content: Some(Content::Text(text)),
            name: None,
            tool_calls: None,
            tool_call_id: None,
            refusal: None,
        }
    }

    /// An assistant message without content, to which calls can be added.
    pub fn of_calls() -> Self {
        Self {
            content: None,
            ..Self::of_text("assistant", String::new())
        }
    }

    /// A tool message with the result of call `id`.
    pub fn of_result(id: String, text: String) -> Self {
        Self {
            tool_call_id: Some(id),
            ..Self::of_text("tool", text)
        }
    }

    /// Adds a function call. `arguments` is a JSON object.
    pub fn add_call(&mut self, id: String, name: String, arguments: String) {
        let call = ToolCall {
            id,
            kind: ToolKind::Function,
            function: Object(CalledFunction { name, arguments }),
        };
        self.tool_calls.get_or_insert_default().push(Object(call));
    }

    /// Returns true for an assistant message.
    pub fn is_of_assistant(&self) -> bool {
        self.role == "assistant"
    }

    /// Checks the message at `index`.
    ///
    /// # Errors
    /// It has neither content nor calls, or the arguments of a call are not a JSON object.
    pub fn check(&self, index: usize) -> Result<(), ApiError> {
        if self.content.is_none() && !self.calls_functions() {
            let field = format!("messages[{index}]");
            return Err(ApiError::field(field, "must have content or tool_calls"));
        }
        for (number, call) in self.tool_calls.iter().flatten().enumerate() {
            if let Err(error) = read_arguments(&call.0.function.0.arguments) {
                let field = format!("messages[{index}].tool_calls[{number}].function.arguments");
                let rule = format!("must be a JSON object, written as a text: {error}");
                return Err(ApiError::field(field, rule));
            }
        }
        Ok(())
    }

    /// Returns true if the message calls functions.
    pub fn calls_functions(&self) -> bool {
        self.tool_calls
            .as_ref()
            .is_some_and(|calls| !calls.is_empty())
    }
}
