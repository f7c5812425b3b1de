//! The figures of preferences: mean loss, rewards, margin and accuracy.

use emberlm_data::PreferenceForm;

use super::loss::PairLoss;
use crate::objective::completions::mean::{Mean, sums_of_numbers, sums_to_numbers};
use crate::report::metrics::{Direction, Metric, MetricValues, Phase};

/// Sums over pairs, or over labelled completions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PreferenceScores {
    records: usize,
    loss: f64,
    /// The rewards of chosen or desirable completions, and of rejected or undesirable ones.
    rewards: [Mean; 2],
    /// The share of pairs whose chosen completion has the higher reward.
    correct: Mean,
    /// The baseline of KTO.
    baseline: Mean,
}

impl PreferenceScores {
    pub(super) fn add_pair(&mut self, pair: &PairLoss) {
        self.records += 1;
        self.loss += pair.loss;
        let [chosen, rejected] = pair.rewards;
        self.rewards[0].add(chosen);
        self.rewards[1].add(rejected);
        self.correct.add_share(chosen > rejected);
    }

    /// Adds a labelled completion, with the baseline of its micro-batch.
    pub(super) fn add_labelled(&mut self, found: &PairLoss, label: bool, baseline: f64) {
        self.records += 1;
        self.loss += found.loss;
        self.rewards[usize::from(!label)].add(found.rewards[0]);
        self.baseline.add(baseline);
    }

    /// Adds a loss that is shared by the pairs.
    pub(super) fn add_loss(&mut self, loss: f64) {
        self.loss += loss;
    }

    /// Adds the sums over other records.
    pub fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.loss += other.loss;
        self.rewards[0].join(other.rewards[0]);
        self.rewards[1].join(other.rewards[1]);
        self.correct.join(other.correct);
        self.baseline.join(other.baseline);
    }

    /// The sums as numbers, to exchange them between ranks.
    pub(crate) fn to_numbers(self) -> Vec<f64> {
        let [chosen, rejected] = self.rewards;
        let means = [chosen, rejected, self.correct, self.baseline];
        sums_to_numbers(self.records, self.loss, means)
    }

    /// The sums of [`PreferenceScores::to_numbers`].
    pub(crate) fn of_numbers(numbers: &[f64]) -> Self {
        let (records, loss, [chosen, rejected, correct, baseline]) = sums_of_numbers(numbers);
        Self {
            records,
            loss,
            rewards: [chosen, rejected],
            correct,
            baseline,
        }
    }

    /// The number of pairs, or of labelled completions.
    pub fn records(&self) -> usize {
        self.records
    }

    /// The losses' sum.
    pub fn loss_sum(&self) -> f64 {
        self.loss
    }

    /// Means over the records: `reward_chosen`, `reward_rejected`, `reward_margin`, `reward_accuracy` and `kl`, of which
    /// those without a record are absent.
    pub fn values(&self) -> MetricValues {
        let [chosen, rejected] = self.rewards.map(Mean::value);
        let margin = chosen
            .zip(rejected)
            .map(|(chosen, rejected)| chosen - rejected);
        let mut values = MetricValues::default();
        for (name, value) in [
            ("reward_chosen", chosen),
            ("reward_rejected", rejected),
            ("reward_margin", margin),
            ("reward_accuracy", self.correct.value()),
            ("kl", self.baseline.value()),
        ] {
            if let Some(value) = value {
                values.insert(name, value);
            }
        }
        values
    }

    /// The metrics of a run that learns from preferences. An accuracy is the share of pairs whose chosen completion has the
    /// higher reward.
    pub(crate) fn metrics(form: PreferenceForm) -> Vec<Metric> {
        let metric = |name, title| Metric::new(name, title).phase(Phase::Both);
        let of_form = match form {
            PreferenceForm::Pairs => {
                metric("reward_accuracy", "Preferred").direction(Direction::HigherIsBetter)
            }
            PreferenceForm::Labelled => metric("kl", "KL").unit("nats"),
        };
        vec![
            of_form,
            metric("reward_margin", "Margin").direction(Direction::HigherIsBetter),
            metric("reward_chosen", "Chosen"),
            metric("reward_rejected", "Rejected"),
        ]
    }
}
