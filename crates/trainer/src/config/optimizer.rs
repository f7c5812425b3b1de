//! The `[train.optimizer]` table.

use documented::DocumentedFields;
use serde::{Deserialize, Serialize};

use super::check::{Range, check_all};
use crate::error::TrainError;

/// The available optimizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizerKind {
    /// AdamW (Loshchilov and Hutter 2019).
    AdamW,
    /// Muon (Jordan et al. 2024) for the blocks' matrices, AdamW for the rest.
    Muon,
    /// Lion (Chen et al. 2023).
    Lion,
}

/// The optimizer of a run with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum OptimizerConfig {
    /// AdamW (Loshchilov and Hutter 2019).
    AdamW(AdamWConfig),
    /// Muon (Jordan et al. 2024) for the blocks' matrices, AdamW for the rest.
    Muon(MuonConfig),
    /// Lion (Chen et al. 2023).
    Lion(LionConfig),
}

/// Settings of AdamW.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct AdamWConfig {
    /// Decay of the first moment; a group can override it.
    pub beta1: f64,
    /// Decay of the second moment; a group can override it.
    pub beta2: f64,
    /// Term added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay; groups have a factor on it.
    pub weight_decay: f64,
}

/// Settings of Muon, and of AdamW for the parameters that are not matrices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct MuonConfig {
    /// Decay of the matrices' momentum.
    pub momentum: f64,
    /// Decay of AdamW's first moment; a group can override it.
    pub beta1: f64,
    /// Decay of AdamW's second moment; a group can override it.
    pub beta2: f64,
    /// Term added to the root of AdamW's second moment.
    pub epsilon: f64,
    /// Decoupled weight decay; groups have a factor on it.
    pub weight_decay: f64,
}

/// Settings of Lion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct LionConfig {
    /// Decay of the momentum in the update's sign; a group can override it.
    pub beta1: f64,
    /// Decay of the momentum carried to the next update; a group can override it.
    pub beta2: f64,
    /// Decoupled weight decay; groups have a factor on it.
    pub weight_decay: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            weight_decay: 0.1,
        }
    }
}

impl Default for MuonConfig {
    fn default() -> Self {
        let AdamWConfig {
            beta1,
            beta2,
            epsilon,
            weight_decay,
        } = AdamWConfig::default();
        Self {
            momentum: 0.95,
            beta1,
            beta2,
            epsilon,
            weight_decay,
        }
    }
}

impl Default for LionConfig {
    fn default() -> Self {
        let AdamWConfig {
            beta1,
            beta2,
            weight_decay,
            ..
        } = AdamWConfig::default();
        Self {
            beta1,
            beta2,
            weight_decay,
        }
    }
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self::AdamW(AdamWConfig::default())
    }
}

/// The kind with default settings.
impl From<OptimizerKind> for OptimizerConfig {
    fn from(kind: OptimizerKind) -> Self {
        match kind {
            OptimizerKind::AdamW => Self::AdamW(AdamWConfig::default()),
            OptimizerKind::Muon => Self::Muon(MuonConfig::default()),
            OptimizerKind::Lion => Self::Lion(LionConfig::default()),
        }
    }
}

impl OptimizerConfig {
    /// The kind without its settings.
    pub fn kind(&self) -> OptimizerKind {
        match self {
            Self::AdamW(_) => OptimizerKind::AdamW,
            Self::Muon(_) => OptimizerKind::Muon,
            Self::Lion(_) => OptimizerKind::Lion,
        }
    }

    pub(super) fn check(&self) -> Result<(), TrainError> {
        let share = Range::Share;
        match *self {
            Self::AdamW(AdamWConfig {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            }) => check_all(
                "train.optimizer",
                &[
                    ("beta1", beta1, share),
                    ("beta2", beta2, share),
                    ("epsilon", epsilon, Range::Positive),
                    ("weight_decay", weight_decay, Range::NotNegative),
                ],
            ),
            Self::Muon(MuonConfig {
                momentum,
                beta1,
                beta2,
                epsilon,
                weight_decay,
            }) => check_all(
                "train.optimizer",
                &[
                    ("momentum", momentum, share),
                    ("beta1", beta1, share),
                    ("beta2", beta2, share),
                    ("epsilon", epsilon, Range::Positive),
                    ("weight_decay", weight_decay, Range::NotNegative),
                ],
            ),
            Self::Lion(LionConfig {
                beta1,
                beta2,
                weight_decay,
            }) => check_all(
                "train.optimizer",
                &[
                    ("beta1", beta1, share),
                    ("beta2", beta2, share),
                    ("weight_decay", weight_decay, Range::NotNegative),
                ],
            ),
        }
    }
}
