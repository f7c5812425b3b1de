//! The size of an engine.

use emberlm_model::DecoderConfig;

use crate::error::SettingError;

/// The configuration of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Sequences that run at the same time, each with its own cache, which is allocated with the engine.
    pub slots: usize,
    /// Tokens that a slot's cache holds: the context, at most the model's `seq_len`.
    pub capacity: usize,
    /// Tokens of prompts that are read in one step at most: the more, the sooner a prompt is read, and the longer the running
    /// sequences wait for their next tokens meanwhile.
    pub prefill_tokens: usize,
    /// True if every sequence is computed in separate passes, with shapes that depend only on its tokens: a sample's
    /// tokens are then the same to the bit whatever runs beside it. Running sequences do not share the reading of the
    /// weights then, and of a cached prefix only whole chunks of `prefill_tokens` are reused.
    pub deterministic: bool,
}

impl EngineConfig {
    /// The most slots.
    pub const MOST_SLOTS: usize = 4096;

    /// Eight slots of the model's whole context, and prompts read by 256 tokens.
    pub fn for_model(config: &DecoderConfig) -> Self {
        Self {
            slots: 8,
            capacity: config.seq_len(),
            prefill_tokens: 256,
            deterministic: false,
        }
    }

    /// Returns true if an engine for the model can be made with it.
    pub(super) fn check(&self, config: &DecoderConfig) -> Result<(), SettingError> {
        let within = |field, value: usize, most: usize, whose: &str| {
            if (1..=most).contains(&value) {
                return Ok(());
            }
            let rule = format!("must be between 1 and {most}{whose}");
            Err(SettingError::new(field, value, rule))
        };
        within("slots", self.slots, Self::MOST_SLOTS, "")?;
        let whose = ", the model's context";
        within("capacity", self.capacity, config.seq_len(), whose)?;
        within("prefill_tokens", self.prefill_tokens, usize::MAX, "")
    }
}
