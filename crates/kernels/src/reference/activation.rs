//! Activations and their derivatives. The derivatives are explicit because on most backends Burn's GELU backward
//! pass is the derivative of the tanh approximation, which differs from that of the exact function by 1e-3.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use burn::tensor::Tensor;
use burn::tensor::activation::{relu, sigmoid};
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::{flat, unflat};
use crate::Activation;

/// GPT-2's cubic coefficient.
const CUBIC: f64 = 0.044715;

/// See [`crate::Backend::activation`].
pub fn activation<B: Backend>(kind: Activation, x: FloatTensor<B>) -> FloatTensor<B> {
    let (x, shape) = flat::<B>(x);
    unflat(forward(kind, x), shape)
}

fn forward<B: Backend>(kind: Activation, x: Tensor<B, 1>) -> Tensor<B, 1> {
    match kind {
        Activation::Relu => relu(x),
        Activation::ReluSquared => {
            let y = relu(x);
            y.clone() * y
        }
        Activation::Gelu => x.clone() * normal_cdf(x),
        // (1 + tanh(u))/2 = σ(2u), which does not cancel for negative u.
        Activation::GeluTanh => x.clone() * sigmoid(tanh_argument(x) * 2.0),
        Activation::Silu => x.clone() * sigmoid(x),
        Activation::ClampedSilu => {
            let y = x.clamp_max(Activation::CLAMP);
            y.clone() * sigmoid(y * Activation::STEEPNESS)
        }
    }
}

/// See [`crate::Backend::activation_backward`].
pub fn activation_backward<B: Backend>(
    kind: Activation,
    x: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let (x, shape) = flat::<B>(x);
    let (grad, _) = flat::<B>(grad);
    unflat(grad * derivative(kind, x), shape)
}

fn derivative<B: Backend>(kind: Activation, x: Tensor<B, 1>) -> Tensor<B, 1> {
    match kind {
        Activation::Relu => x.greater_elem(0.0).float(),
        Activation::ReluSquared => relu(x) * 2.0,
        // Φ(x) + x φ(x)
        Activation::Gelu => {
            let density = (x.clone() * x.clone() * -0.5).exp() / (2.0 * PI).sqrt();
            normal_cdf(x.clone()) + x * density
        }
        // σ(2u) + x · σ(2u) σ(-2u) · 2u'
        Activation::GeluTanh => {
            let argument = tanh_argument(x.clone()) * 2.0;
            let slope = (x.clone() * x.clone() * (3.0 * CUBIC) + 1.0) * (8.0 / PI).sqrt();
            sigmoid(argument.clone()) * (x * sigmoid(-argument) * slope + 1.0)
        }
        // σ(x) (1 + x σ(-x)): σ(-x) instead of 1 - σ(x), which cancels
        Activation::Silu => sigmoid(x.clone()) * (x.clone() * sigmoid(-x) + 1.0),
        Activation::ClampedSilu => {
            let inside = x.clone().lower_elem(Activation::CLAMP).float();
            let y = x.clamp_max(Activation::CLAMP) * Activation::STEEPNESS;
            inside * sigmoid(y.clone()) * (y.clone() * sigmoid(-y) + 1.0)
        }
    }
}

/// The factor of a gated layer that has no activation function, from its projection `up`.
pub(super) fn linear_factor<B: Backend>(kind: Activation, up: FloatTensor<B>) -> FloatTensor<B> {
    match kind {
        Activation::ClampedSilu => {
            let (up, shape) = flat::<B>(up);
            let bounded = up.clamp(-Activation::CLAMP, Activation::CLAMP);
            unflat(bounded + 1.0, shape)
        }
        _ => up,
    }
}

/// The gradient of `up` from that of [`linear_factor`].
pub(super) fn linear_factor_backward<B: Backend>(
    kind: Activation,
    up: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    match kind {
        Activation::ClampedSilu => {
            let (up, shape) = flat::<B>(up);
            let (grad, _) = flat::<B>(grad);
            let inside = up.abs().lower_elem(Activation::CLAMP).float();
            unflat(grad * inside, shape)
        }
        _ => grad,
    }
}

/// `Φ(x) = (1 + erf(x/√2)) / 2`.
fn normal_cdf<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    ((x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5
}

/// `u = √(2/π) (x + 0.044715 x³)`.
fn tanh_argument<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    let squared = x.clone() * x.clone();
    x * (squared * CUBIC + 1.0) * (2.0 / PI).sqrt()
}
