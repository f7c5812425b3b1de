//! Messages of a conversation, for programs.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::json;

/// A message of a conversation.
///
/// ```
/// use emberlm_tokenizer::chat::ChatMessage;
///
/// let messages = [ChatMessage::system("Answer briefly."), ChatMessage::user("Why is the sky blue?")];
/// assert_eq!(messages[1].role, "user");
/// assert_eq!(
///     ChatMessage::record(&messages),
///     r#"{"messages":[{"role":"system","content":"Answer briefly."},{"role":"user","content":"Why is the sky blue?"}]}"#
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// The author: `system`, `user`, `assistant`, or another role of the chat template.
    pub role: Cow<'static, str>,
    /// The text.
    pub content: String,
    /// The reasoning before an answer. The chat template decides if it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The functions that an answer calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ChatCall>,
}

/// A call of a function in a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "function")]
pub struct ChatCall {
    /// The function and its arguments.
    pub function: CalledFunction,
}

/// The function of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CalledFunction {
    /// The function's name.
    pub name: String,
    /// The arguments: a JSON object as a text. Templates receive an object.
    pub arguments: String,
}

impl ChatMessage {
    /// Creates a message of any role.
    pub fn new(role: impl Into<Cow<'static, str>>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
            reasoning_content: None,
            tool_calls: Vec::new(),
        }
    }

    /// Creates an instruction that precedes the conversation.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// Creates a message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// Creates an answer of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }

    /// Adds the reasoning before an answer.
    ///
    /// ```
    /// use emberlm_tokenizer::chat::ChatMessage;
    ///
    /// let message = ChatMessage::assistant("Yes.").with_reasoning("2 + 2 is 4.");
    /// assert_eq!(
    ///     ChatMessage::record(&[message]),
    ///     r#"{"messages":[{"role":"assistant","content":"Yes.","reasoning_content":"2 + 2 is 4."}]}"#
    /// );
    /// ```
    #[must_use]
    pub fn with_reasoning(mut self, reasoning: impl Into<String>) -> Self {
        self.reasoning_content = Some(reasoning.into());
        self
    }

    /// Adds a call of the function `name`. `arguments` is a JSON object.
    #[must_use]
    pub fn with_call(mut self, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        let (name, arguments) = (name.into(), arguments.into());
        let function = CalledFunction { name, arguments };
        self.tool_calls.push(ChatCall { function });
        self
    }

    /// Writes a conversation as one line of JSON, as datasets have it and [`ChatEncoder::prompt`](super::ChatEncoder::prompt)
    /// reads it.
    pub fn record<'a>(messages: impl IntoIterator<Item = &'a Self>) -> String {
        let messages: Vec<&Self> = messages.into_iter().collect();
        json!({ "messages": messages }).to_string()
    }
}
