//! The choice of tokens for one sequence, with all its constraints and settings.
//!
//! Logits are changed in vLLM's order: bias, repetition penalty, frequency and presence penalty, the constraint's mask, the
//! delayed tokens.
//! Then [`crate::sampler`] applies temperature, top-k, top-p and min-p in the order of `transformers`. At temperature 0
//! the most probable token is chosen after bias, penalties and mask.

use crate::constraint::{Constraint, Progress};
use crate::distribution::Distribution;
use crate::error::{LogitsError, SettingError};
use crate::logit_bias;
use crate::logprobs::LogProbs;
use crate::penalties::{Counted, Penalties};
use crate::sampler::{Sampler, SamplerConfig, check_finite};

/// The sampling settings of a sequence. The default samples from the model's own distribution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChooserConfig {
    /// The sampler's settings.
    pub sampler: SamplerConfig,
    /// The penalties of repeated tokens.
    pub penalties: Penalties,
    /// The biases added to the logits of tokens, each within [`crate::ranges::LOGIT_BIAS`].
    pub logit_bias: Vec<(u32, f32)>,
    /// The number of most probable tokens whose log-probabilities are reported with the chosen token's. `None` reports
    /// no log-probabilities.
    pub top_logprobs: Option<usize>,
    /// The constraint on the text.
    pub constraint: Option<Constraint>,
    /// Tokens that are not chosen before this number of other tokens, such as those that end a text. They are chosen earlier
    /// only if the constraint allows no others.
    pub delayed: Vec<(u32, usize)>,
}

impl From<SamplerConfig> for ChooserConfig {
    fn from(sampler: SamplerConfig) -> Self {
        Self {
            sampler,
            ..Self::default()
        }
    }
}

/// A chosen token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chosen {
    /// The token.
    pub id: u32,
    /// The log-probability in the model's own distribution, if requested.
    pub logprob: Option<f32>,
    /// The requested number of most probable tokens with their log-probabilities, most probable first.
    pub alternatives: Vec<(u32, f32)>,
}

/// Chooses the tokens of one sequence.
#[derive(Debug)]
pub struct Chooser {
    sampler: Sampler,
    logit_bias: Vec<(u32, f32)>,
    /// `None` without penalties.
    counted: Option<Counted>,
    top_logprobs: Option<usize>,
    constraint: Option<Progress>,
    delayed: Vec<(u32, usize)>,
    /// The number of chosen tokens.
    made: usize,
    /// The logits after all changes. The allocation is reused between calls.
    changed: Vec<f32>,
}

impl Chooser {
    /// Creates a chooser for the tokens after `prompt`, with a vocabulary of `vocab_size`. `stream` selects the random
    /// stream of the seed: each of several samples of one prompt has its own.
    ///
    /// # Errors
    /// A setting is out of range, or the constraint has a different vocabulary.
    pub fn new(
        config: &ChooserConfig,
        prompt: &[u32],
        vocab_size: usize,
        stream: u64,
    ) -> Result<Self, SettingError> {
        let sampler = Sampler::with_stream(config.sampler, stream)?;
        config.penalties.check()?;
        logit_bias::check(&config.logit_bias, vocab_size)?;
        let counted = !config.penalties.are_none();
        let constraint = config.constraint.as_ref();
        Ok(Self {
            sampler,
            logit_bias: config.logit_bias.clone(),
            counted: counted.then(|| Counted::new(config.penalties, prompt)),
            top_logprobs: config.top_logprobs,
            constraint: constraint.map(|c| c.start(vocab_size)).transpose()?,
            delayed: config.delayed.clone(),
            made: 0,
            changed: Vec::new(),
        })
    }

    /// Checks the biases and the constraint against a vocabulary of `vocab_size`, which may differ from the original
    /// one.
    ///
    /// # Errors
    /// A bias is for a token outside the vocabulary, or the constraint has a different vocabulary.
    pub fn check(&self, vocab_size: usize) -> Result<(), SettingError> {
        logit_bias::check(&self.logit_bias, vocab_size)?;
        let constraint = self.constraint.as_ref();
        constraint.map_or(Ok(()), |constraint| constraint.check(vocab_size))
    }

