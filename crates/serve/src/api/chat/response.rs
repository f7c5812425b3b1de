//! The bodies of `POST /v1/chat/completions`, whole and streamed.

use schemars::JsonSchema;
use serde::Serialize;

use crate::api::answers::FinishReason;
use crate::api::delivery::Usage;

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
    pub finish_reason: Option<FinishReason>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Answer {
    pub role: &'static str,
    pub content: String,
    pub refusal: Option<String>,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            role: "assistant",
            content: String::new(),
            refusal: None,
        }
    }
}

/// A piece of an answer.
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
    pub finish_reason: Option<FinishReason>,
}

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct LogProbs {
    pub content: Vec<LogProb>,
    pub refusal: Option<Vec<LogProb>>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LogProb {
    #[serde(flatten)]
    pub token: Likely,
    pub top_logprobs: Vec<Likely>,
}

/// A token by itself.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Likely {
    pub token: String,
    pub logprob: f32,
    pub bytes: Option<Vec<u8>>,
}
