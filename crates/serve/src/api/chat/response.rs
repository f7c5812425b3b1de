//! Response bodies of `POST /v1/chat/completions`, complete and streamed.

use schemars::JsonSchema;
use serde::Serialize;

use crate::api::answers::FinishReason;
use crate::api::delivery::Usage;
use crate::api::logprobs::LogProb;

/// An answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ChatCompletion {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<Choice>,
    pub usage: Usage,
}

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Choice {
    pub index: usize,
    pub message: Answer,
    pub logprobs: Option<LogProbs>,
    pub finish_reason: Option<ChatFinishReason>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Answer {
    pub role: &'static str,
    /// Null where the answer only calls functions.
    pub content: Option<String>,
    /// The model's reasoning before the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    pub refusal: Option<String>,
    /// The functions that the answer calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub tool_calls: Vec<ToolCall>,
    /// The call of one of the deprecated `functions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function_call: Option<CalledFunction>,
}

/// A call of a function.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ToolCall {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub function: CalledFunction,
}

/// A function that is called. In a stream the name comes once, and the arguments in parts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct CalledFunction {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A JSON object, written as a text.
    pub arguments: String,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChatFinishReason {
    /// The end of the answer.
    Stop,
    /// The maximum number of tokens.
    Length,
    /// The end of an answer that calls functions.
    ToolCalls,
    /// The end of an answer that calls one of the deprecated `functions`.
    FunctionCall,
}

impl From<FinishReason> for ChatFinishReason {
    fn from(reason: FinishReason) -> Self {
        match reason {
            FinishReason::Stop => Self::Stop,
            FinishReason::Length => Self::Length,
        }
    }
}

impl Answer {
    /// Adds a delta.
    pub fn add(&mut self, delta: Delta) {
        if let Some(text) = delta.content {
            *self.content.get_or_insert_default() += &text;
        }
        if let Some(text) = delta.reasoning_content {
            *self.reasoning_content.get_or_insert_default() += &text;
        }
        if let Some(part) = delta.function_call {
            match &mut self.function_call {
                Some(call) => call.arguments += &part.arguments,
                None => self.function_call = Some(part),
            }
        }
        for part in delta.tool_calls {
            match (part.id, part.kind, self.tool_calls.get_mut(part.index)) {
                (Some(id), Some(kind), None) => self.tool_calls.push(ToolCall {
                    id,
                    kind,
                    function: part.function,
                }),
                (.., Some(call)) => call.function.arguments += &part.function.arguments,
                _ => {}
            }
        }
    }

    /// Completes the answer: without calls, the content is a string, possibly empty, and not null.
    pub fn complete(&mut self) {
        if self.tool_calls.is_empty() && self.function_call.is_none() {
            self.content.get_or_insert_default();
        }
    }
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            role: "assistant",
            content: None,
            reasoning_content: None,
            refusal: None,
            tool_calls: Vec::new(),
            function_call: None,
        }
    }
}

/// A chunk of a streamed answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Chunk {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<ChunkChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ChunkChoice {
    pub index: usize,
    pub delta: Delta,
    pub logprobs: Option<LogProbs>,
    pub finish_reason: Option<ChatFinishReason>,
}

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// A part of the model's reasoning before the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub tool_calls: Vec<ToolCallDelta>,
    /// A part of the call of one of the deprecated `functions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function_call: Option<CalledFunction>,
}

/// A part of a call of a function.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ToolCallDelta {
    /// The number of the call in the answer.
    pub index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    pub function: CalledFunction,
}

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct LogProbs {
    pub content: Vec<LogProb>,
    pub refusal: Option<Vec<LogProb>>,
}
