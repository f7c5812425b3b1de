//! The size of a model relative to a smaller one.

/// The size of a model over that of a base model, whose initial weights and learning rates its own follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeRatio {
    /// Ratio of `d_model`.
    pub width: f64,
    /// Ratio of `n_layers`.
    pub depth: f64,
}

impl SizeRatio {
    /// The ratio of models of the same size.
    pub const ONE: Self = Self {
        width: 1.0,
        depth: 1.0,
    };
}
