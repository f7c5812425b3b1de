//! Drafts of a smaller model.

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{Tensor, TensorData};
use emberlm_kernels::Backend;
use emberlm_model::{KvCache, RequestedOutput, Transformer};

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

/// A sequence whose next tokens are drafted.
pub(super) struct DraftedSequence<'a, B: Backend> {
    /// The draft model's reading of the sequence.
    pub reading: &'a mut Sequence<B>,
    /// The sequence's tokens.
    pub tokens: &'a [u32],
    /// Draws the draft with the random numbers that the sequence's tokens will be drawn with, so both draw the same token wherever
    /// the models agree.
    pub sampler: Sampler,
    /// Maximum number of draft tokens.
    pub most: usize,
    /// The draft.
    pub draft: Vec<u32>,
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

    /// Drafts tokens. A sequence whose tokens the model has still to read has none: it reads at most `prefill` of them per call.
    ///
    /// # Errors
    /// A logit is not finite.
    pub(super) fn draft(
        &mut self,
        sequences: &mut [DraftedSequence<'_, B>],
        prefill: usize,
    ) -> Result<(), LogitsError> {
        self.read(sequences, prefill);
        loop {
            let started = Instant::now();
            let mut drafting: Vec<_> = sequences
                .iter_mut()
                .filter(|of| of.draft.len() < of.most && of.reading.unread() == 1)
                .collect();
            let chunks = drafting.iter_mut().map(|of| (&mut *of.reading, 1));
            let Some(logits) = self.pass(chunks, RequestedOutput::Last) else {
                return Ok(());
            };
            let logits = floats(&logits);
            let width = (logits.len() / drafting.len().max(1)).max(1);
            for (sequence, logits) in drafting.into_iter().zip(logits.chunks_exact(width)) {
                check_finite(logits)?;
                let id = sequence.sampler.sample_among(logits);
                let id = id.ok_or(LogitsError::Empty)?;
                sequence.reading.tokens.push(id);
                sequence.draft.push(id);
            }
            let time = started.elapsed().as_secs_f64();
            let mean = self.seconds.unwrap_or(time);
            self.seconds = Some(mean + (time.min(2.0 * mean) - mean) * NEW);
        }
    }

    /// Takes over the tokens of the sequences, and reads all of them but the last, at most `left`.
    fn read(&self, sequences: &mut [DraftedSequence<'_, B>], mut left: usize) {
        let unread = sequences.iter_mut().map(|sequence| {
            sequence.reading.replace_tokens(sequence.tokens);
            let taken = sequence.reading.unread().saturating_sub(1).min(left);
            left -= taken;
            (&mut *sequence.reading, taken)
        });
        self.pass(unread, RequestedOutput::None);
    }

    /// Reads tokens of sequences: pairs of sequence and number. Returns the requested logits, `[rows, vocab_size]`.
    fn pass<'a>(
        &self,
        sequences: impl Iterator<Item = (&'a mut Sequence<B>, usize)>,
        output: RequestedOutput,
    ) -> Option<TensorData> {
        let chunks = sequences.filter(|(_, taken)| *taken > 0);
        let mut chunks: Vec<_> = chunks.map(|(of, taken)| of.chunk(taken, output)).collect();
        if chunks.is_empty() {
            return None;
        }
        B::run(|| {
            let output = self.model.ragged(&mut chunks);
            output.logits.map(Tensor::into_data)
        })
    }
}

impl<B: Backend> Sequence<B> {
    /// Replaces the tokens, and keeps what is cached of their common beginning. At least the last one remains to be read.
    fn replace_tokens(&mut self, tokens: &[u32]) {
        let cached = self.tokens.iter().take(self.cache.len());
        let before = &tokens[..tokens.len().saturating_sub(1)];
        let common = cached.zip(before).take_while(|(a, b)| a == b).count();
        let kept = self.cache.truncate(common);
        self.tokens.truncate(kept);
        self.tokens.extend_from_slice(&tokens[kept..]);
    }
}
