//! The pairs of a batch, and the differentiable sum of their losses.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};
use emberlm_kernels::{Backend, HeadLossOptions};
use emberlm_model::{IGNORED_ELEMENT, Transformer};

use super::loss::{LogProbability, PreferenceLoss};
use super::scores::PreferenceScores;
use crate::read::host_read;

/// The sequences of a batch's pairs: first all chosen ones, then all rejected ones, in the order of the pairs. Of labelled
/// completions: first all of them, then the mismatched sequences.
#[derive(Clone, Debug, PartialEq)]
pub struct PreferenceBatch {
    /// The loss.
    pub loss: PreferenceLoss,
    /// The sequences, two for each pair.
    pub sequences: Arc<[PreferenceSequence]>,
    /// The labels of labelled completions, true if one is desirable; empty for pairs.
    pub labels: Arc<[bool]>,
}

/// A sequence of a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct PreferenceSequence {
    /// The positions from the first to the last target of the completion.
    pub completion: Range<usize>,
    /// The completion's targets.
    pub tokens: usize,
    /// The targets of prompt and completion.
    pub length: usize,
    /// The summed log-probability of the completion under the reference model; 0 for losses without one.
    pub reference: f64,
}

impl PreferenceBatch {
    /// The number of pairs.
    pub fn pairs(&self) -> usize {
        self.sequences.len() / 2
    }

    /// The losses of the pairs from hidden states, `[2 · pairs, seq, d_model]`, of the input tokens `ids`, with the
    /// completions' `targets`, both `[2 · pairs, seq]`. Returns a sum of weighted cross-entropies, `[1]`, with the gradient
    /// of the losses' sum but another value; the scores have the value. Reads the log-probabilities from the device, which
    /// waits for it.
    ///
    /// The head computes no logits of prompts, unless the loss learns them, nor of padding.
    pub(crate) fn loss_sum<B: Backend>(
        &self,
        decoder: &Transformer<B>,
        hidden: Tensor<B, 3>,
        ids: &Tensor<B, 2, Int>,
        targets: &Tensor<B, 2, Int>,
    ) -> (Tensor<B, 1>, PreferenceScores) {
        let mut parts = self.of_completions(decoder, &hidden, targets);
        if self.loss.learns_chosen() {
            let chosen = self.sequences.iter().take(self.pairs()).enumerate();
            parts.extend(chosen.map(|(row, sequence)| {
                let range = 0..sequence.length;
                let next = at(ids, row, 1..sequence.length + 1);
                let is_completion = at(targets, row, range.clone()).greater_equal_elem(0);
                let prompt = next.mask_fill(is_completion, IGNORED_ELEMENT);
                cross_entropy(decoder, &hidden, row, range, prompt)
            }));
        }
        let parts = Tensor::cat(parts, 0); // [2 · pairs] or [3 · pairs]
        let values: Vec<f64> = host_read(parts.clone()).iter().collect();
        let (weights, scores) = self.weights(&values);
        let device = parts.device();
        let weights = Tensor::<B, 1>::from_floats(weights.as_slice(), &device);
        ((parts * weights).sum(), scores)
    }

    /// The summed log-probabilities of the completions.
    pub(crate) fn log_probabilities<B: Backend>(
        &self,
        decoder: &Transformer<B>,
        hidden: &Tensor<B, 3>,
        targets: &Tensor<B, 2, Int>,
    ) -> Vec<f64> {
        let parts = Tensor::cat(self.of_completions(decoder, hidden, targets), 0);
        host_read(parts).iter().map(|sum: f64| -sum).collect()
    }

    /// The cross-entropy of each completion, `[1]`.
    fn of_completions<B: Backend>(
        &self,
        decoder: &Transformer<B>,
        hidden: &Tensor<B, 3>,
        targets: &Tensor<B, 2, Int>,
    ) -> Vec<Tensor<B, 1>> {
        let rows = self.sequences.iter().enumerate();
        let of_row = |(row, sequence): (usize, &PreferenceSequence)| {
            let range = sequence.completion.clone();
            let targets = at(targets, row, range.clone());
            cross_entropy(decoder, hidden, row, range, targets)
        };
        rows.map(of_row).collect()
    }

    /// The derivatives of the losses' sum with respect to the cross-entropies of the completions, followed by those of the
    /// chosen prompts if the loss learns them.
    fn weights(&self, cross_entropies: &[f64]) -> (Vec<f32>, PreferenceScores) {
        let pairs = self.pairs();
        let mut scores = PreferenceScores::default();
        let mut weights = vec![0.0; cross_entropies.len()];
        let log_probability = |row: usize| LogProbability {
            sum: -cross_entropies[row],
            reference: self.sequences[row].reference,
            tokens: self.sequences[row].tokens,
        };
        let mismatched = (pairs..2 * pairs).map(|row| log_probability(row).ratio());
        let mean = mismatched.sum::<f64>() / pairs as f64;
        // NaN stays NaN.
        let baseline = if mean < 0.0 { 0.0 } else { mean };
        for pair in 0..pairs {
            let (chosen, rejected) = (pair, pairs + pair);
            let label = self.labels.get(pair).copied();
            let found = self.loss.of_pair(
                log_probability(chosen),
                log_probability(rejected),
                baseline,
                label.unwrap_or(true),
            );
            match label {
                Some(label) => scores.add_labelled(&found, label, baseline),
                None => scores.add_pair(&found),
            }
            // A cross-entropy is a negative log-probability.
            weights[chosen] = -found.derivatives[0];
            weights[rejected] = -found.derivatives[1];
        }
        if self.loss.learns_chosen() {
            let chosen = &self.sequences[..pairs];
            let tokens: usize = chosen.iter().map(|sequence| sequence.length).sum();
            // The mean over the micro-batch's tokens, once for each pair: the sum is divided by the pairs.
            let weight = pairs as f64 / tokens as f64;
            for pair in 0..pairs {
                let prompt = 2 * pairs + pair;
                let sum = cross_entropies[pair] + cross_entropies.get(prompt).unwrap_or(&0.0);
                scores.add_loss(weight * sum);
                weights[pair] += weight;
                if let Some(of_prompt) = weights.get_mut(prompt) {
                    *of_prompt = weight;
                }
            }
        }
        (
            weights.into_iter().map(|weight| weight as f32).collect(),
            scores,
        )
    }
}

/// A range of a row, `[1, range]`.
fn at<B: Backend>(ids: &Tensor<B, 2, Int>, row: usize, range: Range<usize>) -> Tensor<B, 2, Int> {
    let row = ids.clone().narrow(0, row, 1);
    row.narrow(1, range.start, range.len())
}

/// The cross-entropy, `[1]`, of `targets`, `[1, range]`, summed over a range of a row.
fn cross_entropy<B: Backend>(
    decoder: &Transformer<B>,
    hidden: &Tensor<B, 3>,
    row: usize,
    range: Range<usize>,
    targets: Tensor<B, 2, Int>,
) -> Tensor<B, 1> {
    let hidden = hidden.clone().narrow(0, row, 1);
    let hidden = hidden.narrow(1, range.start, range.len());
    decoder.training_loss_sum_of(hidden, targets, HeadLossOptions::default())
}
