//! The recurrences.

use burn_flex::{Flex, FlexTensor};

use super::buffer::{all_filled, dense, dims, elements, filled, is_f32};
use crate::cpu::delta_rule::{self, DeltaRuleHeads};
use crate::cpu::short_convolution;
use crate::{
    ConvolutionGradients, ConvolutionInputs, DELTA_RULE_CHUNK, DeltaRuleGradients, DeltaRuleInputs,
    DeltaRuleOutputs, Recurrences, reference,
};

impl Recurrences for Flex {
    fn gated_delta_rule(
        heads: DeltaRuleHeads,
        inputs: DeltaRuleInputs<Self>,
    ) -> DeltaRuleOutputs<Self> {
        match is_f32(&[&inputs.qkv, &inputs.decay, &inputs.rate]) {
            true => gated_delta_rule(heads, inputs),
            false => reference::gated_delta_rule::<Self>(heads, inputs, DELTA_RULE_CHUNK),
        }
    }

    fn gated_delta_rule_backward(
        heads: DeltaRuleHeads,
        inputs: DeltaRuleInputs<Self>,
        grad: FlexTensor,
    ) -> DeltaRuleGradients<Self> {
        match is_f32(&[&inputs.qkv, &inputs.decay, &inputs.rate, &grad]) {
            true => gated_delta_rule_backward(heads, inputs, grad),
            false => {
                reference::gated_delta_rule_backward::<Self>(heads, inputs, grad, DELTA_RULE_CHUNK)
            }
        }
    }

    fn short_convolution(inputs: ConvolutionInputs<Self>) -> FlexTensor {
        match is_f32(&[&inputs.x, &inputs.weight]) {
            true => short_convolution(inputs),
            false => reference::short_convolution::<Self>(inputs),
        }
    }

    fn short_convolution_backward(
        inputs: ConvolutionInputs<Self>,
        grad: FlexTensor,
    ) -> ConvolutionGradients<Self> {
        match is_f32(&[&inputs.x, &inputs.weight, &grad]) {
            true => short_convolution_backward(inputs, grad),
            false => reference::short_convolution_backward::<Self>(inputs, grad),
        }
    }
}

fn dense_inputs(inputs: DeltaRuleInputs<Flex>) -> DeltaRuleInputs<Flex> {
    DeltaRuleInputs {
        qkv: dense(inputs.qkv),
        decay: dense(inputs.decay),
        rate: dense(inputs.rate),
        memory: inputs.memory.map(dense),
    }
}

fn slices(heads: DeltaRuleHeads, inputs: &DeltaRuleInputs<Flex>) -> delta_rule::Inputs<'_> {
    let sizes = dims(&inputs.qkv);
    delta_rule::Inputs {
        heads,
        tokens: [sizes[0], sizes[1]],
        qkv: elements(&inputs.qkv),
        decay: elements(&inputs.decay),
        rate: elements(&inputs.rate),
        memory: inputs.memory.as_ref().map(elements),
    }
}

pub(super) fn gated_delta_rule(
    heads: DeltaRuleHeads,
    inputs: DeltaRuleInputs<Flex>,
) -> DeltaRuleOutputs<Flex> {
    let inputs = dense_inputs(inputs);
    let inputs = slices(heads, &inputs);
    let [batch, seq] = inputs.tokens;
    let of_memory = [batch, heads.heads, heads.key_dim, heads.value_dim];
    let shapes = [[batch, seq, heads.values()].into(), of_memory.into()];
    let [output, memory] = all_filled(shapes, |[output, memory]| {
        delta_rule::gated_delta_rule(inputs, output, memory);
    });
    DeltaRuleOutputs { output, memory }
}

pub(super) fn gated_delta_rule_backward(
    heads: DeltaRuleHeads,
    inputs: DeltaRuleInputs<Flex>,
    grad: FlexTensor,
) -> DeltaRuleGradients<Flex> {
    let (inputs, grad) = (dense_inputs(inputs), dense(grad));
    let shapes = [&inputs.qkv, &inputs.decay, &inputs.rate].map(|of| of.layout().shape().clone());
    let inputs = slices(heads, &inputs);
    let of_memory = inputs.memory.map_or(0, <[f32]>::len);
    let [batch, _] = inputs.tokens;
    let [qkv, decay, rate] = shapes;
    let memory = match of_memory {
        0 => [0].into(),
        _ => [batch, heads.heads, heads.key_dim, heads.value_dim].into(),
    };
    let shapes = [qkv, decay, rate, memory];
    let [qkv, decay, rate, memory] = all_filled(shapes, |[qkv, decay, rate, memory]| {
        let gradients = delta_rule::Gradients {
            qkv,
            decay,
            rate,
            memory: (of_memory > 0).then_some(memory),
        };
        delta_rule::gated_delta_rule_backward(inputs, elements(&grad), gradients);
    });
    DeltaRuleGradients {
        qkv,
        decay,
        rate,
        memory: (of_memory > 0).then_some(memory),
    }
}

fn dense_convolution(inputs: ConvolutionInputs<Flex>) -> ConvolutionInputs<Flex> {
    ConvolutionInputs {
        x: dense(inputs.x),
        weight: dense(inputs.weight),
        past: inputs.past.map(dense),
    }
}

fn convolution(inputs: &ConvolutionInputs<Flex>) -> short_convolution::Inputs<'_> {
    let sizes = dims(&inputs.x);
    short_convolution::Inputs {
        sizes: [sizes[0], sizes[1], sizes[2]],
        x: elements(&inputs.x),
        weight: elements(&inputs.weight),
        past: inputs.past.as_ref().map(elements),
    }
}

pub(super) fn short_convolution(inputs: ConvolutionInputs<Flex>) -> FlexTensor {
    let inputs = dense_convolution(inputs);
    filled(dims(&inputs.x), |output| {
        short_convolution::short_convolution(convolution(&inputs), output);
    })
}

pub(super) fn short_convolution_backward(
    inputs: ConvolutionInputs<Flex>,
    grad: FlexTensor,
) -> ConvolutionGradients<Flex> {
    let (inputs, grad) = (dense_convolution(inputs), dense(grad));
    let shapes = [&inputs.x, &inputs.weight].map(|of| of.layout().shape().clone());
    let [x, weight] = all_filled(shapes, |gradients| {
        let inputs = convolution(&inputs);
        short_convolution::short_convolution_backward(inputs, elements(&grad), gradients);
    });
    ConvolutionGradients { x, weight }
}
