//! The body of a response.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::TextConfig;
use crate::api::answers::FinishReason;
use crate::api::delivery::{Usage, name};
use crate::api::error::ErrorBody;

/// A response, while it is generated and when it has ended.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct ResponseBody {
    pub id: String,
    pub object: Kind,
    /// Seconds since 1970.
    pub created_at: u64,
    pub status: Status,
    pub error: Option<ErrorBody>,
    pub incomplete_details: Option<IncompleteDetails>,
    pub instructions: Option<String>,
    pub max_output_tokens: Option<u32>,
    pub metadata: BTreeMap<String, Value>,
    pub model: String,
    pub output: Vec<OutputMessage>,
    pub parallel_tool_calls: bool,
    pub temperature: f64,
    pub top_p: f64,
    pub text: TextConfig,
    pub tool_choice: ToolChoice,
    /// Always empty.
    pub tools: Vec<Value>,
    pub usage: Option<ResponseUsage>,
    pub store: bool,
    pub background: bool,
}

#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    #[default]
    Response,
}

#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolChoice {
    #[default]
    None,
}

/// The state of a response and of its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    #[default]
    InProgress,
    Completed,
    /// It has as many tokens as it may have.
    Incomplete,
    Failed,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct IncompleteDetails {
    pub reason: IncompleteReason,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum IncompleteReason {
    MaxOutputTokens,
}

/// The model's message.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct OutputMessage {
    #[serde(rename = "type")]
    pub kind: MessageKind,
    pub id: String,
    pub status: Status,
    pub role: Role,
    pub content: Vec<OutputText>,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MessageKind {
    Message,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Assistant,
}

/// The message's text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct OutputText {
    #[serde(rename = "type")]
    pub kind: PartKind,
    pub text: String,
    /// Always empty.
    pub annotations: Vec<Value>,
    /// Always empty.
    pub logprobs: Vec<Value>,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartKind {
    OutputText,
}

/// Numbers of tokens.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct ResponseUsage {
    pub input_tokens: usize,
    pub input_tokens_details: InputTokens,
    pub output_tokens: usize,
    pub output_tokens_details: OutputTokens,
    pub total_tokens: usize,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct InputTokens {
    /// Those that a cache held.
    pub cached_tokens: usize,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct OutputTokens {
    /// Always 0: reasoning is part of the text.
    pub reasoning_tokens: usize,
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputTokens {
                cached_tokens: usage.prompt_tokens_details.cached_tokens,
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputTokens {
                reasoning_tokens: 0,
            },
            total_tokens: usage.total_tokens,
        }
    }
}

impl OutputText {
    pub fn new(text: String) -> Self {
        Self {
            kind: PartKind::OutputText,
            text,
            annotations: Vec::new(),
            logprobs: Vec::new(),
        }
    }
}

impl OutputMessage {
    pub fn new(id: String, status: Status, content: Vec<OutputText>) -> Self {
        Self {
            kind: MessageKind::Message,
            id,
            status,
            role: Role::Assistant,
            content,
        }
    }
}

impl ResponseBody {
    /// Ends the response with its message.
    pub fn finish(
        &mut self,
        message_id: String,
        text: String,
        finish: Option<FinishReason>,
        usage: Usage,
    ) {
        self.status = match finish {
            Some(FinishReason::Length) => Status::Incomplete,
            _ => Status::Completed,
        };
        self.incomplete_details =
            (self.status == Status::Incomplete).then_some(IncompleteDetails {
                reason: IncompleteReason::MaxOutputTokens,
            });
        let content = vec![OutputText::new(text)];
        self.output = vec![OutputMessage::new(message_id, self.status, content)];
        self.usage = Some(usage.into());
    }

    /// Ends the response with an error.
    pub fn fail(&mut self, error: ErrorBody) {
        self.status = Status::Failed;
        self.error = Some(error);
    }
}

/// An identifier such as `resp_…`.
pub(crate) fn id(kind: &str) -> String {
    name(kind).replacen('-', "_", 1)
}
