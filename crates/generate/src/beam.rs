//! Beam search: the most probable sequence among those that a search of bounded width finds.
//!
//! At every step the `beams` most probable sequences so far are continued by every token, and the most probable
//! continuations are kept. A sequence that ends is scored by `Σ ln p / length^penalty`, its end included. The search ends
//! when no running sequence at its present length would score better than the worst of `beams` ended ones, or at
//! `max_new_tokens`: that is `transformers`' definition with `early_stopping=False`.

use std::cmp::Ordering;

use burn::tensor::{Int, Tensor, TensorData};

use emberlm_kernels::Backend;
use emberlm_model::{RequestedOutput, Transformer};

use crate::check::check_stop_tokens;
use crate::error::{GenerateError, LogitsError, SettingError};
use crate::generator::Finish;
use crate::logits::floats;
use crate::logprobs::LogProbs;
use crate::sampler::check_finite;
use crate::sequence::Sequence;

/// The options of a beam search.
///
/// ```
/// # use burn::backend::Flex;
/// # use emberlm_model::{TransformerConfig, families};
/// use emberlm_generate::{BeamOptions, beam_search};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut config = families::preset("pocket-tales").ok_or("no such preset")?.config;
/// # (config.vocab_size, config.n_layers) = (Some(16), 1);
/// # let decoder = TransformerConfig::try_from(config)?.init::<Flex>(1, &Default::default());
/// let options = BeamOptions {
///     beams: 2,
///     max_new_tokens: 3,
///     ..BeamOptions::default()
/// };
/// let found = beam_search(&decoder, &[1, 2], &options)?;
/// assert!(found[0].score >= found[1].score);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BeamOptions {
    /// The number of sequences that are continued at every step.
    pub beams: usize,
    /// The exponent of the length that a sequence's log-probability is divided by: above 0 favours long sequences.
    pub length_penalty: f64,
    /// The maximum number of tokens.
    pub max_new_tokens: usize,
    /// The tokens that end a sequence. They are not among the result's tokens.
    pub stop_tokens: Vec<u32>,
}

impl Default for BeamOptions {
    /// 4 beams of at most 256 tokens, scored by their mean log-probability.
    fn default() -> Self {
        Self {
            beams: 4,
            length_penalty: 1.0,
            max_new_tokens: 256,
            stop_tokens: Vec::new(),
        }
    }
}

/// A sequence found by a beam search.
#[derive(Clone, Debug, PartialEq)]
pub struct Beam {
    /// The new tokens, without the stop token.
    pub tokens: Vec<u32>,
    /// `Σ ln p / length^penalty`, the stop token included.
    pub score: f64,
    /// Why it ended.
    pub finish: Finish,
}

/// A model that continues several sequences of one length at once.
pub trait BeamModel {
    /// The number of token ids.
    fn vocab_size(&self) -> usize;

    /// The logits after the prompt, `[vocab_size]`. Called once, first.
    ///
    /// # Errors
    /// There are no logits.
    fn begin(&mut self) -> Result<Vec<f32>, LogitsError>;

    /// The logits after `tokens`, `[tokens, vocab_size]`: token `i` continues the sequence `parents[i]` of the call before;
    /// there were as many sequences as tokens then, and one after [`BeamModel::begin`].
    fn extend(&mut self, parents: &[usize], tokens: &[u32]) -> Vec<f32>;
}

impl BeamOptions {
    /// Checks the options for a vocabulary of `vocab_size`.
    ///
    /// # Errors
    /// A setting is out of its range.
    pub fn check(&self, vocab_size: usize) -> Result<(), SettingError> {
        let most = vocab_size / (self.stop_tokens.len() + 1).max(2);
        if !(1..=most).contains(&self.beams) {
            let rule = format!("must be between 1 and {most} with this vocabulary");
            return Err(SettingError::new("beams", self.beams, rule));
        }
        if !self.length_penalty.is_finite() {
            let rule = "must be a finite number";
            return Err(SettingError::new(
                "length_penalty",
                self.length_penalty,
                rule,
            ));
        }
        if self.max_new_tokens == 0 {
            return Err(SettingError::new("max_new_tokens", 0, "must be at least 1"));
        }
        check_stop_tokens(vocab_size, &self.stop_tokens)
    }
}

