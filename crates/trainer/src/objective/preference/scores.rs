//! The figures of preferences: mean loss, rewards, margin and accuracy.

use super::loss::PairLoss;
use crate::metrics::{Direction, Metric, MetricValues, Phase};

/// Sums over pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PreferenceScores {
    pairs: usize,
    loss: f64,
    rewards: [f64; 2],
    correct: usize,
}

impl PreferenceScores {
    pub(super) fn add_pair(&mut self, pair: &PairLoss) {
        self.pairs += 1;
        self.loss += pair.loss;
        let [chosen, rejected] = pair.rewards;
        self.rewards[0] += chosen;
        self.rewards[1] += rejected;
        self.correct += usize::from(chosen > rejected);
    }

    /// Adds a loss that is shared by the pairs.
    pub(super) fn add_loss(&mut self, loss: f64) {
        self.loss += loss;
    }

    /// Adds the sums over other pairs.
    pub fn add(&mut self, other: &Self) {
        self.pairs += other.pairs;
        self.loss += other.loss;
        self.rewards[0] += other.rewards[0];
        self.rewards[1] += other.rewards[1];
        self.correct += other.correct;
    }

    /// The number of pairs.
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// The losses' sum.
    pub fn loss_sum(&self) -> f64 {
        self.loss
    }

    /// The values of [`PreferenceScores::metrics`], means over the pairs; empty without pairs.
    pub fn values(&self) -> MetricValues {
        let mut values = MetricValues::default();
        if self.pairs > 0 {
            let mean = |sum: f64| sum / self.pairs as f64;
            let [chosen, rejected] = self.rewards;
            values.insert("reward_chosen", mean(chosen));
            values.insert("reward_rejected", mean(rejected));
            values.insert("reward_margin", mean(chosen - rejected));
            values.insert("reward_accuracy", mean(self.correct as f64));
        }
        values
    }

    /// The metrics of a run that learns from preferences. An accuracy is the share of pairs whose chosen completion has the
    /// higher reward.
    pub(crate) fn metrics() -> Vec<Metric> {
        let metric = |name, title| Metric::new(name, title).phase(Phase::Both);
        vec![
            metric("reward_accuracy", "Preferred").direction(Direction::HigherIsBetter),
            metric("reward_margin", "Margin").direction(Direction::HigherIsBetter),
            metric("reward_chosen", "Chosen"),
            metric("reward_rejected", "Rejected"),
        ]
    }
}
