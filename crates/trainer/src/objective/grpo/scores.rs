//! The figures of sampled completions: mean loss, rewards, lengths, clipping and KL divergence.

use super::batch::PolicySequence;
use super::loss::TokenLoss;
use crate::objective::completions::mean::{Mean, sums_of_numbers, sums_to_numbers};
use crate::report::metrics::{Direction, Metric, MetricValues, Phase};

/// Sums over sampled completions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PolicyScores {
    sequences: usize,
    loss: f64,
    reward: Mean,
    /// The standard deviations of the groups' rewards.
    deviation: Mean,
    tokens: Mean,
    reached_limit: Mean,
    /// Of tokens.
    clipped: Mean,
    /// Of tokens with a reference log-probability.
    kl: Mean,
}

impl PolicyScores {
    pub(super) fn add_sequence(&mut self, sequence: &PolicySequence) {
        self.sequences += 1;
        if let Some(reward) = sequence.reward {
            self.reward.add(reward);
        }
        self.deviation.add(sequence.deviation);
        self.tokens.add(sequence.completion.len() as f64);
        self.reached_limit.add_share(sequence.reached_limit);
    }

    pub(super) fn add_token(&mut self, found: &TokenLoss, scale: f64) {
        self.loss += scale * found.loss;
        self.clipped.add_share(found.is_clipped);
        if let Some(kl) = found.kl {
            self.kl.add(kl);
        }
    }

    /// Adds the sums over other completions.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sequences += other.sequences;
        self.loss += other.loss;
        self.reward.join(other.reward);
        self.deviation.join(other.deviation);
        self.tokens.join(other.tokens);
        self.reached_limit.join(other.reached_limit);
        self.clipped.join(other.clipped);
        self.kl.join(other.kl);
    }

    /// The sums as numbers, to exchange them between ranks.
    pub(crate) fn to_numbers(self) -> Vec<f64> {
        let means = [
            self.reward,
            self.deviation,
            self.tokens,
            self.reached_limit,
            self.clipped,
            self.kl,
        ];
        sums_to_numbers(self.sequences, self.loss, means)
    }

    /// The sums of [`PolicyScores::to_numbers`].
    pub(crate) fn of_numbers(numbers: &[f64]) -> Self {
        let (sequences, loss, means) = sums_of_numbers(numbers);
        let [reward, deviation, tokens, reached_limit, clipped, kl] = means;
        Self {
            sequences,
            loss,
            reward,
            deviation,
            tokens,
            reached_limit,
            clipped,
            kl,
        }
    }

    /// The number of completions.
    pub(crate) fn sequences(&self) -> usize {
        self.sequences
    }

    /// The losses' sum.
    pub(crate) fn loss_sum(&self) -> f64 {
        self.loss
    }

    /// Means over the completions: `reward`, `reward_std`, `completion_tokens` and `limit_share`; over their tokens:
    /// `clip_share` and `kl`. Those of nothing are absent.
    pub(crate) fn values(&self) -> MetricValues {
        let mut values = MetricValues::default();
        for (name, mean) in [
            ("reward", self.reward),
            ("reward_std", self.deviation),
            ("completion_tokens", self.tokens),
            ("limit_share", self.reached_limit),
            ("clip_share", self.clipped),
            ("kl", self.kl),
        ] {
            if let Some(value) = mean.value() {
                values.insert(name, value);
            }
        }
        values
    }

    /// The metrics of a run that learns from rewards.
    pub(crate) fn metrics(has_reference: bool) -> Vec<Metric> {
        let both = |name, title| Metric::new(name, title).phase(Phase::Both);
        let kl = has_reference.then(|| Metric::new("kl", "KL").unit("nats"));
        let metrics = vec![
            both("reward", "Reward").direction(Direction::HigherIsBetter),
            Metric::new("reward_std", "Reward std").unit("within groups"),
            both("completion_tokens", "Length").unit("tokens"),
            both("limit_share", "At limit"),
            Metric::new("clip_share", "Clipped"),
        ];
        metrics.into_iter().chain(kl).collect()
    }
}
