//! Drafts of a smaller model.

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Tensor;
use emberlm_kernels::Backend;
use emberlm_model::{KvCache, RequestedOutput, Transformer};

use super::super::slot::{Slot, State};
use crate::error::LogitsError;
use crate::logits::floats;
use crate::sampler::{Sampler, check_finite};
use crate::sequence::Sequence;

/// Weight of a new measurement.
const NEW: f64 = 0.2;

/// A smaller model with the same vocabulary. Its cache of each slot follows the slot's tokens.
#[derive(Debug)]
pub(in crate::engine) struct DraftModel<B: Backend> {
    model: Arc<Transformer<B>>,
    /// The mean time in seconds to draft one token of each sequence, once measured.
    seconds: Option<f64>,
}

/// The slot of a draft and its number of tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub slot: usize,
    pub tokens: usize,
}

impl<B: Backend> DraftModel<B> {
    pub fn new(model: Arc<Transformer<B>>) -> Self {
        Self {
            model,
            seconds: None,
        }
    }

    pub fn model(&self) -> &Transformer<B> {
        &self.model
    }

    pub fn cache(&self, capacity: usize) -> KvCache<B> {
        self.model.cache(1, capacity)
    }

    /// The expected time in seconds to draft one token of each sequence; 0 before the first measurement.
    pub fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(0.0)
    }

    /// Drafts tokens after those of slots, in the order of `wanted`. Each draft uses the random numbers that the sample's tokens will be
    /// drawn with, so both draw the same token wherever the models agree. A slot whose tokens the model has still to read has none: it reads
    /// at most `prefill` of them per call.
    ///
    /// # Errors
    /// A logit is not finite.
    pub(super) fn draft(
        &mut self,
        slots: &mut [Slot<B>],
        wanted: &[Wanted],
        prefill: usize,
    ) -> Result<Vec<Vec<u32>>, LogitsError> {
        self.read(slots, wanted, prefill);
        let mut drafts: Vec<Vec<u32>> = wanted.iter().map(|_| Vec::new()).collect();
        let mut samplers: Vec<Option<Sampler>> = Vec::new();
        for wanted in wanted {
            let slot = &slots[wanted.slot];
            samplers.push(match (&slot.state, &slot.draft) {
                (State::Running(sample), Some(draft)) if draft.unread() == 1 => {
                    Some(sample.sample.chooser.sampler())
                }
                _ => None,
            });
        }
        let longest = wanted.iter().map(|wanted| wanted.tokens).max().unwrap_or(0);
        for depth in 0..longest {
            let started = Instant::now();
            let drafting = |at: &usize| wanted[*at].tokens > depth && samplers[*at].is_some();
            let drafting: Vec<usize> = (0..wanted.len()).filter(drafting).collect();
            let sequences = drafting.iter().map(|&at| (wanted[at].slot, 1));
            let Some(logits) = self.pass(slots, sequences, RequestedOutput::Last) else {
                break;
            };
            let width = (logits.len() / drafting.len().max(1)).max(1);
            for (&at, logits) in drafting.iter().zip(logits.chunks_exact(width)) {
                check_finite(logits)?;
                let (Some(sampler), Some(draft)) =
                    (&mut samplers[at], &mut slots[wanted[at].slot].draft)
                else {
                    continue;
                };
                let id = sampler.sample_among(logits).ok_or(LogitsError::Empty)?;
                draft.tokens.push(id);
                drafts[at].push(id);
            }
            let time = started.elapsed().as_secs_f64();
            let mean = self.seconds.unwrap_or(time);
            self.seconds = Some(mean + (time.min(2.0 * mean) - mean) * NEW);
        }
        Ok(drafts)
    }

    /// Makes the model's sequences those of the slots, and reads all tokens but the last, at most `most`.
    fn read(&self, slots: &mut [Slot<B>], wanted: &[Wanted], most: usize) {
        let mut left = most;
        let mut unread = Vec::new();
        for wanted in wanted {
            let slot = &mut slots[wanted.slot];
            let Some(draft) = &mut slot.draft else {
                continue;
            };
            draft.become_like(&slot.sequence.tokens);
            let taken = draft.unread().saturating_sub(1).min(left);
            left -= taken;
            if taken > 0 {
                unread.push((wanted.slot, taken));
            }
        }
        self.pass(slots, unread.into_iter(), RequestedOutput::None);
    }

    /// Reads tokens of slots: pairs of slot and number. Returns the requested logits, `[rows, vocab_size]`.
    fn pass(
        &self,
        slots: &mut [Slot<B>],
        sequences: impl Iterator<Item = (usize, usize)>,
        output: RequestedOutput,
    ) -> Option<Vec<f32>> {
        let mut takes = vec![0; slots.len()];
        for (slot, taken) in sequences {
            takes[slot] = taken;
        }
        let drafts = slots.iter_mut().zip(takes);
        let chunks = drafts.filter_map(|(slot, taken)| {
            let draft = slot.draft.as_mut().filter(|_| taken > 0)?;
            Some(draft.chunk(taken, output))
        });
        let mut chunks: Vec<_> = chunks.collect();
        if chunks.is_empty() {
            return None;
        }
        let logits = B::run(|| {
            let output = self.model.ragged(&mut chunks);
            output.logits.map(Tensor::into_data)
        })?;
        Some(floats(&logits).to_vec())
    }
}

impl<B: Backend> Sequence<B> {
    /// Takes other tokens, and keeps what is cached of them. At least the last one remains to be read.
    fn become_like(&mut self, tokens: &[u32]) {
        let cached = self.tokens.iter().take(self.cache.len());
        let before = &tokens[..tokens.len().saturating_sub(1)];
        let common = cached.zip(before).take_while(|(a, b)| a == b).count();
        let kept = self.cache.truncate(common);
        self.tokens.truncate(kept);
        self.tokens.extend_from_slice(&tokens[kept..]);
    }
}
