//! The input of a response: a text, or the items of a conversation.

use std::collections::HashSet;
use std::fmt;

use emberlm_tokenizer::chat::read_arguments;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_json::Value;

use crate::api::body::Object;
use crate::api::conversation;
use crate::api::error::ApiError;

/// The user's message, or a conversation.
#[derive(Clone, Debug, JsonSchema)]
#[serde(untagged)]
pub(super) enum Input {
    /// The user's message.
    Text(String),
    /// A conversation. The output of earlier responses may be among it.
    Items(#[schemars(length(min = 1))] Vec<InputItem>),
}

/// An item of a conversation, by its `type`. Messages need no `type`.
#[derive(Clone, Debug, JsonSchema)]
#[serde(untagged)]
pub(super) enum InputItem {
    Message(Message),
    FunctionCall(FunctionCall),
    FunctionCallOutput(FunctionCallOutput),
    Reasoning(Reasoning),
}

/// The reasoning of an earlier answer before its message or call, for templates that write it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "InputReasoning")]
pub(super) struct Reasoning {
    /// The item's type.
    #[allow(dead_code)]
    #[serde(rename = "type")]
    kind: ReasoningKind,
    /// Has no effect.
    #[allow(dead_code)]
    id: String,
    /// Has no effect.
    #[allow(dead_code)]
    summary: Vec<Value>,
    /// The text. Without it, the item has no effect.
    content: Option<Vec<Object<ReasoningPart>>>,
    /// Has no effect.
    #[allow(dead_code)]
    encrypted_content: Option<String>,
    /// Has no effect.
    #[allow(dead_code)]
    status: Option<String>,
}

/// A part of reasoning.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "InputReasoningPart")]
struct ReasoningPart {
    /// The part's type.
    #[allow(dead_code)]
    #[serde(rename = "type")]
    kind: ReasoningPartKind,
    /// The text.
    text: String,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ReasoningPartKind {
    ReasoningText,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ReasoningKind {
    Reasoning,
}

/// A message, or an output item of an earlier response.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "InputMessage")]
pub(super) struct Message {
    /// The item's type; may be left out.
    #[allow(dead_code)]
    #[serde(rename = "type")]
    kind: Option<MessageKind>,
    /// The author. `developer` is treated as `system`.
    role: Role,
    /// The text.
    content: Content,
    /// Has no effect.
    #[allow(dead_code)]
    phase: Option<String>,
    /// Has no effect.
    #[allow(dead_code)]
    id: Option<String>,
    /// Has no effect.
    #[allow(dead_code)]
    status: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MessageKind {
    Message,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Role {
    User,
    Assistant,
    System,
    // Written as a system message: chat templates have no other name for it.
    Developer,
}

/// A call of a function: an output item of an earlier response.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "InputFunctionCall")]
pub(super) struct FunctionCall {
    /// The item's type.
    #[allow(dead_code)]
    #[serde(rename = "type")]
    kind: FunctionCallKind,
    /// The identifier by which a result names the call.
    call_id: String,
    /// The function's name.
    name: String,
    /// The arguments: a JSON object, as a string.
    arguments: String,
    /// Has no effect.
    #[allow(dead_code)]
    id: Option<String>,
    /// Has no effect.
    #[allow(dead_code)]
    status: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FunctionCallKind {
    FunctionCall,
}

/// The result of a call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FunctionCallOutput {
    /// The item's type.
    #[allow(dead_code)]
    #[serde(rename = "type")]
    kind: FunctionCallOutputKind,
    /// The identifier of the call, which must be in `input` before the result.
    call_id: String,
    /// The result.
    output: Content,
    /// Has no effect.
    #[allow(dead_code)]
    name: Option<String>,
    /// Has no effect.
    #[allow(dead_code)]
    id: Option<String>,
    /// Has no effect.
    #[allow(dead_code)]
    status: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FunctionCallOutputKind {
    FunctionCallOutput,
}

/// A text, or a list of text parts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a text, or a list of parts of type input_text or output_text"
)]
#[schemars(rename = "InputContent")]
enum Content {
    Text(String),
    Parts(Vec<Object<Part>>),
}

/// A part of an item's text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "InputPart")]
struct Part {
    /// The part's type.
    #[allow(dead_code)]
    #[serde(rename = "type")]
    kind: PartKind,
    /// The text; of a refusal, the field is called `refusal`.
    #[serde(alias = "refusal")]
    text: String,
    /// Has no effect.
    #[allow(dead_code)]
    annotations: Option<Vec<Value>>,
    /// Has no effect.
    #[allow(dead_code)]
    logprobs: Option<Vec<Value>>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum PartKind {
    InputText,
    OutputText,
    Refusal,
}

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InputVisitor;

        impl<'de> Visitor<'de> for InputVisitor {
            type Value = Input;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text, or a list of messages, calls of functions and results")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Input, E> {
                Ok(Input::Text(text.to_owned()))
            }

            // Deserialize item by item, so errors include the index.
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Input, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    all.push(item);
                }
                Ok(Input::Items(all))
            }
        }

