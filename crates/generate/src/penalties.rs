//! Penalties that change the probability of tokens that occurred before.
//!
//! For the logit `l` of a token that was generated `n` times:
//!
//! ```text
//! repetition r:  l / r where l > 0, else l · r      of tokens in the prompt or generated (Keskar et al. 2019, CTRL)
//! frequency  f:  l - f · n                          of generated tokens (OpenAI)
//! presence   p:  l - p  where n > 0                 of generated tokens (OpenAI)
//! ```
//!
//! They are applied in this order, as in vLLM.

use std::collections::HashMap;

use crate::error::SettingError;
use crate::ranges::NumberRange;

/// The range of [`Penalties::repetition`].
pub(crate) const REPETITION: NumberRange = NumberRange::above(0.0);
/// The range of [`Penalties::presence`].
pub(crate) const PRESENCE: NumberRange = NumberRange::at_least(-2.0).to(2.0);
/// The range of [`Penalties::frequency`].
pub(crate) const FREQUENCY: NumberRange = PRESENCE;

/// The penalties of tokens that occurred before; the default changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalties {
    /// Divides a positive logit, multiplies a negative one, of each token in the prompt or generated: above 1
    /// makes it less probable, below 1 more probable; 1 changes nothing.
    pub repetition: f64,
    /// Subtracted from the logit of each generated token, from -2 to 2.
    pub presence: f64,
    /// Subtracted from the logit of each token as many times as it was generated, from -2 to 2.
    pub frequency: f64,
}

impl Default for Penalties {
    fn default() -> Self {
        Self {
            repetition: 1.0,
            presence: 0.0,
            frequency: 0.0,
        }
    }
}

impl Penalties {
    /// Returns true if no logit is changed.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn check(&self) -> Result<(), SettingError> {
        REPETITION.check("repetition_penalty", self.repetition)?;
        PRESENCE.check("presence_penalty", self.presence)?;
        FREQUENCY.check("frequency_penalty", self.frequency)
    }
}

/// Token counts of one sequence.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    penalties: Penalties,
    /// The number of times that each token was generated; 0 for one that occurs in the prompt only.
    made: HashMap<u32, u32>,
}

impl Counted {
    pub fn new(penalties: Penalties, prompt: &[u32]) -> Self {
        let made = prompt.iter().map(|&id| (id, 0)).collect();
        Self { penalties, made }
    }

    /// Counts a generated token.
    pub fn add(&mut self, id: u32) {
        *self.made.entry(id).or_default() += 1;
    }

    /// Applies the penalties to finite `logits` `[vocab_size]`. The results are finite.
    pub fn apply(&self, logits: &mut [f32]) {
        let Penalties {
            repetition,
            presence,
            frequency,
        } = self.penalties;
        for (&id, &count) in &self.made {
            let Some(logit) = logits.get_mut(id as usize) else {
                continue;
            };
            let mut changed = f64::from(*logit);
            match changed > 0.0 {
                true => changed /= repetition,
                false => changed *= repetition,
            }
            if count > 0 {
                changed -= frequency * f64::from(count) + presence;
            }
            *logit = to_finite(changed);
        }
    }
}

/// Clamps to finite f32 values. A repetition penalty, for example, can push a large logit out of range.
pub(crate) fn to_finite(logit: f64) -> f32 {
    logit.clamp(f32::MIN.into(), f32::MAX.into()) as f32
}
