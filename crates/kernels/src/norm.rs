//! The normalization variants.

use serde::{Deserialize, Serialize};

/// A normalization over the last dimension, of width `n`, before any gain or bias.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Normalization {
    /// `(x - mean(x)) / √(var(x) + ε)` with the biased variance, divided by `n` (Ba et al. 2016).
    Layer {
        /// ε, inside the square root.
        epsilon: f64,
    },
    /// `x / √(mean(x²) + ε)` (Zhang and Sennrich 2019).
    Rms {
        /// ε, inside the square root.
        epsilon: f64,
    },
    /// `x / (√mean(x²) + ε)`: RMS normalization with ε outside the square root.
    UnitRms {
        /// ε, added to the square root.
        epsilon: f64,
    },
}
