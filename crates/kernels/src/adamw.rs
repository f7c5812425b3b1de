//! The numbers of an AdamW update.

/// One AdamW update's numbers (Loshchilov and Hutter 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWStep {
    /// The rate of this step.
    pub rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// ε, added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay: the parameter shrinks by `rate · decay` first.
    pub decay: f64,
    /// Which update this is, from 1, for the moments' bias corrections.
    pub step: u64,
}
