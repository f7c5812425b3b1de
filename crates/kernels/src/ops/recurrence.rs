//! Recurrences along the tokens, on typed tensors. They are composed of plain operations that Burn differentiates, on every
//! backend.

use burn::tensor::Tensor;

use crate::{Backend, DELTA_RULE_CHUNK, DeltaRuleInputs, reference};

/// The gated delta rule; see [`reference::gated_delta_rule`]. The tokens continue the memory `past`,
/// `[batch, heads, key_dim, value_dim]`, which is zero at the start. Returns the outputs `[batch, heads, seq, value_dim]` and
/// the memory after these tokens.
pub fn gated_delta_rule<B: Backend>(
    inputs: DeltaRuleInputs<B>,
    past: Option<Tensor<B, 4>>,
) -> (Tensor<B, 4>, Tensor<B, 4>) {
    reference::gated_delta_rule(inputs, past, DELTA_RULE_CHUNK)
}

/// `log(1 + e^x)`; see [`reference::softplus`].
pub fn softplus<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    reference::softplus(x)
}

/// A causal convolution of each channel; see [`reference::short_convolution`]. `x` is `[batch, seq, channels]`, `weight` is
/// `[taps, channels]` with at least two taps, `past` has the inputs `[batch, taps - 1, channels]` before. Returns the output
/// in the shape of `x`, and the inputs that the next tokens need.
pub fn short_convolution<B: Backend>(
    x: Tensor<B, 3>,
    weight: Tensor<B, 2>,
    past: Option<Tensor<B, 3>>,
) -> (Tensor<B, 3>, Tensor<B, 3>) {
    reference::short_convolution(x, weight, past)
}
