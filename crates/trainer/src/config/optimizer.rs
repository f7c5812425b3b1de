//! The `[train.optimizer]` table.

use serde::{Deserialize, Serialize};

use super::check::Range;
use super::settings::{Settings, settings};
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

settings! {
    /// Settings of AdamW.
    pub struct AdamWConfig in "train.optimizer" {
        /// Decay of the first moment; a group can override it.
        pub beta1: f64 = 0.9, Range::Share;
        /// Decay of the second moment; a group can override it.
        pub beta2: f64 = 0.99, Range::Share;
        /// Term added to the root of the second moment.
        pub epsilon: f64 = 1e-8, Range::Positive;
        /// Decoupled weight decay; groups have a factor on it.
        pub weight_decay: f64 = 0.1, Range::NotNegative;
    }

    /// Settings of Muon, and of AdamW for the parameters that are not matrices.
    pub struct MuonConfig in "train.optimizer" {
        /// Decay of the matrices' momentum.
        pub momentum: f64 = 0.95, Range::Share;
        /// Decay of AdamW's first moment; a group can override it.
        pub beta1: f64 = 0.9, Range::Share;
        /// Decay of AdamW's second moment; a group can override it.
        pub beta2: f64 = 0.99, Range::Share;
        /// Term added to the root of AdamW's second moment.
        pub epsilon: f64 = 1e-8, Range::Positive;
        /// Decoupled weight decay; groups have a factor on it.
        pub weight_decay: f64 = 0.1, Range::NotNegative;
    }

    /// Settings of Lion.
    pub struct LionConfig in "train.optimizer" {
        /// Decay of the momentum in the update's sign; a group can override it.
        pub beta1: f64 = 0.9, Range::Share;
        /// Decay of the momentum carried to the next update; a group can override it.
        pub beta2: f64 = 0.99, Range::Share;
        /// Decoupled weight decay; groups have a factor on it.
        pub weight_decay: f64 = 0.1, Range::NotNegative;
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
        match self {
            Self::AdamW(config) => config.check_rules(),
            Self::Muon(config) => config.check_rules(),
            Self::Lion(config) => config.check_rules(),
        }
    }
}
