//! The closed choices of a run's configuration.

use serde::{Deserialize, Serialize};

/// What turns gradients into updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// AdamW (Loshchilov and Hutter 2019).
    AdamW,
    /// Muon (Jordan et al. 2024) for the blocks' matrices, AdamW for the rest.
    Muon,
    /// Lion (Chen et al. 2023).
    Lion,
}

/// How the rate goes from `learning_rate` to `min_learning_rate` after warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// It does not.
    Constant,
    /// By half a cosine.
    Cosine,
    /// By a straight line.
    Linear,
    /// As the inverse root of the step (Vaswani et al. 2017), never below the minimum.
    InverseSqrt,
    /// Constant, then a straight line over the last `cooldown_steps` (Hu et al. 2024).
    WarmupStableDecay,
}
