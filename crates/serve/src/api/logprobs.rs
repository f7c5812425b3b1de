//! Log-probabilities of tokens, as in chat completions and responses.

use schemars::JsonSchema;
use serde::Serialize;

use super::answers::Token;
use crate::model::ServedModel;

/// A token of an answer, with its log-probability and the alternatives to it.
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

impl LogProb {
    /// The log-probability of a token. `None` if it was not requested.
    pub fn new(model: &ServedModel, token: &Token) -> Option<Self> {
        let chosen = &token.chosen;
        let alternatives = chosen.alternatives.iter();
        Some(Self {
            token: Likely::new(model, chosen.id, chosen.logprob?),
            top_logprobs: alternatives
                .map(|&(id, logprob)| Likely::new(model, id, logprob))
                .collect(),
        })
    }
}

impl Likely {
    fn new(model: &ServedModel, id: u32, logprob: f32) -> Self {
        let bytes = model.bytes(id);
        Self {
            token: String::from_utf8_lossy(&bytes).into_owned(),
            logprob,
            bytes: Some(bytes),
        }
    }
}
