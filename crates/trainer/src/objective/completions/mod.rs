//! Batches of completions whose loss the host computes from their log-probabilities: preferences, and sampled completions
//! with rewards.

use burn::tensor::{Int, Tensor};
use emberlm_kernels::Backend;
use emberlm_model::Transformer;

use super::{PolicyBatch, PolicyScores, PreferenceBatch, PreferenceScores};
use crate::report::metrics::MetricValues;

pub(super) mod mean;

/// The completions of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum CompletionBatch {
    /// Pairs of a chosen and a rejected completion, or labelled ones.
    Preferences(PreferenceBatch),
    /// Sampled completions with rewards.
    Policy(PolicyBatch),
}

impl CompletionBatch {
    /// The number of pairs, or of completions.
    pub fn records(&self) -> usize {
        match self {
            Self::Preferences(pairs) => pairs.pairs(),
            Self::Policy(batch) => batch.sequences.len(),
        }
    }

    /// The losses of the completions from hidden states, `[batch, seq, d_model]`, of the input tokens `ids`, with the
    /// completions' `targets`, both `[batch, seq]`. The tensor, `[1]`, has the gradient of the losses' sum but another
    /// value; the scores have the value.
    pub(crate) fn loss_sum<B: Backend>(
        &self,
        decoder: &Transformer<B>,
        hidden: Tensor<B, 3>,
        ids: &Tensor<B, 2, Int>,
        targets: &Tensor<B, 2, Int>,
    ) -> (Tensor<B, 1>, CompletionScores) {
        let mut scores = CompletionScores::default();
        let loss;
        match self {
            Self::Preferences(pairs) => {
                (loss, scores.preferences) = pairs.loss_sum(decoder, hidden, ids, targets);
            }
            Self::Policy(batch) => {
                (loss, scores.policy) = batch.loss_sum(decoder, &hidden, targets);
            }
        }
        (loss, scores)
    }

    /// The log-probabilities of each completion's tokens; of preferences, only their sums.
    pub(crate) fn log_probabilities<B: Backend>(
        &self,
        decoder: &Transformer<B>,
        hidden: &Tensor<B, 3>,
        targets: &Tensor<B, 2, Int>,
    ) -> Vec<Vec<f64>> {
        match self {
            Self::Preferences(pairs) => {
                let sums = pairs.log_probabilities(decoder, hidden, targets);
                sums.into_iter().map(|sum| vec![sum]).collect()
            }
            Self::Policy(batch) => batch.log_probabilities(decoder, hidden, targets),
        }
    }
}

/// The figures of completions. Those of the other kind than the batch's are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CompletionScores {
    preferences: PreferenceScores,
    policy: PolicyScores,
}

impl CompletionScores {
    /// Adds the sums over other completions.
    pub fn add(&mut self, other: &Self) {
        self.preferences.add(&other.preferences);
        self.policy.add(&other.policy);
    }

    /// The figures of preferences.
    pub(crate) fn preferences(&self) -> &PreferenceScores {
        &self.preferences
    }

    /// The figures as numbers, to exchange them between ranks. Their count is always the same.
    pub(crate) fn to_numbers(self) -> Vec<f64> {
        let mut numbers = self.preferences.to_numbers();
        numbers.extend(self.policy.to_numbers());
        numbers
    }

    /// The figures of [`CompletionScores::to_numbers`].
    pub(crate) fn of_numbers(numbers: &[f64]) -> Self {
        let preferences = PreferenceScores::default().to_numbers().len();
        let (preferences, policy) = numbers.split_at(preferences.min(numbers.len()));
        Self {
            preferences: PreferenceScores::of_numbers(preferences),
            policy: PolicyScores::of_numbers(policy),
        }
    }

    /// The number of pairs, or of completions.
    pub fn records(&self) -> usize {
        self.preferences.records() + self.policy.sequences()
    }

    /// The losses' sum.
    pub fn loss_sum(&self) -> f64 {
        self.preferences.loss_sum() + self.policy.loss_sum()
    }

    /// Means over the records and their tokens, by the names of their metrics. Those of nothing are absent.
    pub fn values(&self) -> MetricValues {
        let mut values = self.preferences.values();
        values.extend(self.policy.values());
        values
    }
}
