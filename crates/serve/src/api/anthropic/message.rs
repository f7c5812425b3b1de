//! The body of an answer.

use schemars::JsonSchema;
use serde::Serialize;

use super::blocks::{AnswerBlock, Blocks, StopReason};
use crate::api::delivery;

/// An answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "MessagesAnswer")]
pub(crate) struct Message {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: MessageKind,
    pub role: AssistantRole,
    pub model: String,
    pub content: Vec<AnswerBlock>,
    /// Null while the answer is generated.
    pub stop_reason: Option<StopReason>,
    /// The one of `stop_sequences` that ended the answer.
    pub stop_sequence: Option<String>,
    pub usage: Usage,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "MessagesAnswerKind")]
pub(crate) enum MessageKind {
    Message,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "MessagesAnswerRole")]
pub(crate) enum AssistantRole {
    Assistant,
}

/// Numbers of tokens.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "MessagesUsage")]
pub(crate) struct Usage {
    /// Those of the prompt that no cache held.
    pub input_tokens: usize,
    pub output_tokens: usize,
    /// Always 0: storing is free.
    pub cache_creation_input_tokens: usize,
    /// Those of the prompt that a cache held.
    pub cache_read_input_tokens: usize,
}

impl From<delivery::Usage> for Usage {
    fn from(usage: delivery::Usage) -> Self {
        let cached = usage.prompt_tokens_details.cached_tokens;
        Self {
            input_tokens: usage.prompt_tokens.saturating_sub(cached),
            output_tokens: usage.completion_tokens,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: cached,
        }
    }
}

impl Message {
    /// An answer without content.
    pub fn new(id: String, model: String) -> Self {
        Self {
            id,
            kind: MessageKind::Message,
            role: AssistantRole::Assistant,
            model,
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage: Usage::default(),
        }
    }

    /// Completes the answer.
    pub(super) fn finish(&mut self, blocks: Blocks, usage: delivery::Usage) {
        let (content, end) = blocks.into_parts();
        let (stop_reason, stop_sequence) = end.unzip();
        self.content = content;
        self.stop_reason = stop_reason;
        self.stop_sequence = stop_sequence.flatten();
        self.usage = usage.into();
    }
}
