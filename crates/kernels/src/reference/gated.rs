//! Gated activations, and their gradients.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::activation::{linear_factor, linear_factor_backward};
use super::{activation, activation_backward};
use crate::{Activation, GatedGradients};

/// See [`crate::Backend::gated`].
pub fn gated<B: Backend>(
    kind: Activation,
    gate: FloatTensor<B>,
    up: FloatTensor<B>,
) -> FloatTensor<B> {
    B::float_mul(activation::<B>(kind, gate), linear_factor::<B>(kind, up))
}

/// See [`crate::Backend::gated_backward`].
pub fn gated_backward<B: Backend>(
    kind: Activation,
    gate: FloatTensor<B>,
    up: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> GatedGradients<B> {
    let gated_grad = B::float_mul(grad.clone(), linear_factor::<B>(kind, up.clone()));
    let factor_grad = B::float_mul(grad, activation::<B>(kind, gate.clone()));
    GatedGradients {
        up: linear_factor_backward::<B>(kind, up, factor_grad),
        gate: activation_backward::<B>(kind, gate, gated_grad),
    }
}
