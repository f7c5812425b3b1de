//! The sampled completions of a micro-batch, and the differentiable sum of their losses.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};
use emberlm_kernels::Backend;
use emberlm_model::Transformer;

use super::loss::PolicyLoss;
use super::scores::PolicyScores;
use crate::read::host_read;

/// The sequences of a micro-batch, each a prompt with a sampled completion.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyBatch {
    /// The loss of a token.
    pub loss: PolicyLoss,
    /// The sequences.
    pub sequences: Arc<[PolicySequence]>,
}

/// A prompt with a sampled completion.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySequence {
    /// The positions that predict the completion's tokens.
    pub completion: Range<usize>,
    /// The advantage.
    pub advantage: f64,
    /// The factor of each token's loss in the sum over the step, which is divided by the step's sequences.
    pub scale: f64,
    /// The log-probability of each token under the model that sampled it. Empty if that is the model itself.
    pub old: Vec<f64>,
    /// The log-probability of each token under the reference model. Empty without one.
    pub reference: Vec<f64>,
    /// The reward; `None` if it could not be computed.
    pub reward: Option<f64>,
    /// The standard deviation of the rewards of the group.
    pub deviation: f64,
    /// True if the completion was ended by its maximum number of tokens.
    pub reached_limit: bool,
}

impl PolicyBatch {
    /// The losses of the tokens from hidden states, `[sequences, seq, d_model]`, with the completions' `targets`,
    /// `[sequences, seq]`. Returns a weighted sum of cross-entropies, `[1]`, with the gradient of the losses' sum but
    /// another value; the scores have the value. Reads the log-probabilities from the device, which waits for it.
    pub(crate) fn loss_sum<B: Backend>(
        &self,
        decoder: &Transformer<B>,
        hidden: &Tensor<B, 3>,
        targets: &Tensor<B, 2, Int>,
    ) -> (Tensor<B, 1>, PolicyScores) {
        let losses = self.cross_entropies(decoder, hidden, targets); // [1, tokens]
        let values: Vec<f64> = host_read(losses.clone()).iter().collect();
        let (weights, scores) = self.weights(&values);
        let weights = Tensor::<B, 1>::from_floats(weights.as_slice(), &losses.device());
        ((losses * weights.unsqueeze()).sum(), scores)
    }

    /// The log-probabilities of the tokens of each completion.
    pub(crate) fn log_probabilities<B: Backend>(
        &self,
        decoder: &Transformer<B>,
        hidden: &Tensor<B, 3>,
        targets: &Tensor<B, 2, Int>,
    ) -> Vec<Vec<f64>> {
        let losses = host_read(self.cross_entropies(decoder, hidden, targets));
        let mut found = losses.iter().map(|loss: f64| -loss);
        let lengths = self.sequences.iter().map(|of| of.completion.len());
        lengths
            .map(|tokens| found.by_ref().take(tokens).collect())
            .collect()
    }

    /// The cross-entropies of the completions' tokens, one completion after another, `[1, tokens]`. The head computes no
    /// logits of prompts and padding.
    fn cross_entropies<B: Backend>(
        &self,
        decoder: &Transformer<B>,
        hidden: &Tensor<B, 3>,
        targets: &Tensor<B, 2, Int>,
    ) -> Tensor<B, 2> {
        let (mut states, mut ids) = (Vec::new(), Vec::new());
        for (row, sequence) in self.sequences.iter().enumerate() {
            let range = &sequence.completion;
            let of_row = hidden.clone().narrow(0, row, 1);
            states.push(of_row.narrow(1, range.start, range.len()));
            let of_row = targets.clone().narrow(0, row, 1);
            ids.push(of_row.narrow(1, range.start, range.len()));
        }
        decoder.losses_of(Tensor::cat(states, 1), Tensor::cat(ids, 1))
    }

    /// The derivatives of the losses' sum with respect to the cross-entropies.
    fn weights(&self, cross_entropies: &[f64]) -> (Vec<f32>, PolicyScores) {
        let mut scores = PolicyScores::default();
        let mut weights = Vec::with_capacity(cross_entropies.len());
        let mut values = cross_entropies.iter();
        for sequence in self.sequences.iter() {
            scores.add_sequence(sequence);
            let of_sequence = values.by_ref().take(sequence.completion.len());
            for (token, cross_entropy) in of_sequence.enumerate() {
                let now = -cross_entropy;
                let old = sequence.old.get(token).copied().unwrap_or(now);
                let reference = sequence.reference.get(token).copied();
                let found = self.loss.of_token(now, old, reference, sequence.advantage);
                scores.add_token(&found, sequence.scale);
                // A cross-entropy is a negative log-probability.
                weights.push((-sequence.scale * found.derivative) as f32);
            }
        }
        (weights, scores)
    }
}
