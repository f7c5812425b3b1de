//! The `[train.optimizer]` table.

use super::check::Range;
use super::kinds::kinds;
use super::settings::settings;

kinds! {
    /// The optimizer of a run with its settings.
    pub enum OptimizerConfig, OptimizerKind: "adamw, muon (matrices; AdamW the rest) or lion." {
        /// AdamW (Loshchilov and Hutter 2019).
        "adamw" => AdamW(AdamWConfig),
        /// Muon (Jordan et al. 2024) for the blocks' matrices, AdamW for the rest.
        "muon" => Muon(MuonConfig),
        /// Lion (Chen et al. 2023).
        "lion" => Lion(LionConfig),
    }
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
        OptimizerKind::AdamW.into()
    }
}
