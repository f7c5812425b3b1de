//! Messages of a conversation, as in requests and in chat templates.

use emberlm_tokenizer::chat::read_arguments;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::body::Object;
use crate::api::error::ApiError;

/// A message of a conversation.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Message {
    /// The author: `system`, `user`, `assistant`, `tool`, or another role that the model's chat template supports.
    role: String,
    /// The text. Required unless the message has `tool_calls`.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Content>,
    /// The author's name, for templates that write names.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The function calls of an assistant's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<Object<ToolCall>>>,
    /// Deprecated: the only call of an assistant's message. The next message of role `function` is its result.
    #[serde(skip_serializing)]
    function_call: Option<Object<CalledFunction>>,
    /// The identifier of the call whose result a tool's message is.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    /// The model's reasons before its answer, for templates that write them.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    /// The same as `reasoning_content`, which takes precedence; answers of vLLM have this field.
    #[serde(skip_serializing)]
    reasoning: Option<String>,
    /// The text of a message without content: an assistant's refusal.
    #[serde(skip_serializing)]
    refusal: Option<String>,
    /// Has no effect; answers of OpenAI have this field.
    #[allow(dead_code)]
    #[serde(skip_serializing)]
    annotations: Option<Vec<Value>>,
    /// Has no effect.
    #[allow(dead_code)]
    #[serde(skip_serializing)]
    logprobs: Option<Value>,
}

/// A text, or a list of text parts.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "a text, or a list of parts of type text")]
enum Content {
    /// A text.
    Text(String),
    /// Its parts.
    Parts(Vec<Object<Part>>),
}

/// A part of a message's text.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Part {
    /// The part's type.
    #[serde(rename = "type")]
    kind: PartKind,
    /// The text of the part; of a refusal, the field is called `refusal`.
    #[serde(alias = "refusal")]
    text: String,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum PartKind {
    Text,
    // A text for templates.
    #[serde(rename(serialize = "text"))]
    Refusal,
}

/// A function call in a message.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ToolCall {
    /// The identifier by which a tool's message names the call.
    id: String,
    /// The tool's type.
    #[serde(rename = "type")]
    kind: ToolKind,
    /// The function and its arguments.
    function: Object<CalledFunction>,
    /// Has no effect; the parts of a streamed answer have this field.
    #[allow(dead_code)]
    #[serde(skip_serializing)]
    #[schemars(range(min = 0, max = u32::MAX))]
    index: Option<u32>,
}

/// The kind of a tool.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolKind {
    // A function of the client.
    Function,
}

/// The function of a call.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CalledFunction {
    /// The function's name.
    name: String,
    /// The arguments: a JSON object, as a string. Templates receive an object.
    arguments: String,
}

impl Message {
    /// A message with text content.
    pub fn of_text(role: &str, text: String) -> Self {
        Self {
            role: role.to_owned(),
            content: Some(Content::Text(text)),
            name: None,
            tool_calls: None,
            function_call: None,
            tool_call_id: None,
            reasoning_content: None,
            reasoning: None,
            refusal: None,
            annotations: None,
            logprobs: None,
        }
    }

    /// A message with the content of several parts.
    pub fn of_texts(role: &str, mut texts: Vec<String>) -> Self {
        match texts.len() {
            0 | 1 => Self::of_text(role, texts.pop().unwrap_or_default()),
            _ => {
                let part = |text| {
                    let kind = PartKind::Text;
                    Object::new(Part { kind, text })
                };
                Self {
                    content: Some(Content::Parts(texts.into_iter().map(part).collect())),
                    ..Self::of_text(role, String::new())
                }
            }
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
            function: Object::new(CalledFunction { name, arguments }),
            index: None,
        };
        self.tool_calls
            .get_or_insert_default()
            .push(Object::new(call));
    }

    /// Adds reasoning before the text or the calls.
    pub fn add_reasoning(&mut self, text: &str) {
        *self.reasoning_content.get_or_insert_default() += text;
    }

    /// The message with its refusal as its content and its reasoning under one name, where it has no others.
    pub fn completed(mut self) -> Self {
        if self.content.is_none() {
            self.content = self.refusal.take().map(Content::Text);
        }
        if self.reasoning_content.is_none() {
            self.reasoning_content = self.reasoning.take();
        }
        self
    }

    /// Returns true for an assistant message.
    pub fn is_of_assistant(&self) -> bool {
        self.role == "assistant"
    }

    /// Returns true for the result of a call.
    pub fn is_result(&self) -> bool {
        self.role == "tool" || self.role == "function"
    }

    /// Checks the message at `index`.
    ///
    /// # Errors
    /// It has neither content nor calls, or the arguments of a call are not a JSON object.
    pub fn check(&self, index: usize) -> Result<(), ApiError> {
        if self.content.is_none() && self.refusal.is_none() && !self.calls_functions() {
            let field = format!("messages[{index}]");
            return Err(ApiError::field(field, "must have content or tool_calls"));
        }
        if let Some(call) = &self.function_call
            && let Err(rule) = read_arguments(&call.0.arguments)
        {
            let field = format!("messages[{index}].function_call.arguments");
            return Err(ApiError::field(field, rule));
        }
        for (number, call) in self.tool_calls.iter().flatten().enumerate() {
            if let Err(rule) = read_arguments(&call.0.function.0.arguments) {
                let field = format!("messages[{index}].tool_calls[{number}].function.arguments");
                return Err(ApiError::field(field, rule));
            }
        }
        Ok(())
    }

    /// Returns true if the message calls functions.
    pub fn calls_functions(&self) -> bool {
        let calls = self.tool_calls.as_ref();
        self.function_call.is_some() || calls.is_some_and(|calls| !calls.is_empty())
    }
}

/// Translates the deprecated calls of a conversation, which have no identifiers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeprecatedCalls {
    count: usize,
}

impl DeprecatedCalls {
    /// The message with its `function_call` among `tool_calls`, or as the tool's message with the result of the last one.
    pub fn translated(&mut self, mut message: Message) -> Message {
        if let Some(call) = message.function_call.take() {
            self.count += 1;
            message.add_call(self.id(), call.0.name, call.0.arguments);
        } else if message.role == "function" && message.tool_call_id.is_none() && self.count > 0 {
            message.role = "tool".to_owned();
            message.tool_call_id = Some(self.id());
        }
        message
    }

    /// Nine letters and digits, as some templates require.
    fn id(self) -> String {
        format!("call{:05}", self.count)
    }
}
