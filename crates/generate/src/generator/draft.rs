//! The draft model of speculative decoding: its tokens, and the choice between them and the target model's.

use emberlm_kernels::Backend;
use emberlm_model::{RequestedOutput, Transformer, TransformerConfig};

use super::GenerateOptions;
use crate::chooser::Chooser;
use crate::distribution::Distribution;
use crate::error::{GenerateError, LogitsError, SettingError};
use crate::logits::floats;
use crate::sampler::{Sampler, check_finite};
use crate::sequence::Sequence;

/// The acceptance statistics of the draft model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftAcceptance {
    /// Draft tokens that the target model verified.
    pub made: u64,
    /// Draft tokens that were accepted.
    pub taken: u64,
    /// Forward passes of the target model after the prompt's. Each returns one token more than it accepts.
    pub passes: u64,
}

impl DraftAcceptance {
    /// The acceptance rate, 0 to 1; `None` before the first draft token.
    pub fn rate(&self) -> Option<f64> {
        (self.made > 0).then(|| self.taken as f64 / self.made as f64)
    }
}

/// Checks that a model of the configuration `draft` can draft tokens for a `target`.
pub(crate) fn check_draft(
    target: &TransformerConfig,
    draft: &TransformerConfig,
) -> Result<(), SettingError> {
    let (vocab_size, wanted) = (draft.vocab_size(), target.vocab_size());
    if vocab_size != wanted {
        let rule = format!("the draft's must be the model's {wanted}");
        return Err(SettingError::new("vocab_size", vocab_size, rule));
    }
    for (config, whose) in [(target, "the model"), (draft, "the draft")] {
        if config.is_recurrent() {
            let rule = format!(
                "{whose} must support removing tokens from the cache, as softmax attention does"
            );
            let (field, value) = match config.delta_nets() {
                Some(_) => ("delta_nets", "set"),
                None => ("attention", "linear"),
            };
            return Err(SettingError::new(field, value, rule));
        }
    }
    Ok(())
}

/// A draft token with the distribution that it was sampled from.
pub(super) type Proposal = (u32, Distribution);

/// A draft model and its reading of the text.
#[derive(Debug)]
pub(super) struct Draft<'a, B: Backend> {
    model: &'a Transformer<B>,
    sequence: Sequence<B>,
    ahead: usize,
    sampler: Sampler,
    pub acceptance: DraftAcceptance,
}

impl<'a, B: Backend> Draft<'a, B> {
    pub fn new(
        model: &'a Transformer<B>,
        ahead: usize,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Result<Self, GenerateError> {
        // A random stream that no sample uses.
        let stream = u64::MAX - options.sample as u64;
        Ok(Self {
            model,
            sequence: Sequence::begin(model, prompt, options.max_new_tokens)?,
            ahead,
            sampler: Sampler::with_stream(options.chooser.sampler, stream)?,
            acceptance: DraftAcceptance::default(),
        })
    }

    /// Drafts the next tokens, at most `most`.
    pub fn propose(&mut self, most: usize) -> Result<Vec<Proposal>, GenerateError> {
        let ahead = self.ahead.min(most);
        let mut proposed = Vec::with_capacity(ahead);
        if ahead == 0 {
            return Ok(proposed);
        }
        self.sequence.make_room(ahead);
        for _ in 0..ahead.min(self.sequence.room()) {
            let logits = self.sequence.read(self.model, RequestedOutput::Last)?;
            let logits = floats(&logits);
            check_finite(&logits)?;
            let distribution = self.sampler.distribution_among(&logits);
            let distribution = distribution.ok_or(LogitsError::Empty)?;
            let id = distribution.draw(self.sampler.uniform());
            self.sequence.tokens.push(id);
            proposed.push((id, distribution));
        }
        Ok(proposed)
    }

    /// Replaces the last `rejected` tokens by the target model's choice.
    pub fn follow(&mut self, rejected: usize, other: Option<u32>) {
        self.sequence.keep(self.sequence.tokens.len() - rejected);
        self.sequence.tokens.extend(other);
    }
}

/// Chooses the token at the target's `logits`, with or without a draft token for this position. Returns true with it if
/// it is the draft token.
pub(super) fn decide(
    chooser: &mut Chooser,
    logits: &[f32],
    proposal: Option<Proposal>,
) -> Result<(u32, bool), LogitsError> {
    let wanted = chooser.distribution(logits)?;
    let Some((id, proposed)) = proposal else {
        return Ok((wanted.draw(chooser.uniform()), false));
    };
    // Strictly below, so that a draw of 0 does not accept a token of probability 0.
    if chooser.uniform() * proposed.of(id) < wanted.of(id) {
        return Ok((id, true));
    }
    let rest = wanted.without(&proposed);
    Ok((rest.draw(chooser.uniform()), false))
}
