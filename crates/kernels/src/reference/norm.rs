//! Normalization over the last dimension and its gradient.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::linear::summed;
use super::{primitive, rows, typed};
use crate::{NormGradients, Normalization};

/// See [`crate::Backend::normalize`].
pub fn normalize<B: Backend>(
    kind: Normalization,
    x: FloatTensor<B>,
    gain: Option<FloatTensor<B>>,
    bias: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    let (x, shape) = rows::<B>(x); // [tokens, d]
    let mut y = normalized(kind, x);
    if let Some(gain) = gain {
        y = y * typed::<B, 1>(gain).unsqueeze::<2>();
    }
    if let Some(bias) = bias {
        y = y + typed::<B, 1>(bias).unsqueeze::<2>();
    }
    B::float_reshape(primitive(y), shape)
}

/// Normalizes rows `[tokens, d]`, without gain and bias.
fn normalized<B: Backend>(kind: Normalization, x: Tensor<B, 2>) -> Tensor<B, 2> {
    match kind {
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
    }
}

/// See [`crate::Backend::normalize_backward`].
///
/// With the normalized `y`, the divisor `d` and `g` the gradient of the output times the gain:
/// `dx = (g - y · mean(g y) · s) / d`, minus its mean for a layer norm. `s` is 1 if ε is inside the square root.
/// Otherwise it is `d / (d - ε)`, because only the root depends on `x`.
pub fn normalize_backward<B: Backend>(
    kind: Normalization,
    x: FloatTensor<B>,
    gain: Option<FloatTensor<B>>,
    bias: bool,
    grad: FloatTensor<B>,
    added: Option<FloatTensor<B>>,
) -> NormGradients<B> {
    let (x, shape) = rows::<B>(x); // [tokens, d]
    let (grad, _) = rows::<B>(grad);
    let bias = bias.then(|| primitive(summed(grad.clone())));
    let gain_grad = gain
        .is_some()
        .then(|| primitive(summed(grad.clone() * normalized(kind, x.clone()))));
    let grad = match gain {
        Some(gain) => grad * typed::<B, 1>(gain).unsqueeze::<2>(),
        None => grad,
    };
    let x_grad = input_gradient(kind, x, grad);
    let x_grad = match added {
        Some(added) => rows::<B>(added).0 + x_grad,
        None => x_grad,
    };
    NormGradients {
        x: B::float_reshape(primitive(x_grad), shape),
        gain: gain_grad,
        bias,
    }
}

/// `dx` from `x` and `g`, `[tokens, d]` each.
fn input_gradient<B: Backend>(
    kind: Normalization,
    x: Tensor<B, 2>,
    grad: Tensor<B, 2>,
) -> Tensor<B, 2> {
    match kind {
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
            // The root has no gradient for a row of zeros; the clamp makes it zero instead of infinite.
            let root = mean_square(x.clone()).sqrt().clamp_min(1e-30);
            let divisor = root.clone() + epsilon;
            let y = x / divisor.clone();
            let along = (grad.clone() * y.clone()).mean_dim(1) * (divisor.clone() / root);
            (grad - y * along) / divisor
        }
    }
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
