//! The divisors of normalizations.

use serde::{Deserialize, Serialize};

/// A normalisation over the last dimension, of width `n`, before any gain or bias.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Normalization {
    /// `(x - mean(x)) / √(var(x) + ε)`, the variance over `n` (Ba et al. 2016).
    Layer {
        /// ε, inside the root.
        epsilon: f64,
    },
    /// `x / √(mean(x²) + ε)` (Zhang and Sennrich 2019).
    Rms {
        /// ε, inside the root.
        epsilon: f64,
    },
    /// `x / (√mean(x²) + ε)`: the same with ε outside of the root.
    UnitRms {
        /// ε, added to the root.
        epsilon: f64,
    },
}
