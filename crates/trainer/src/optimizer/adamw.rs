//! AdamW (Loshchilov and Hutter 2019); [`emberlm_kernels::Backend::adamw`] has its equations.

use burn::tensor::Tensor;
use emberlm_kernels::{AdamWStep, Backend, ops};

use super::{Moments, typed};

/// The parameter and its moments after an update by the gradient times `factor`.
pub(super) fn update<B: Backend, const D: usize>(
    parameter: Tensor<B, D>,
    grad: Tensor<B, D>,
    moments: Option<Moments<B>>,
    factor: Option<Tensor<B, 1>>,
    step: AdamWStep,
) -> (Tensor<B, D>, Moments<B>) {
    let moments = match moments {
        Some(Moments::Two { first, second }) => (typed(first), typed(second)),
        Some(Moments::One(_)) | None => (grad.zeros_like(), grad.zeros_like()),
    };
    let (updated, (first, second)) = ops::adamw(parameter, grad, moments, factor, step);
    (updated, Moments::two(first, second))
}
