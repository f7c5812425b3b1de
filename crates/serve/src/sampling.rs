//! Default sampling settings of a served model.

use emberlm_generate::{Chooser, ChooserConfig, Penalties, SamplerConfig, SettingError};
use serde::Deserialize;

/// Sampling settings of a model for requests that leave them out. A field that is `None` has the API's default: the model's
/// own distribution, without penalties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingDefaults {
    /// The divisor of the logits; 0 always takes the most probable token.
    pub temperature: Option<f64>,
    /// The number of most probable tokens to draw from; 0 for all.
    pub top_k: Option<u32>,
    /// The sum of probabilities of the tokens to draw from, above 0 and at most 1.
    pub top_p: Option<f64>,
    /// The least probability of a token relative to the most probable one, from 0 to 1.
    pub min_p: Option<f64>,
    /// The factor by which tokens of the text so far become less probable, above 0; 1 for none.
    pub repetition_penalty: Option<f64>,
    /// The value subtracted from the logits of generated tokens, from -2 to 2.
    pub presence_penalty: Option<f64>,
    /// The value subtracted from the logits of generated tokens for each occurrence, from -2 to 2.
    pub frequency_penalty: Option<f64>,
}

impl SamplingDefaults {
    /// These settings, with `other`'s in the place of those that are `None`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            temperature: self.temperature.or(other.temperature),
            top_k: self.top_k.or(other.top_k),
            top_p: self.top_p.or(other.top_p),
            min_p: self.min_p.or(other.min_p),
            repetition_penalty: self.repetition_penalty.or(other.repetition_penalty),
            presence_penalty: self.presence_penalty.or(other.presence_penalty),
            frequency_penalty: self.frequency_penalty.or(other.frequency_penalty),
        }
    }

    /// The sampler and the penalties of a request with these settings.
    pub(crate) fn chooser(self, seed: u64) -> ChooserConfig {
        let (none, free) = (SamplerConfig::default(), Penalties::default());
        ChooserConfig {
            sampler: SamplerConfig {
                temperature: self.temperature.unwrap_or(none.temperature),
                top_k: self.top_k.map_or(none.top_k, |k| k as usize),
                top_p: self.top_p.unwrap_or(none.top_p),
                min_p: self.min_p.unwrap_or(none.min_p),
                seed,
            },
            penalties: Penalties {
                repetition: self.repetition_penalty.unwrap_or(free.repetition),
                presence: self.presence_penalty.unwrap_or(free.presence),
                frequency: self.frequency_penalty.unwrap_or(free.frequency),
            },
            ..ChooserConfig::default()
        }
    }

    /// Checks each setting.
    ///
    /// # Errors
    /// A setting is out of its range.
    pub(crate) fn check(self, vocab_size: usize) -> Result<(), SettingError> {
        Chooser::new(&self.chooser(0), &[], vocab_size, 0).map(|_| ())
    }
}
