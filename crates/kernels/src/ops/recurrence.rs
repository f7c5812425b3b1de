//! Recurrences along the tokens, on typed tensors.

use burn::tensor::Tensor;

use super::{float, tensor};
use crate::{
    Backend, ConvolutionInputs, DeltaRuleHeads, DeltaRuleInputs, DeltaRuleOutputs, reference,
};

/// [`crate::Recurrences::gated_delta_rule`] of `qkv` `[batch, seq, channels]` with `[decay, rate]`, each
/// `[batch, seq, heads]`. The tokens continue the memory `past`, `[batch, heads, key_dim, value_dim]`, which is zero at the
/// start. Returns the outputs `[batch, seq, heads · value_dim]` and the memory after these tokens, which has no gradient.
pub fn gated_delta_rule<B: Backend>(
    heads: DeltaRuleHeads,
    qkv: Tensor<B, 3>,
    [decay, rate]: [Tensor<B, 3>; 2],
    past: Option<Tensor<B, 4>>,
) -> (Tensor<B, 3>, Tensor<B, 4>) {
    let inputs = DeltaRuleInputs {
        qkv: float(qkv),
        decay: float(decay),
        rate: float(rate),
        memory: past.map(float),
    };
    let DeltaRuleOutputs { output, memory } = B::gated_delta_rule(heads, inputs);
    (tensor(output), tensor(memory))
}

/// `log(1 + e^x)`; see [`reference::softplus`].
pub fn softplus<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    reference::softplus(x)
}

/// [`crate::Recurrences::short_convolution`]. `x` is `[batch, seq, channels]`, `weight` is `[taps, channels]` with at least
/// two taps, `past` has the inputs `[batch, taps - 1, channels]` before, which are 0 at the start. Returns the output in the
/// shape of `x`, and the inputs that the next tokens need.
pub fn short_convolution<B: Backend>(
    x: Tensor<B, 3>,
    weight: Tensor<B, 2>,
    past: Option<Tensor<B, 3>>,
) -> (Tensor<B, 3>, Tensor<B, 3>) {
    let [batch, seq, channels] = x.dims();
    let needed = weight.dims()[0] - 1;
    let next = match seq < needed {
        true => {
            let zero = || Tensor::zeros([batch, needed, channels], &x.device());
            let before = past.clone().unwrap_or_else(zero);
            let kept = before.narrow(1, seq, needed - seq);
            Tensor::cat(vec![kept, x.clone()], 1)
        }
        false => x.clone().narrow(1, seq - needed, needed),
    };
    let inputs = ConvolutionInputs {
        x: float(x),
        weight: float(weight),
        past: past.map(float),
    };
    (tensor(B::short_convolution(inputs)), next)
}
