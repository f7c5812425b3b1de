//! The choice of tokens for one sequence, with all its constraints and settings.
//!
//! The order is vLLM's for what changes logits and transformers' for what follows: bias, repetition penalty, frequency
//! and presence penalty, the constraint's mask; then [`crate::sampler`]'s temperature, top-k, top-p and min-p. At
//! temperature 0 the likeliest of what is left is taken, so that all of the former act on it too.

use crate::constraint::{Constraint, Progress};
use crate::distribution::Distribution;
use crate::error::{LogitsError, SettingError};
use crate::logit_bias;
use crate::logprobs::LogProbs;
use crate::penalties::{Counted, Penalties};
use crate::sampler::{Sampler, SamplerConfig, check_finite};

/// The settings by which the tokens of a sequence are chosen; the default draws from the model's own distribution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChooserConfig {
    /// The sampler's settings.
    pub sampler: SamplerConfig,
    /// The penalties of repeated tokens.
    pub penalties: Penalties,
    /// The biases added to tokens' logits, each in the range of [`crate::ranges::LOGIT_BIAS`].
    pub logit_bias: Vec<(u32, f32)>,
    /// The number of the likeliest tokens whose log-probabilities are reported beside the chosen token's; none reports no
    /// log-probabilities.
    pub top_logprobs: Option<usize>,
    /// The constraint on the text.
    pub constraint: Option<Constraint>,
}

impl From<SamplerConfig> for ChooserConfig {
    fn from(sampler: SamplerConfig) -> Self {
        Self {
            sampler,
            ..Self::default()
        }
    }
}

/// A token that was chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chosen {
    /// The token.
    pub id: u32,
    /// Its log-probability in the model's own distribution, where that was asked for.
    pub logprob: Option<f32>,
    /// As many of the likeliest tokens as were asked for, with theirs, likeliest first.
    pub alternatives: Vec<(u32, f32)>,
}

/// Chooses the tokens of one sequence, one after another.
#[derive(Debug)]
pub struct Chooser {
    sampler: Sampler,
    logit_bias: Vec<(u32, f32)>,
    /// None without penalties.
    counted: Option<Counted>,
    top_logprobs: Option<usize>,
    constraint: Option<Progress>,
    /// The logits as bias, penalties and constraint leave them; kept between calls for its memory.
    changed: Vec<f32>,
}

impl Chooser {
    /// For what comes after `prompt`, of a vocabulary of `vocab_size`; `stream` is the sample's number among several of
    /// one prompt, each of which draws from its own stream.
    ///
    /// # Errors
    /// A setting out of its range; a constraint of another vocabulary.
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
            changed: Vec::new(),
        })
    }

    /// Returns true if what it does has a meaning for a vocabulary of `vocab_size`, another than it was made for maybe.
    ///
    /// # Errors
    /// A bias of a token that is not there; a constraint of another vocabulary.
    pub fn check(&self, vocab_size: usize) -> Result<(), SettingError> {
        logit_bias::check(&self.logit_bias, vocab_size)?;
        let constraint = self.constraint.as_ref();
        constraint.map_or(Ok(()), |constraint| constraint.check(vocab_size))
    }

    /// Chooses from `logits` `[vocab_size]` and advances by the chosen token: the next call is for the token after it.
    ///
    /// # Errors
    /// No logits, or one that is not finite; a constraint that no token of the vocabulary can continue.
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

    /// The distribution that [`Chooser::choose`] would draw from.
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

    /// A number that is drawn evenly from 0 up to, and without, 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.sampler.uniform()
    }

    /// Advances by a token that `logits` allow.
    pub(crate) fn take(&mut self, id: u32, logits: &[f32]) -> Result<Chosen, LogitsError> {
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

    /// Returns true if the constraint is met and nothing may follow, so that there is nothing more to choose.
    pub fn is_complete(&self) -> bool {
        self.constraint.as_ref().is_some_and(Progress::is_complete)
    }

    /// Returns true if logits are changed before one is drawn.
    fn changes(&self) -> bool {
        self.counted.is_some() || self.constraint.is_some() || !self.logit_bias.is_empty()
    }

    /// Makes `changed` of `logits`.
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
        Ok(())
    }
}