    /// Chooses a token from `logits` `[vocab_size]` and advances by it.
    ///
    /// # Errors
    /// The logits are empty or not finite, or no token of the vocabulary can continue the constraint.
    pub fn choose(&mut self, logits: &[f32]) -> Result<Chosen, LogitsError> {
        let id = match self.changes() {
            false => self.sampler.sample(logits)?,
            true => {
                self.change(logits)?;
                let chosen = self.sampler.sample_among(&self.changed);
                chosen.ok_or(LogitsError::Empty)?
            }
        };
        self.take(id, logits)
    }

    /// The distribution that [`Chooser::choose`] samples from.
    pub(crate) fn distribution(&mut self, logits: &[f32]) -> Result<Distribution, LogitsError> {
        let made = match self.changes() {
            false => {
                check_finite(logits)?;
                self.sampler.distribution_among(logits)
            }
            true => {
                self.change(logits)?;
                self.sampler.distribution_among(&self.changed)
            }
        };
        made.ok_or(LogitsError::Empty)
    }

    /// Returns true if log-probabilities are reported.
    pub(crate) fn reports_logprobs(&self) -> bool {
        self.top_logprobs.is_some()
    }

    /// A copy of the sampler with its current random state.
    pub(crate) fn sampler(&self) -> Sampler {
        self.sampler.clone()
    }

    /// A uniform random number in `[0, 1)`.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.sampler.uniform()
    }

    /// Advances by a token that `logits` allow.
    pub(crate) fn take(&mut self, id: u32, logits: &[f32]) -> Result<Chosen, LogitsError> {
        self.made = self.made.saturating_add(1);
        if let Some(counted) = &mut self.counted {
            counted.add(id);
        }
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(id)?;
        }
        let Some(count) = self.top_logprobs else {
            return Ok(Chosen {
                id,
                ..Chosen::default()
            });
        };
        let logprobs = LogProbs::new(logits);
        Ok(Chosen {
            id,
            logprob: logprobs.of(id),
            alternatives: logprobs.likeliest(count),
        })
    }

    /// Returns true if the constraint is met and allows no continuation.
    pub fn is_complete(&self) -> bool {
        self.constraint.as_ref().is_some_and(Progress::is_complete)
    }

    /// Returns true if any setting changes the logits.
    fn changes(&self) -> bool {
        self.counted.is_some()
            || self.constraint.is_some()
            || !self.logit_bias.is_empty()
            || self.delayed().next().is_some()
    }

    /// The tokens that must not be chosen yet.
    fn delayed(&self) -> impl Iterator<Item = u32> {
        let waiting = self.delayed.iter();
        let waiting = waiting.filter(|(_, first)| self.made < *first);
        waiting.map(|(id, _)| *id)
    }

    /// Applies bias, penalties, constraint and delays to `logits` and writes the result to `changed`.
    fn change(&mut self, logits: &[f32]) -> Result<(), LogitsError> {
        check_finite(logits)?;
        self.changed.clear();
        self.changed.extend_from_slice(logits);
        logit_bias::apply(&self.logit_bias, &mut self.changed);
        if let Some(counted) = &self.counted {
            counted.apply(&mut self.changed);
        }
        if let Some(constraint) = &mut self.constraint {
            constraint.mask(&mut self.changed)?;
        }
        self.delay();
        Ok(())
    }

    /// Sets the logits of delayed tokens to minus infinity, unless no other token is left.
    fn delay(&mut self) {
        let ids: Vec<usize> = self.delayed().map(|id| id as usize).collect();
        let held = |id: usize| self.changed.get(id).copied();
        let before: Vec<Option<f32>> = ids.iter().map(|&id| held(id)).collect();
        for &id in &ids {
            if let Some(logit) = self.changed.get_mut(id) {
                *logit = f32::NEG_INFINITY;
            }
        }
        if self.changed.iter().any(|logit| *logit > f32::NEG_INFINITY) {
            return;
        }
        for (id, logit) in ids.into_iter().zip(before) {
            if let (Some(changed), Some(logit)) = (self.changed.get_mut(id), logit) {
                *changed = logit;
            }
        }
    }
}
