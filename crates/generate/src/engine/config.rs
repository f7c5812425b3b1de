//! The size of an engine.

use emberlm_kernels::{Backend, reference};
use emberlm_model::kv_cache::ROLLBACK_TOKENS;
use emberlm_model::{ModelKind, TransformerConfig};

use super::EngineModel;
use crate::error::SettingError;
use crate::generator::check_draft;

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
    /// The use of draft tokens.
    pub drafting: Drafting,
}

/// The use of draft tokens. There are none with [`EngineConfig::deterministic`], with linear attention, whose cache cannot be truncated,
/// and in an encoder–decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drafting {
    /// No draft tokens.
    #[default]
    Never,
    /// At most this number of draft tokens per sequence and pass: as many as raise the expected throughput, by the measured
    /// durations of passes and the accepted tokens of each sequence. None
    /// for requests with log-probabilities, whose last digits would depend on the machine's speed.
    WhileFaster(usize),
    /// This number of draft tokens per sequence and pass, wherever there are any.
    Always(usize),
}

impl Drafting {
    /// Maximum number of draft tokens per sequence and pass.
    pub fn tokens(self) -> usize {
        match self {
            Self::Never => 0,
            Self::WhileFaster(tokens) | Self::Always(tokens) => tokens,
        }
    }
}

impl EngineConfig {
    /// Maximum number of slots.
    pub const MOST_SLOTS: usize = 4096;

    /// Maximum number of draft tokens per sequence and pass.
    pub const MOST_DRAFT_TOKENS: usize = ROLLBACK_TOKENS;

    /// Eight slots with the model's full context, of a T5 512 tokens, 256 prompt tokens per step, and no drafts.
    pub fn for_model(config: &TransformerConfig) -> Self {
        Self {
            slots: 8,
            capacity: config.seq_len(),
            prefill_tokens: 256,
            deterministic: false,
            drafting: Drafting::Never,
        }
    }

    /// Maximum number of rows of logits of prompts in a pass: those that take as much memory as a block of logits in training.
    /// They exist only for requests with [`super::Request::prompt_logprobs`]. Also the maximum number of draft tokens in a pass.
    pub fn prompt_logit_rows(&self, vocab_size: usize) -> usize {
        let rows = reference::rows_per_block(vocab_size, reference::BLOCK_BYTES);
        rows.min(self.prefill_tokens)
    }

    /// Checks that a model of the configuration `draft` can draft tokens for a `model` in an engine.
    ///
    /// # Errors
    /// The models have different vocabularies, one of them is not a decoder or has linear attention, or the draft model's context is
    /// shorter than the engine's.
    pub fn check_draft(
        &self,
        model: &TransformerConfig,
        draft: &TransformerConfig,
    ) -> Result<(), SettingError> {
        for config in [model, draft] {
            if config.kind() != ModelKind::Decoder {
                let rule = "must be a decoder to draft tokens, or to have them drafted";
                return Err(SettingError::new("model", config.kind().named(), rule));
            }
        }
        check_draft(model, draft)?;
        let (longest, wanted) = (draft.longest(), self.capacity);
        match longest.filter(|&longest| longest < wanted) {
            Some(context) => {
                let rule = format!("the draft's context must be at least the engine's {wanted}");
                Err(SettingError::new("seq_len", context, rule))
            }
            None => Ok(()),
        }
    }

    /// Checks the configuration for a model.
    pub(super) fn check<B: Backend>(&self, model: &EngineModel<B>) -> Result<(), SettingError> {
        let most = Self::MOST_DRAFT_TOKENS;
        let tokens = self.drafting.tokens();
        if tokens > most {
            let rule = format!("must be at most {most}");
            return Err(SettingError::new("draft_tokens", tokens, rule));
        }
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
