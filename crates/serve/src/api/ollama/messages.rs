//! Messages of a conversation. Calls and their results may have no identifiers, which templates need.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::body::Object;
use crate::api::conversation::{Message, ToolKind};

/// A message of a conversation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OllamaMessage")]
pub(crate) struct ChatMessage {
    /// The author: `system`, `user`, `assistant`, `tool`, or another role that the model's chat template supports.
    role: String,
    /// The text.
    content: Option<String>,
    /// The model's reasoning before its answer, for templates that write it.
    thinking: Option<String>,
    /// The function calls of an assistant's message.
    tool_calls: Option<Vec<Object<Call>>>,
    /// The name of the function whose result a tool's message is.
    tool_name: Option<String>,
    /// The identifier of its call. Default: the first call of the function without a result.
    tool_call_id: Option<String>,
}

/// A function call in a message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OllamaCall")]
struct Call {
    /// The identifier. Default: a new one.
    id: Option<String>,
    /// The tool's type; may be left out.
    #[allow(dead_code)]
    #[serde(rename = "type")]
    kind: Option<ToolKind>,
    /// The function and its arguments.
    function: Object<CalledFunction>,
}

/// The function of a call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OllamaCalledFunction")]
struct CalledFunction {
    /// The function's name.
    name: String,
    /// The arguments. Default: none.
    arguments: Option<Map<String, Value>>,
    /// Has no effect.
    #[allow(dead_code)]
    #[schemars(range(min = 0, max = u32::MAX))]
    index: Option<u32>,
}

/// A call without a result.
struct Unanswered {
    id: String,
    function: String,
}

/// The messages for a chat template, with identifiers.
pub(super) fn into_messages(messages: Vec<Object<ChatMessage>>) -> Vec<Object<Message>> {
    let (mut calls, mut unanswered) = (0, Vec::new());
    let convert = |message: Object<ChatMessage>| {
        let message = message.0;
        if message.role == "tool" {
            let id = match message.tool_call_id {
                Some(id) => id,
                None => take_call(&mut unanswered, message.tool_name.as_deref()),
            };
            return Message::of_result(id, message.content.unwrap_or_default());
        }
        let has_calls = message
            .tool_calls
            .as_ref()
            .is_some_and(|calls| !calls.is_empty());
        let mut converted = match message.content.unwrap_or_default() {
            text if text.is_empty() && has_calls => Message::of_calls(),
            text => Message::of_text(&message.role, text),
        };
        if let Some(thinking) = message.thinking.filter(|text| !text.is_empty()) {
            converted.add_reasoning(&thinking);
        }
        for call in message.tool_calls.into_iter().flatten() {
            calls += 1;
            // Nine letters and digits, as some templates require.
            let id = call.0.id.unwrap_or_else(|| format!("call{calls:05}"));
            let CalledFunction {
                name, arguments, ..
            } = call.0.function.0;
            unanswered.push(Unanswered {
                id: id.clone(),
                function: name.clone(),
            });
            let arguments = Value::Object(arguments.unwrap_or_default());
            converted.add_call(id, name, arguments.to_string());
        }
        converted
    };
    let messages = messages.into_iter().map(convert);
    messages.map(Object::new).collect()
}

/// The identifier of the first call of a function without a result.
fn take_call(unanswered: &mut Vec<Unanswered>, function: Option<&str>) -> String {
    let is_of = |call: &Unanswered| function.is_none_or(|name| name == call.function);
    match unanswered.iter().position(is_of) {
        Some(at) => unanswered.remove(at).id,
        None => format!("call{:05}", 0),
    }
}
