//! The `[train.optimizer]` table.

use serde::{Deserialize, Serialize};

use super::check::Range;
use super::kinds::kinds;
use super::settings::settings;

kinds! {
    /// The optimizer of a run with its settings.
    pub enum OptimizerConfig, OptimizerKind: "adamw, muon, normuon or soap (matrices; AdamW the rest), or lion." {
        /// AdamW (Loshchilov and Hutter 2019).
        "adamw" => AdamW(AdamWConfig),
        /// Muon (Jordan et al. 2024) for the blocks' matrices, AdamW for the rest.
        "muon" => Muon(MuonConfig),
        /// NorMuon (Li et al. 2025), Muon with normalized neurons, for the blocks' matrices, AdamW for the rest.
        "normuon" => NorMuon(NorMuonConfig),
        /// SOAP (Vyas et al. 2024), Adam in the eigenbases of Shampoo, for the blocks' matrices, AdamW for the rest.
        "soap" => Soap(SoapConfig),
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
        /// Weight decay only of elements that the update does not move away from 0.
        pub cautious_decay: bool = false;
    }

    /// Settings of Muon, and of AdamW for the parameters that are not matrices.
    pub struct MuonConfig in "train.optimizer" {
        /// Decay of the matrices' momentum.
        pub momentum: f64 = 0.95, Range::Share;
        /// Iteration that orthogonalizes the matrices: newton_schulz (Jordan's) or polar_express (Amsel et al. 2025).
        pub orthogonalization: Orthogonalization = Orthogonalization::NewtonSchulz;
        /// Decay of AdamW's first moment; a group can override it.
        pub beta1: f64 = 0.9, Range::Share;
        /// Decay of AdamW's second moment; a group can override it.
        pub beta2: f64 = 0.99, Range::Share;
        /// Term added to the root of AdamW's second moment.
        pub epsilon: f64 = 1e-8, Range::Positive;
        /// Decoupled weight decay; groups have a factor on it.
        pub weight_decay: f64 = 0.1, Range::NotNegative;
        /// Weight decay only of elements that the update does not move away from 0.
        pub cautious_decay: bool = false;
    }

    /// Settings of NorMuon, and of AdamW for the parameters that are not matrices.
    pub struct NorMuonConfig in "train.optimizer" {
        /// Decay of the matrices' momentum.
        pub momentum: f64 = 0.95, Range::Share;
        /// Decay of the second moment of each neuron of the matrices.
        pub neuron_beta: f64 = 0.95, Range::Share;
        /// Iteration that orthogonalizes the matrices: newton_schulz (Jordan's) or polar_express (Amsel et al. 2025).
        pub orthogonalization: Orthogonalization = Orthogonalization::NewtonSchulz;
        /// Decay of AdamW's first moment; a group can override it.
        pub beta1: f64 = 0.9, Range::Share;
        /// Decay of AdamW's second moment; a group can override it.
        pub beta2: f64 = 0.99, Range::Share;
        /// Term added to the root of AdamW's second moment.
        pub epsilon: f64 = 1e-8, Range::Positive;
        /// Decoupled weight decay; groups have a factor on it.
        pub weight_decay: f64 = 0.1, Range::NotNegative;
        /// Weight decay only of elements that the update does not move away from 0.
        pub cautious_decay: bool = false;
    }

    /// Settings of SOAP, and of AdamW for the parameters that are not matrices.
    pub struct SoapConfig in "train.optimizer" {
        /// Decay of the first moment; a group can override it.
        pub beta1: f64 = 0.95, Range::Share;
        /// Decay of the second moment, and of the means whose eigenbases rotate the matrices; a group can override it.
        pub beta2: f64 = 0.95, Range::Share;
        /// Term added to the root of the second moment.
        pub epsilon: f64 = 1e-8, Range::Positive;
        /// Updates between two changes of the eigenbases.
        pub precondition_frequency: usize = 10, 1..=usize::MAX;
        /// The largest dimension of a matrix that is rotated. The time of an eigenbasis grows with its cube.
        pub max_precond_dim: usize = 10_000, 1..=usize::MAX;
        /// Decoupled weight decay; groups have a factor on it.
        pub weight_decay: f64 = 0.1, Range::NotNegative;
        /// Weight decay only of elements that the update does not move away from 0.
        pub cautious_decay: bool = false;
    }

    /// Settings of Lion.
    pub struct LionConfig in "train.optimizer" {
        /// Decay of the momentum in the update's sign; a group can override it.
        pub beta1: f64 = 0.9, Range::Share;
        /// Decay of the momentum carried to the next update; a group can override it.
        pub beta2: f64 = 0.99, Range::Share;
        /// Decoupled weight decay; groups have a factor on it.
        pub weight_decay: f64 = 0.1, Range::NotNegative;
        /// Weight decay only of elements that the update does not move away from 0.
        pub cautious_decay: bool = false;
    }
}

emberlm_system::named! {
    /// The iteration that orthogonalizes the matrices of Muon and NorMuon.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Orthogonalization {
        /// Jordan's quintic Newton-Schulz iteration.
        NewtonSchulz = "newton_schulz",
        /// Polar Express (Amsel et al. 2025), whose polynomials differ between iterations.
        PolarExpress = "polar_express",
    }
}

/// Implements the AdamW of the parameters that are not matrices.
macro_rules! adamw_of_the_rest {
    ($($config:ident)+) => { $(
        impl From<&$config> for AdamWConfig {
            fn from(config: &$config) -> Self {
                Self {
                    beta1: config.beta1,
                    beta2: config.beta2,
                    epsilon: config.epsilon,
                    weight_decay: config.weight_decay,
                    cautious_decay: config.cautious_decay,
                }
            }
        }
    )+ };
}

adamw_of_the_rest! { MuonConfig NorMuonConfig SoapConfig }

impl OptimizerConfig {
    /// The decoupled weight decay.
    pub fn weight_decay_mut(&mut self) -> &mut f64 {
        match self {
            Self::AdamW(adamw) => &mut adamw.weight_decay,
            Self::Muon(muon) => &mut muon.weight_decay,
            Self::NorMuon(normuon) => &mut normuon.weight_decay,
            Self::Soap(soap) => &mut soap.weight_decay,
            Self::Lion(lion) => &mut lion.weight_decay,
        }
    }
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        OptimizerKind::AdamW.into()
    }
}
