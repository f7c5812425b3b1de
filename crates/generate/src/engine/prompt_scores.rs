//! Log-probabilities of the tokens of prompts.

use std::sync::Arc;

use emberlm_kernels::Backend;
use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};
use rayon::slice::ParallelSlice;

use super::Engine;
use super::event::{Event, EventKind};
use super::passes::{LogitRows, SHARED};
use super::slot::State;
use crate::chooser::Chosen;
use crate::error::LogitsError;
use crate::logprobs::LogProbs;
use crate::sampler::check_finite;

impl<B: Backend> Engine<B> {
    /// Reports the log-probabilities of a prompt's tokens from the logits before them, `[rows, vocab_size]`, if they are
    /// requested. Returns false if the logits are not finite; then the samples of the prompt have failed.
    pub(super) fn score_prompt(
        &mut self,
        asked: LogitRows,
        logits: &[f32],
        on: &mut impl FnMut(Event),
    ) -> bool {
        let slot = &self.slots[asked.slot];
        let State::Running(sample) = &slot.state else {
            return true;
        };
        let Some(count) = sample.prompt_logprobs else {
            return true;
        };
        let read = slot.sequence.cache.len();
        let first = read.saturating_sub(asked.rows);
        let tokens = &slot.sequence.tokens;
        let predicted = tokens.get(first + 1..).unwrap_or_default();
        let mut scored = match scores(logits, asked.rows, predicted, count) {
            Ok(scored) => scored,
            Err(error) => {
                self.fail(asked.slot, error, on);
                return false;
            }
        };
        if first == 0 {
            // Nothing predicts it.
            let unpredicted = tokens.iter().take(1).map(|&id| Chosen {
                id,
                ..Chosen::default()
            });
            scored.splice(0..0, unpredicted);
        }
        if scored.is_empty() {
            return true;
        }
        let scored: Arc<[Chosen]> = scored.into();
        let siblings = sample.siblings.iter().map(|(_, sibling)| sibling);
        for sibling in std::iter::once(&sample.sample).chain(siblings) {
            on(Event {
                request: sample.request,
                sample: sibling.number,
                kind: EventKind::Prompt(Arc::clone(&scored)),
            });
        }
        true
    }

    /// Ends the samples that wait for the prompt in a slot, because of its logits.
    fn fail(&mut self, slot: usize, error: LogitsError, on: &mut impl FnMut(Event)) {
        let State::Running(reading) = &mut self.slots[slot].state else {
            return;
        };
        let request = reading.request;
        let siblings = std::mem::take(&mut reading.siblings);
        let mut failed = vec![(slot, reading.sample.number)];
        failed.extend(
            siblings
                .iter()
                .map(|(other, sample)| (*other, sample.number)),
        );
        // Other sequences must not continue from the tokens with such logits.
        self.slots[slot].forget();
        for (slot, sample) in failed {
            on(Event {
                request,
                sample,
                kind: EventKind::Failed(error.clone().into()),
            });
            self.free(slot);
        }
    }
}

/// The log-probabilities of `tokens`, each from the row of logits before it, as far as there are both.
///
/// # Errors
/// A logit is not finite.
fn scores(
    logits: &[f32],
    rows: usize,
    tokens: &[u32],
    count: usize,
) -> Result<Vec<Chosen>, LogitsError> {
    let width = (logits.len() / rows.max(1)).max(1);
    let score = |(row, &id): (&[f32], &u32)| {
        check_finite(row)?;
        let logprobs = LogProbs::new(row);
        Ok(Chosen {
            id,
            logprob: logprobs.of(id),
            alternatives: logprobs.likeliest(count),
        })
    };
    match rows > 1 && logits.len() >= SHARED {
        true => logits
            .par_chunks_exact(width)
            .zip(tokens.par_iter())
            .map(score)
            .collect(),
        false => logits.chunks_exact(width).zip(tokens).map(score).collect(),
    }
}