        deserializer.deserialize_any(InputVisitor)
    }
}

impl<'de> Deserialize<'de> for InputItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Object::<Value>::deserialize(deserializer)?.0;
        let kind = value.get("type").filter(|kind| !kind.is_null());
        let item = match kind.map(|kind| kind.as_str().unwrap_or_default()) {
            None | Some("message") => serde_json::from_value(value).map(Self::Message),
            Some("function_call") => serde_json::from_value(value).map(Self::FunctionCall),
            Some("function_call_output") => {
                serde_json::from_value(value).map(Self::FunctionCallOutput)
            }
            Some("reasoning") => serde_json::from_value(value).map(Self::Reasoning),
            Some(_) => {
                let rule =
                    "`type` must be message, function_call, function_call_output or reasoning";
                return Err(D::Error::custom(rule));
            }
        };
        item.map_err(D::Error::custom)
    }
}

impl Default for Input {
    fn default() -> Self {
        Self::Items(Vec::new())
    }
}

impl Input {
    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Items(items) if items.is_empty())
    }

    /// Converts the input to messages for a chat template. Calls are added to the assistant message before
    /// them.
    ///
    /// # Errors
    /// The arguments of a call are not a JSON object, or a result has no earlier call.
    pub fn into_messages(self) -> Result<Vec<Object<conversation::Message>>, ApiError> {
        let items = match self {
            Self::Text(text) => {
                let message = conversation::Message::of_text("user", text);
                return Ok(vec![Object::new(message)]);
            }
            Self::Items(items) => items,
        };
        let mut messages: Vec<Object<conversation::Message>> = Vec::new();
        let mut called = HashSet::new();
        // That of the next answer.
        let mut reasoning = String::new();
        for (index, item) in items.into_iter().enumerate() {
            let refuse = |field: &str, rule: String| {
                Err(ApiError::field(format!("input[{index}].{field}"), rule))
            };
            match item {
                InputItem::Reasoning(item) => {
                    let parts = item.content.into_iter().flatten();
                    reasoning.extend(parts.map(|part| part.0.text));
                    continue;
                }
                InputItem::Message(message) => messages.push(Object::new(message.into())),
                InputItem::FunctionCall(call) => {
                    if let Err(rule) = read_arguments(&call.arguments) {
                        return refuse("arguments", rule);
                    }
                    called.insert(call.call_id.clone());
                    let has_last = messages.last().is_some_and(|last| last.0.is_of_assistant());
                    if !has_last || !reasoning.is_empty() {
                        messages.push(Object::new(conversation::Message::of_calls()));
                    }
                    if let Some(message) = messages.last_mut() {
                        message.0.add_call(call.call_id, call.name, call.arguments);
                    }
                }
                InputItem::FunctionCallOutput(result) => {
                    if !called.contains(&result.call_id) {
                        let rule = "must belong to an earlier function_call of input";
                        return refuse("call_id", rule.to_owned());
                    }
                    let text = result.output.into_text();
                    let message = conversation::Message::of_result(result.call_id, text);
                    messages.push(Object::new(message));
                }
            }
            let reasoning = std::mem::take(&mut reasoning);
            let last = messages.last_mut().filter(|last| last.0.is_of_assistant());
            if let Some(last) = last.filter(|_| !reasoning.is_empty()) {
                last.0.add_reasoning(&reasoning);
            }
        }
        Ok(messages)
    }
}

impl From<Message> for conversation::Message {
    fn from(message: Message) -> Self {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System | Role::Developer => "system",
        };
        Self::of_text(role, message.content.into_text())
    }
}

impl Content {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().map(|part| part.0.text).collect(),
        }
    }
}
