//! The hyperparameters of an AdamW update, and the chunks of the sums of squares for gradient clipping.

/// The hyperparameters of one AdamW update (Loshchilov and Hutter 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWStep {
    /// The learning rate of this step.
    pub rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// ε, added to the square root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay: the parameter is first multiplied by `1 - rate · decay`.
    pub decay: f64,
    /// Decays only elements that the update does not move away from 0 (Chen et al. 2025, cautious weight decay).
    pub cautious: bool,
    /// The 1-based number of this update, for the bias corrections of the moments.
    pub step: u64,
}

/// The number of consecutive elements whose squares [`crate::Backend::chunk_sums_of_squares`] adds up.
pub const SQUARES_CHUNK: usize = 4096;
