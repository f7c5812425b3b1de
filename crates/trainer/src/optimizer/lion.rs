//! Lion (Chen et al. 2023, algorithm 2).

use burn::tensor::Tensor;
use emberlm_kernels::Backend;

use super::Moments;

/// Lion's settings for a parameter group.
#[derive(Clone, Copy)]
pub(super) struct LionStep {
    /// Factor on the step's learning rate.
    pub(super) rate_factor: f64,
    /// β₁, the decay of the interpolated mean whose sign is the update.
    pub(super) beta1: f64,
    /// β₂, the decay of the stored running mean.
    pub(super) beta2: f64,
    /// Decoupled weight decay.
    pub(super) decay: f64,
}

/// The parameter and its moment after an update:
///
/// ```text
/// p <- p · (1 - rate · decay) - rate · sign(β₁ · m + (1 - β₁) · g)
/// m <- β₂ · m + (1 - β₂) · g
/// ```
pub(super) fn update<B: Backend, const D: usize>(
    parameter: Tensor<B, D>,
    grad: Tensor<B, D>,
    moments: Option<Moments<B>>,
    rate: f64,
    step: LionStep,
) -> (Tensor<B, D>, Moments<B>) {
    let mean = Moments::mean_or_zeros(moments, &grad);
    let rate = rate * step.rate_factor;
    let blend = mean.clone() * step.beta1 + grad.clone() * (1.0 - step.beta1);
    let updated = parameter * (1.0 - rate * step.decay) - blend.sign() * rate;
    let mean = mean * step.beta2 + grad * (1.0 - step.beta2);
    (updated, Moments::one(mean))
}
