//! Settings of the objectives that learn from preferences between completions of a prompt.

use serde::{Deserialize, Serialize};

use super::check::{Must, Range, require};
use super::settings::{Settings, settings};
use crate::error::TrainError;

/// A loss of direct preference optimization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DpoLoss {
    /// The logistic loss (Rafailov et al. 2023), with label smoothing as in conservative DPO.
    #[default]
    Sigmoid,
    /// The squared distance from the margin `1 / (2β)`, of log-probabilities per token (Azar et al. 2023).
    Ipo,
    /// The hinge loss (Zhao et al. 2023, SLiC-HF).
    Hinge,
    /// The unbiased loss for labels that are wrong with the probability `label_smoothing` (Chowdhury et al. 2024).
    Robust,
}

settings! {
    /// Settings of direct preference optimization.
    pub struct DpoConfig in "train.objective" {
        /// The loss: sigmoid, ipo, hinge or robust.
        pub loss: DpoLoss = DpoLoss::default();
        /// The scale of rewards: a larger one keeps the model closer to the reference model. For ipo, half the inverse of the margin.
        pub beta: f64 = 0.1, Range::Positive;
        /// The probability that a preference is wrong, below 0.5; for the losses sigmoid and robust.
        pub label_smoothing: f64 = 0.0, SMOOTHING;
    }

    /// Settings of odds ratio preference optimization.
    pub struct OrpoConfig in "train.objective" {
        /// The weight of the odds ratio loss, which is added to the cross-entropy of the chosen sequences.
        pub beta: f64 = 0.1, Range::Positive;
    }

    /// Settings of simple preference optimization.
    pub struct SimpoConfig in "train.objective" {
        /// The scale of rewards, which are mean log-probabilities per token.
        pub beta: f64 = 0.1, Range::Positive;
        /// The target margin between the rewards.
        pub simpo_gamma: f64 = 0.5, Range::NotNegative;
        /// The probability that a preference is wrong, below 0.5.
        pub label_smoothing: f64 = 0.0, SMOOTHING;
    }

    /// Settings of Kahneman-Tversky optimization.
    pub struct KtoConfig in "train.objective" {
        /// The scale of rewards: a larger one keeps the model closer to the reference model.
        pub beta: f64 = 0.1, Range::Positive;
        /// The weight of the loss of desirable completions.
        pub desirable_weight: f64 = 1.0, Range::NotNegative;
        /// The weight of the loss of undesirable completions.
        pub undesirable_weight: f64 = 1.0, Range::NotNegative;
    }
}

/// The rule of probabilities that a preference is wrong.
const SMOOTHING: Must<f64> = Must("must be at least 0 and below 0.5", |share: &f64| {
    (0.0..0.5).contains(share)
});

impl DpoConfig {
    pub(super) fn check(&self) -> Result<(), TrainError> {
        let smooths = matches!(self.loss, DpoLoss::Sigmoid | DpoLoss::Robust);
        let (smoothing, rule) = (
            self.label_smoothing,
            "must be 0 unless the loss is sigmoid or robust",
        );
        let holds = smooths || smoothing == 0.0;
        require(Self::TABLE, "label_smoothing", smoothing, holds, rule)
    }
}
