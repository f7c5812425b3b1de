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
}

impl ChatMessage {
    /// Creates a message of any role.
    pub fn new(role: impl Into<Cow<'static, str>>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
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

    /// Writes a conversation as one line of JSON, as datasets have it and [`ChatEncoder::prompt`](super::ChatEncoder::prompt)
    /// reads it.
    pub fn record<'a>(messages: impl IntoIterator<Item = &'a Self>) -> String {
        let messages: Vec<&Self> = messages.into_iter().collect();
        json!({ "messages": messages }).to_string()
    }
}
