//! Operations along the tokens whose state does not grow with their number.

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;

use crate::{
    BaseOps, ConvolutionGradients, ConvolutionInputs, DELTA_RULE_CHUNK, DeltaRuleGradients,
    DeltaRuleHeads, DeltaRuleInputs, DeltaRuleOutputs, reference,
};

/// A backend's recurrences.
pub trait Recurrences: BurnBackend {
    /// The gated delta rule; see [`reference::gated_delta_rule`].
    fn gated_delta_rule(
        heads: DeltaRuleHeads,
        inputs: DeltaRuleInputs<Self>,
    ) -> DeltaRuleOutputs<Self>
    where
        Self: BaseOps,
    {
        reference::gated_delta_rule::<Self>(heads, inputs, DELTA_RULE_CHUNK)
    }

    /// The gradients of [`Recurrences::gated_delta_rule`] from its inputs and the gradient of its output.
    fn gated_delta_rule_backward(
        heads: DeltaRuleHeads,
        inputs: DeltaRuleInputs<Self>,
        grad: FloatTensor<Self>,
    ) -> DeltaRuleGradients<Self>
    where
        Self: BaseOps,
    {
        reference::gated_delta_rule_backward::<Self>(heads, inputs, grad, DELTA_RULE_CHUNK)
    }

    /// A causal convolution of each channel, in the shape of its input; see [`reference::short_convolution`].
    fn short_convolution(inputs: ConvolutionInputs<Self>) -> FloatTensor<Self> {
        reference::short_convolution::<Self>(inputs)
    }

    /// The gradients of [`Recurrences::short_convolution`] from its inputs and the gradient of its output.
    fn short_convolution_backward(
        inputs: ConvolutionInputs<Self>,
        grad: FloatTensor<Self>,
    ) -> ConvolutionGradients<Self> {
        reference::short_convolution_backward::<Self>(inputs, grad)
    }
}
