//! The body of a response.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::TextConfig;
use super::output::OutputItems;
use super::tools::{FunctionTool, NamedFunction};
use crate::api::answers::FinishReason;
use crate::api::body::Object;
use crate::api::conversation::ToolChoice;
use crate::api::delivery::{Usage, name};
use crate::api::error::ErrorBody;
use crate::api::logprobs::LogProb;

/// A response, while it is generated and when it has ended. What it repeats of the request is written once.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct ResponseBody {
    pub id: String,
    pub object: Kind,
    /// Seconds since 1970.
    pub created_at: u64,
    pub status: Status,
    pub error: Option<ErrorBody>,
    pub incomplete_details: Option<IncompleteDetails>,
    #[schemars(with = "Option<String>")]
    pub instructions: Box<RawValue>,
    pub max_output_tokens: Option<u32>,
    #[schemars(with = "BTreeMap<String, Value>")]
    pub metadata: Box<RawValue>,
    pub model: String,
    pub output: Vec<OutputItem>,
    pub parallel_tool_calls: bool,
    pub temperature: f64,
    pub top_p: f64,
    #[schemars(with = "TextConfig")]
    pub text: Box<RawValue>,
    #[schemars(with = "ToolChoice<NamedFunction>")]
    pub tool_choice: Box<RawValue>,
    #[schemars(with = "Vec<Object<FunctionTool>>")]
    pub tools: Box<RawValue>,
    pub top_logprobs: usize,
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

/// The state of a response and of its items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    #[default]
    InProgress,
    Completed,
    /// Ended by the maximum number of tokens.
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

/// A part of the output.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum OutputItem {
    Reasoning(OutputReasoning),
    Message(OutputMessage),
    FunctionCall(FunctionCall),
}

/// The model's reasoning before its message or call.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct OutputReasoning {
    #[serde(rename = "type")]
    pub kind: ReasoningKind,
    pub id: String,
    pub status: Status,
    /// Always empty: the reasoning is not summarized.
    pub summary: Vec<Value>,
    /// One part, once the reasoning has begun.
    pub content: Vec<ReasoningText>,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReasoningKind {
    Reasoning,
}

/// The text of the reasoning, which is its only part.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ReasoningText {
    #[serde(rename = "type")]
    pub kind: ReasoningTextKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReasoningTextKind {
    ReasoningText,
}

/// The model's message.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct OutputMessage {
    #[serde(rename = "type")]
    pub kind: MessageKind,
    pub id: String,
    pub status: Status,
    pub role: Role,
    /// One part, once the message has begun.
    pub content: Vec<OutputText>,
}

/// A call of a function.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct FunctionCall {
    #[serde(rename = "type")]
    pub kind: FunctionCallKind,
    pub id: String,
    /// The identifier by which the result names the call.
    pub call_id: String,
    pub name: String,
    /// A JSON object, written as a text.
    pub arguments: String,
    pub status: Status,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FunctionCallKind {
    FunctionCall,
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

/// The message's text, which is its only part.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct OutputText {
    #[serde(rename = "type")]
    pub kind: PartKind,
    pub text: String,
    /// Always empty.
    pub annotations: Vec<Value>,
    /// Empty unless they are asked for.
    pub logprobs: Vec<LogProb>,
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
    /// Always 0: those of the reasoning are not counted separately.
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
    /// An empty text.
    pub fn new() -> Self {
        Self {
            kind: PartKind::OutputText,
            text: String::new(),
            annotations: Vec::new(),
            logprobs: Vec::new(),
        }
    }
}

impl OutputMessage {
    /// A message without content parts.
    pub fn new(id: String) -> Self {
        Self {
            kind: MessageKind::Message,
            id,
            status: Status::InProgress,
            role: Role::Assistant,
            content: Vec::new(),
        }
    }

    /// Appends text. The first call creates the content part.
    pub fn add(&mut self, text: &str, logprobs: Vec<LogProb>) {
        if self.content.is_empty() {
            self.content.push(OutputText::new());
        }
        if let Some(part) = self.content.first_mut() {
            part.text += text;
            part.logprobs.extend(logprobs);
        }
    }
}

impl OutputReasoning {
    /// Reasoning without text.
    pub fn new(id: String) -> Self {
        Self {
            kind: ReasoningKind::Reasoning,
            id,
            status: Status::InProgress,
            summary: Vec::new(),
            content: Vec::new(),
        }
    }

    /// Appends text.
    pub fn add(&mut self, text: &str) {
        match self.content.first_mut() {
            Some(part) => part.text += text,
            None => self.content.push(ReasoningText {
                kind: ReasoningTextKind::ReasoningText,
                text: text.to_owned(),
            }),
        }
    }
}

impl FunctionCall {
    /// A call without arguments yet.
    pub fn new(call_id: String, name: String) -> Self {
        Self {
            kind: FunctionCallKind::FunctionCall,
            id: id("fc"),
            call_id,
            name,
            arguments: String::new(),
            status: Status::InProgress,
        }
    }
}

impl From<OutputReasoning> for OutputItem {
    fn from(reasoning: OutputReasoning) -> Self {
        Self::Reasoning(reasoning)
    }
}

impl From<OutputMessage> for OutputItem {
    fn from(message: OutputMessage) -> Self {
        Self::Message(message)
    }
}

impl From<FunctionCall> for OutputItem {
    fn from(call: FunctionCall) -> Self {
        Self::FunctionCall(call)
    }
}

impl OutputItem {
    /// The item in its initial state.
    pub fn begun(&self) -> Self {
        match self {
            Self::Reasoning(reasoning) => OutputReasoning::new(reasoning.id.clone()).into(),
            Self::Message(message) => OutputMessage::new(message.id.clone()).into(),
            Self::FunctionCall(call) => Self::FunctionCall(FunctionCall {
                arguments: String::new(),
                status: Status::InProgress,
                ..call.clone()
            }),
        }
    }

    /// The item's id.
    pub fn id(&self) -> &str {
        match self {
            Self::Reasoning(reasoning) => &reasoning.id,
            Self::Message(message) => &message.id,
            Self::FunctionCall(call) => &call.id,
        }
    }

    pub fn set_status(&mut self, status: Status) {
        match self {
            Self::Reasoning(reasoning) => reasoning.status = status,
            Self::Message(message) => message.status = status,
            Self::FunctionCall(call) => call.status = status,
        }
    }
}

impl Status {
    /// The status of a response, and of its last item, that ended for the reason `finish`.
    pub fn of_end(finish: FinishReason) -> Self {
        match finish {
            FinishReason::Length => Self::Incomplete,
            FinishReason::Stop => Self::Completed,
        }
    }
}

impl ResponseBody {
    /// Completes the response with its output.
    pub fn finish(&mut self, output: OutputItems, usage: Usage) {
        let (items, finish) = output.into_parts();
        self.status = finish.map_or(Status::Completed, Status::of_end);
        self.incomplete_details =
            (self.status == Status::Incomplete).then_some(IncompleteDetails {
                reason: IncompleteReason::MaxOutputTokens,
            });
        self.output = items;
        self.usage = Some(usage.into());
    }

    /// Ends the response with an error.
    pub fn fail(&mut self, error: ErrorBody) {
        self.status = Status::Failed;
        self.error = Some(error);
    }
}

/// A random id such as `resp_…`.
pub(crate) fn id(kind: &str) -> String {
    name(kind).replacen('-', "_", 1)
}
