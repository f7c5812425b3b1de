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

/// Two sets of columns of a matrix that are normalized: the groups of the first set begin with the first column, those of the
/// second follow them. Later columns are not normalized. In the rows of queries, keys and values, a group is a head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnNorms {
    /// The normalization of each group.
    pub kind: Normalization,
    /// The groups of each set.
    pub sets: [ColumnGroups; 2],
}

/// Groups of columns, side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnGroups {
    /// The number of groups.
    pub count: usize,
    /// Columns of a group.
    pub width: usize,
}

impl ColumnGroups {
    /// The columns of all groups.
    pub const fn columns(self) -> usize {
        self.count * self.width
    }
}
