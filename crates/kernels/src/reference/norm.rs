//! Normalisation over the last dimension, and its gradient.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::{primitive, typed};
use crate::Normalization;

/// See [`crate::Backend::normalize`].
pub fn normalize<B: Backend>(kind: Normalization, x: FloatTensor<B>) -> FloatTensor<B> {
    let x = typed::<B, 2>(x); // [tokens, d]
    primitive(match kind {
        Normalization::Layer { epsilon } => {
            let centred = centre(x);
            let deviation = (mean_square(centred.clone()) + epsilon).sqrt();
            centred / deviation
        }
        Normalization::Rms { epsilon } => {
            let root = (mean_square(x.clone()) + epsilon).sqrt();
            x / root
        }
        Normalization::UnitRms { epsilon } => {
            let root = mean_square(x.clone()).sqrt() + epsilon;
            x / root
        }
    })
}

/// See [`crate::Backend::normalize_backward`].
///
/// With `y` the output and `d` the divisor: `dx = (g - y · mean(g y) · s) / d`, less its mean for a layer norm, where
/// `s` is 1 but for ε outside of the root: there `d / (d - ε)`, because the root alone depends on `x`.
pub fn normalize_backward<B: Backend>(
    kind: Normalization,
    x: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let x = typed::<B, 2>(x); // [tokens, d]
    let grad = typed::<B, 2>(grad);
    primitive(match kind {
        Normalization::Layer { epsilon } => {
            let centred = centre(x);
            let deviation = (mean_square(centred.clone()) + epsilon).sqrt();
            let y = centred / deviation.clone();
            centre(without_component(grad, y)) / deviation
        }
        Normalization::Rms { epsilon } => {
            let root = (mean_square(x.clone()) + epsilon).sqrt();
            let y = x / root.clone();
            without_component(grad, y) / root
        }
        Normalization::UnitRms { epsilon } => {
            // A row of zeros has no gradient of its root; the clamp makes it zero instead of infinite.
            let root = mean_square(x.clone()).sqrt().clamp_min(1e-30);
            let divisor = root.clone() + epsilon;
            let y = x / divisor.clone();
            let along = (grad.clone() * y.clone()).mean_dim(1) * (divisor.clone() / root);
            (grad - y * along) / divisor
        }
    })
}

fn centre<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let mean = x.clone().mean_dim(1); // [tokens, 1]
    x - mean
}

fn mean_square<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    (x.clone() * x).mean_dim(1) // [tokens, 1]
}

/// `g - y · mean(g y)`.
fn without_component<B: Backend>(grad: Tensor<B, 2>, y: Tensor<B, 2>) -> Tensor<B, 2> {
    let along = (grad.clone() * y.clone()).mean_dim(1);
    grad - y * along
}
