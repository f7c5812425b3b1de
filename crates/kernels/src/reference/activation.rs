//! Activations and their derivatives, written out: on most backends Burn's own GELU backward is the derivative of the
//! tanh form, which is 1e-3 off the error function's.

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
        Activation::GeluTanh => x.clone() * (tanh_argument(x).tanh() + 1.0) * 0.5,
        Activation::Silu => x.clone() * sigmoid(x),
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
        // with t = tanh(u): (1 + t)/2 + x/2 · (1 - t²) · u'
        Activation::GeluTanh => {
            let t = tanh_argument(x.clone()).tanh();
            let slope = (x.clone() * x.clone() * (3.0 * CUBIC) + 1.0) * (2.0 / PI).sqrt();
            (t.clone() + 1.0) * 0.5 + x * 0.5 * (-(t.clone() * t) + 1.0) * slope
        }
        // σ(x) (1 + x (1 - σ(x)))
        Activation::Silu => {
            let s = sigmoid(x.clone());
            s.clone() * (x * (-s + 1.0) + 1.0)
        }
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
