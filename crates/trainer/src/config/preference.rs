//! Settings of the objectives that learn from preferences between completions of a prompt.

use documented::DocumentedFields;
use serde::{Deserialize, Serialize};

use super::check::{Range, check_all, require};
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

/// Settings of direct preference optimization.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct DpoConfig {
    /// The loss: sigmoid, ipo, hinge or robust.
    pub loss: DpoLoss,
    /// The scale of rewards: a larger one keeps the model closer to the reference model. For ipo, half the inverse of the margin.
    pub beta: f64,
    /// The probability that a preference is wrong, below 0.5; for the losses sigmoid and robust.
    pub label_smoothing: f64,
}

/// Settings of odds ratio preference optimization.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct OrpoConfig {
    /// The weight of the odds ratio loss, which is added to the cross-entropy of the chosen sequences.
    pub beta: f64,
}

/// Settings of simple preference optimization.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct SimpoConfig {
    /// The scale of rewards, which are mean log-probabilities per token.
    pub beta: f64,
    /// The target margin between the rewards.
    pub simpo_gamma: f64,
    /// The probability that a preference is wrong, below 0.5.
    pub label_smoothing: f64,
}

/// Settings of Kahneman-Tversky optimization.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct KtoConfig {
    /// The scale of rewards: a larger one keeps the model closer to the reference model.
    pub beta: f64,
    /// The weight of the loss of desirable completions.
    pub desirable_weight: f64,
    /// The weight of the loss of undesirable completions.
    pub undesirable_weight: f64,
}

impl Default for KtoConfig {
    fn default() -> Self {
        Self {
            beta: 0.1,
            desirable_weight: 1.0,
            undesirable_weight: 1.0,
        }
    }
}

impl Default for DpoConfig {
    fn default() -> Self {
        Self {
            loss: DpoLoss::default(),
            beta: 0.1,
            label_smoothing: 0.0,
        }
    }
}

impl Default for OrpoConfig {
    fn default() -> Self {
        Self { beta: 0.1 }
    }
}

impl Default for SimpoConfig {
    fn default() -> Self {
        Self {
            beta: 0.1,
            simpo_gamma: 0.5,
            label_smoothing: 0.0,
        }
    }
}

const TABLE: &str = "train.objective";

impl DpoConfig {
    pub(super) fn check(&self) -> Result<(), TrainError> {
        check_beta(self.beta)?;
        check_smoothing(self.label_smoothing)?;
        let smooths = matches!(self.loss, DpoLoss::Sigmoid | DpoLoss::Robust);
        let rule = "must be 0 unless the loss is sigmoid or robust";
        let holds = smooths || self.label_smoothing == 0.0;
        require(TABLE, "label_smoothing", self.label_smoothing, holds, rule)
    }
}

impl OrpoConfig {
    pub(super) fn check(&self) -> Result<(), TrainError> {
        check_beta(self.beta)
    }
}

impl KtoConfig {
    pub(super) fn check(&self) -> Result<(), TrainError> {
        check_beta(self.beta)?;
        check_all(
            TABLE,
            &[
                (
                    "desirable_weight",
                    self.desirable_weight,
                    Range::NotNegative,
                ),
                (
                    "undesirable_weight",
                    self.undesirable_weight,
                    Range::NotNegative,
                ),
            ],
        )
    }
}

impl SimpoConfig {
    pub(super) fn check(&self) -> Result<(), TrainError> {
        check_beta(self.beta)?;
        check_all(
            TABLE,
            &[("simpo_gamma", self.simpo_gamma, Range::NotNegative)],
        )?;
        check_smoothing(self.label_smoothing)
    }
}

fn check_beta(beta: f64) -> Result<(), TrainError> {
    check_all(TABLE, &[("beta", beta, Range::Positive)])
}

fn check_smoothing(label_smoothing: f64) -> Result<(), TrainError> {
    let rule = "must be at least 0 and below 0.5";
    let holds = (0.0..0.5).contains(&label_smoothing);
    require(TABLE, "label_smoothing", label_smoothing, holds, rule)
}