/// Searches for the best continuations of `prompt`, or with an encoder–decoder for the best targets of this source. Returns
/// at most `beams`, at least one, the best first.
///
/// # Errors
/// The prompt is empty, an id is outside the vocabulary, a decoder's context does not hold the prompt and the new tokens, a
/// setting is out of its range, or logits are not finite.
pub fn beam_search<B: Backend>(
    model: &Transformer<B>,
    prompt: &[u32],
    options: &BeamOptions,
) -> Result<Vec<Beam>, GenerateError> {
    let sequence = Sequence::begin(model, prompt, options.max_new_tokens)?;
    let context = model.config().seq_len();
    if sequence.source.is_none() && prompt.len().saturating_add(options.max_new_tokens) > context {
        return Err(GenerateError::Overflow {
            prompt: prompt.len(),
            max_new_tokens: options.max_new_tokens,
            context,
        });
    }
    let mut beams = ModelBeams {
        model,
        sequence,
        count: 1,
    };
    search(&mut beams, options)
}

/// [`beam_search`] after the prompt of any model.
///
/// # Errors
/// A setting is out of its range, or logits are not finite.
pub fn search(
    model: &mut impl BeamModel,
    options: &BeamOptions,
) -> Result<Vec<Beam>, GenerateError> {
    options.check(model.vocab_size())?;
    let mut search = Search {
        options,
        running: vec![Running::default()],
        ended: Vec::new(),
        length: 0,
    };
    let mut logits = model.begin()?;
    loop {
        let parents = search.step(&logits, model.vocab_size())?;
        if search.is_over() {
            return Ok(search.ended);
        }
        let newest = search.running.iter().filter_map(|beam| beam.tokens.last());
        let tokens: Vec<u32> = newest.copied().collect();
        logits = model.extend(&parents, &tokens);
    }
}

/// A sequence that has not ended.
#[derive(Clone, Debug, Default)]
struct Running {
    tokens: Vec<u32>,
    logprob: f64,
}

/// A running sequence, a token after it, and the log-probability of both.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    parent: usize,
    token: u32,
    logprob: f64,
}

struct Search<'a> {
    options: &'a BeamOptions,
    /// The most probable first.
    running: Vec<Running>,
    /// The best first, at most `beams`.
    ended: Vec<Beam>,
    /// Tokens of each running sequence.
    length: usize,
}

