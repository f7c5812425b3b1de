//! The input of a response: a text, or the messages of a conversation.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::body::Object;

/// The user's message, or a conversation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, or a list of messages")]
pub(super) enum Input {
    /// The user's message.
    Text(String),
    /// A conversation. The output of earlier responses may be among it.
    Messages(#[schemars(length(min = 1))] Vec<Object<Message>>),
}

/// A message, or an output item of an earlier response.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Message {
    /// Items of another type are not supported.
    #[allow(dead_code)]
    #[serde(rename = "type")]
    kind: Option<MessageKind>,
    role: Role,
    content: Content,
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
    /// Written as a system message: models' templates have no other name for it.
    Developer,
}

/// A text, or parts that are texts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a text, or a list of parts of type input_text or output_text"
)]
enum Content {
    Text(String),
    Parts(Vec<Object<Part>>),
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Part {
    #[allow(dead_code)]
    #[serde(rename = "type")]
    kind: PartKind,
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
}

/// A message as a chat template receives it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Written<'a> {
    role: &'static str,
    content: Cow<'a, str>,
}

impl<'a> Written<'a> {
    /// A system message.
    pub fn system(text: &'a str) -> Self {
        Self {
            role: "system",
            content: text.into(),
        }
    }
}

impl Input {
    /// Returns true if there is no message.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Messages(messages) if messages.is_empty())
    }

    /// The messages of the conversation.
    pub fn messages(&self) -> Vec<Written<'_>> {
        match self {
            Self::Text(text) => vec![Written {
                role: "user",
                content: text.into(),
            }],
            Self::Messages(messages) => {
                messages.iter().map(|message| message.0.written()).collect()
            }
        }
    }
}

impl Message {
    fn written(&self) -> Written<'_> {
        let role = match self.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System | Role::Developer => "system",
        };
        let content = match &self.content {
            Content::Text(text) => text.into(),
            Content::Parts(parts) => {
                let texts = parts.iter().map(|part| part.0.text.as_str());
                texts.collect::<String>().into()
            }
        };
        Written { role, content }
    }
}
