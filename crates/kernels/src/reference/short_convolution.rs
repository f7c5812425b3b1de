//! Causal convolutions of a few taps along the tokens, separate for each channel.

use burn::tensor::Tensor;

use crate::BaseOps;

/// `y_t = Σ_j w_j x_{t - taps + 1 + j}`, of `x` `[batch, seq, channels]` with `weight` `[taps, channels]`. `past` are the
/// inputs `[batch, taps - 1, channels]` of the tokens before; without it they are 0. Returns the output in the shape of `x`,
/// and the inputs that the next tokens need.
pub fn short_convolution<B: BaseOps>(
    x: Tensor<B, 3>,
    weight: Tensor<B, 2>,
    past: Option<Tensor<B, 3>>,
) -> (Tensor<B, 3>, Tensor<B, 3>) {
    let [batch, seq, channels] = x.dims();
    let [taps, _] = weight.dims();
    let before = taps - 1;
    let past = past.unwrap_or_else(|| Tensor::zeros([batch, before, channels], &x.device()));
    let all = Tensor::cat(vec![past, x], 1); // [batch, taps - 1 + seq, channels]
    let term = |tap: usize| {
        let factors = weight.clone().narrow(0, tap, 1).reshape([1, 1, channels]);
        all.clone().narrow(1, tap, seq) * factors
    };
    let first = term(0);
    let output = (1..taps).fold(first, |sum, tap| sum + term(tap));
    (output, all.narrow(1, seq, before))
}
