//! Log-probabilities in the form of completions, for answers and for the prompts before them.

use std::collections::BTreeMap;

use emberlm_generate::Chosen;
use emberlm_tokenizer::{StopStrings, TextStream};
use schemars::JsonSchema;
use serde::Serialize;

use crate::model::ServedModel;

/// For each token: its text, its log-probability, those of the likeliest in its place, and where in the text it begins. The
/// first token of a prompt has no log-probabilities.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(super) struct LogProbs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
    text_offset: Vec<usize>,
}

impl LogProbs {
    /// Adds a token that begins after `offset` characters.
    pub fn push(&mut self, model: &ServedModel, token: &Chosen, offset: usize) {
        let text = |id| String::from_utf8_lossy(&model.bytes(id)).into_owned();
        // Iterate in ascending order of probability: of tokens with the same text, the most probable one
        // remains.
        let likeliest = token.alternatives.iter().rev();
        let likeliest = likeliest.map(|&(id, logprob)| (text(id), logprob));
        self.tokens.push(text(token.id));
        self.token_logprobs.push(token.logprob);
        self.top_logprobs
            .push(token.logprob.map(|_| likeliest.collect()));
        self.text_offset.push(offset);
    }

    /// Adds the tokens of `next`.
    pub fn extend(&mut self, next: Self) {
        self.tokens.extend(next.tokens);
        self.token_logprobs.extend(next.token_logprobs);
        self.top_logprobs.extend(next.top_logprobs);
        self.text_offset.extend(next.text_offset);
    }
}

/// The position in a prompt whose tokens are returned with their log-probabilities.
pub(super) struct Echo {
    text: TextStream,
    /// The number of characters of the tokens so far.
    offset: usize,
}

impl Echo {
    /// The beginning of a prompt.
    pub fn new(model: &ServedModel) -> Self {
        Self {
            text: TextStream::after(&model.tokenizer, &[], StopStrings::default()),
            offset: 0,
        }
    }

    /// The log-probabilities of the next tokens.
    pub fn logprobs(&mut self, model: &ServedModel, tokens: &[Chosen]) -> LogProbs {
        let mut logprobs = LogProbs::default();
        for token in tokens {
            logprobs.push(model, token, self.offset);
            self.offset += self.text.push(token.id).decoded.chars().count();
        }
        logprobs
    }
}
