//! The softplus.

use burn::tensor::{Tensor, activation};

use crate::BaseOps;

/// `log(1 + e^x) = max(x, 0) + log(1 + e^{-|x|})`, with the derivative `σ(x)`.
///
/// Burn's derivative of a logarithm takes a reciprocal, which on ndarray is an estimate. The value is therefore a constant for
/// the gradient, which comes from a term that is 0.
pub fn softplus<B: BaseOps, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    let constant = x.clone().detach();
    let value = constant.clone().clamp_min(0.0) + constant.clone().abs().neg().exp().log1p();
    let slope = activation::sigmoid(constant.clone());
    value + slope * (x - constant)
}
