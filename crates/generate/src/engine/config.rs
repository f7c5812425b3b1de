//! The size of an engine.

use emberlm_kernels::{Backend, reference};
use emberlm_model::TransformerConfig;

use super::EngineModel;
use crate::error::SettingError;

/// The configuration of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Number of concurrent sequences. Each has a cache, which is allocated with the engine.
    pub slots: usize,
    /// Size of a slot's cache in tokens, which is the context. At most the model's `seq_len`. For an encoder–decoder, the
    /// longest source and the longest target.
    pub capacity: usize,
    /// Maximum number of prompt tokens per step. More tokens read a prompt sooner, but running sequences wait longer
    /// for their next token.
    pub prefill_tokens: usize,
    /// True to compute every sequence in separate passes whose shapes depend only on its tokens. Concurrent requests
    /// then do not change a bit of its logits. In exchange, sequences do not share the reading of the weights, and only
    /// whole chunks of
    /// `prefill_tokens` of a cached prefix are reused.
    pub deterministic: bool,
}

impl EngineConfig {
    /// Maximum number of slots.
    pub const MOST_SLOTS: usize = 4096;

    /// Eight slots with the model's full context, of a T5 512 tokens, and 256 prompt tokens per step.
    pub fn for_model(config: &TransformerConfig) -> Self {
        Self {
            slots: 8,
            capacity: config.seq_len(),
            prefill_tokens: 256,
            deterministic: false,
        }
    }

    /// Maximum number of rows of logits of prompts in a pass: those that take as much memory as a block of logits in training.
    /// They exist only for requests with [`super::Request::prompt_logprobs`].
    pub fn prompt_logit_rows(&self, vocab_size: usize) -> usize {
        let rows = reference::rows_per_block(vocab_size, reference::BLOCK_BYTES);
        rows.min(self.prefill_tokens)
    }

    /// Checks the configuration for a model.
    pub(super) fn check<B: Backend>(&self, model: &EngineModel<B>) -> Result<(), SettingError> {
        let within = |field, value: usize, most: usize, whose: &str| {
            if (1..=most).contains(&value) {
                return Ok(());
            }
            let rule = format!("must be between 1 and {most}{whose}");
            Err(SettingError::new(field, value, rule))
        };
        within("slots", self.slots, Self::MOST_SLOTS, "")?;
        let whose = ", the model's context";
        within("capacity", self.capacity, model.longest_context(), whose)?;
        within("prefill_tokens", self.prefill_tokens, usize::MAX, "")
    }
}