impl Search<'_> {
    /// Continues every sequence by a token. Returns the old number of each new running sequence.
    fn step(&mut self, logits: &[f32], vocab_size: usize) -> Result<Vec<usize>, LogitsError> {
        let BeamOptions {
            beams,
            max_new_tokens,
            stop_tokens,
            ..
        } = self.options;
        let candidates = self.candidates(logits, vocab_size)?;
        self.length += 1;
        let is_last = self.length == *max_new_tokens;
        let mut running = Vec::with_capacity(*beams);
        let mut parents = Vec::with_capacity(*beams);
        for (place, candidate) in candidates.iter().enumerate() {
            let parent = &self.running[candidate.parent];
            let stops = stop_tokens.contains(&candidate.token);
            if stops || is_last {
                // Less probable ones only replace those that end.
                if place < *beams {
                    let ended = self.ended_beam(parent, candidate, stops);
                    self.ended.push(ended);
                }
            } else if running.len() < *beams {
                let mut tokens = parent.tokens.clone();
                tokens.push(candidate.token);
                parents.push(candidate.parent);
                running.push(Running {
                    tokens,
                    logprob: candidate.logprob,
                });
            }
        }
        // Stable: among equals, the earlier one stays.
        self.ended.sort_by(|a, b| b.score.total_cmp(&a.score));
        self.ended.truncate(*beams);
        self.running = running;
        Ok(parents)
    }

    fn ended_beam(&self, parent: &Running, candidate: &Candidate, stops: bool) -> Beam {
        let mut tokens = parent.tokens.clone();
        if !stops {
            tokens.push(candidate.token);
        }
        Beam {
            tokens,
            score: self.score(candidate.logprob),
            finish: match stops {
                true => Finish::Stop(candidate.token),
                false => Finish::Length,
            },
        }
    }

    /// The score of a sequence of the present length.
    fn score(&self, logprob: f64) -> f64 {
        logprob / (self.length as f64).powf(self.options.length_penalty)
    }

    /// The most probable continuations, the most probable first: enough that `beams` remain if every sequence ends by
    /// every stop token.
    fn candidates(&self, logits: &[f32], vocab_size: usize) -> Result<Vec<Candidate>, LogitsError> {
        let count = (self.options.stop_tokens.len() + 1).max(2) * self.options.beams;
        let order = |a: &Candidate, b: &Candidate| -> Ordering {
            let places = (a.parent, a.token).cmp(&(b.parent, b.token));
            b.logprob.total_cmp(&a.logprob).then(places)
        };
        let mut best: Vec<Candidate> = Vec::new();
        for (parent, (beam, row)) in self
            .running
            .iter()
            .zip(logits.chunks(vocab_size))
            .enumerate()
        {
            check_finite(row)?;
            let logprobs = LogProbs::new(row);
            best.extend((0..vocab_size as u32).filter_map(|token| {
                let logprob = beam.logprob + logprobs.exact(token)?;
                Some(Candidate {
                    parent,
                    token,
                    logprob,
                })
            }));
            if best.len() > count {
                best.select_nth_unstable_by(count - 1, order);
                best.truncate(count);
            }
        }
        best.sort_unstable_by(order);
        Ok(best)
    }

    /// Returns true if the best sequence has been found.
    fn is_over(&self) -> bool {
        let Some(best) = self.running.first() else {
            return true;
        };
        let worst = self.ended.last().map(|beam| beam.score);
        let is_full = self.ended.len() == self.options.beams;
        is_full && worst.is_some_and(|worst| self.score(best.logprob) <= worst)
    }
}

/// A model's sequences in a beam search.
struct ModelBeams<'a, B: Backend> {
    model: &'a Transformer<B>,
    /// The cache of all sequences, and their source. The tokens are those of the prompt.
    sequence: Sequence<B>,
    count: usize,
}

impl<B: Backend> BeamModel for ModelBeams<'_, B> {
    fn vocab_size(&self) -> usize {
        self.model.config().vocab_size()
    }

    fn begin(&mut self) -> Result<Vec<f32>, LogitsError> {
        let logits = self.sequence.read(self.model, RequestedOutput::Last)?;
        Ok(floats(&logits).into_owned())
    }

    fn extend(&mut self, parents: &[usize], tokens: &[u32]) -> Vec<f32> {
        let Sequence { cache, source, .. } = &mut self.sequence;
        if !(parents.len() == self.count && parents.iter().copied().eq(0..self.count)) {
            cache.select(parents);
        }
        if parents.len() != self.count {
            // All have the same source.
            *source = source
                .as_ref()
                .map(|all| all.select(&vec![0; parents.len()]));
        }
        self.count = parents.len();
        let ids: Vec<i64> = tokens.iter().map(|&id| i64::from(id)).collect();
        let ids = TensorData::new(ids, [tokens.len(), 1]);
        let (model, source) = (self.model, source.as_ref());
        let logits = B::run(|| {
            let ids = Tensor::<B, 2, Int>::from_data(ids, &model.device());
            match source {
                Some(source) => model.next_target_logits(ids, source, cache),
                None => model.next_logits(ids, cache),
            }
            .into_data()
        });
        floats(&logits).into_owned()
    }
}
