//! Causal convolutions of a few taps along the tokens, separate for each channel.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::{primitive, typed};
use crate::{ConvolutionGradients, ConvolutionInputs};

/// `y_t = Σ_j w_j x_{t - taps + 1 + j}` of `x` `[batch, seq, channels]` with `w` `[taps, channels]`.
pub fn short_convolution<B: Backend>(inputs: ConvolutionInputs<B>) -> FloatTensor<B> {
    let (all, weight) = with_past(inputs);
    let [taps, _] = weight.dims();
    let seq = all.dims()[1] + 1 - taps;
    let term = |tap: usize| all.clone().narrow(1, tap, seq) * factors(&weight, tap);
    let first = term(0);
    primitive((1..taps).fold(first, |sum, tap| sum + term(tap)))
}

/// The gradients of `x` and `w` from that of the output: `ẋ_t = Σ_j w_j ẏ_{t + taps - 1 - j}` and
/// `ẇ_j = Σ_t ẏ_t x_{t - taps + 1 + j}`.
pub fn short_convolution_backward<B: Backend>(
    inputs: ConvolutionInputs<B>,
    grad: FloatTensor<B>,
) -> ConvolutionGradients<B> {
    let (all, weight) = with_past(inputs);
    let [taps, channels] = weight.dims();
    let grad = typed::<B, 3>(grad);
    let [batch, seq, _] = grad.dims();
    let of_tap = |tap: usize| {
        (grad.clone() * all.clone().narrow(1, tap, seq))
            .sum_dim(1)
            .sum_dim(0)
    };
    let of_weight = Tensor::cat((0..taps).map(of_tap).collect(), 1); // [1, taps, channels]
    let after = Tensor::zeros([batch, taps - 1, channels], &grad.device());
    let later = Tensor::cat(vec![grad.clone(), after], 1);
    let term = |tap: usize| later.clone().narrow(1, taps - 1 - tap, seq) * factors(&weight, tap);
    let first = term(0);
    let of_x = (1..taps).fold(first, |sum, tap| sum + term(tap));
    ConvolutionGradients {
        x: primitive(of_x),
        weight: primitive(of_weight.reshape([taps, channels])),
    }
}

/// The factors of a tap, `[1, 1, channels]`.
fn factors<B: Backend>(weight: &Tensor<B, 2>, tap: usize) -> Tensor<B, 3> {
    weight.clone().narrow(0, tap, 1).unsqueeze()
}

/// The inputs with those before them, `[batch, taps - 1 + seq, channels]`, and the weight.
fn with_past<B: Backend>(inputs: ConvolutionInputs<B>) -> (Tensor<B, 3>, Tensor<B, 2>) {
    let (x, weight) = (typed::<B, 3>(inputs.x), typed::<B, 2>(inputs.weight));
    let [batch, _, channels] = x.dims();
    let before = weight.dims()[0] - 1;
    let zero = || Tensor::zeros([batch, before, channels], &x.device());
    let past = inputs.past.map_or_else(zero, typed);
    (Tensor::cat(vec![past, x], 1), weight)
}
