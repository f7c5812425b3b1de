//! The backward passes of the recurrences, from their inputs.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;

use crate::{Backend, ConvolutionInputs, DeltaRuleHeads, DeltaRuleInputs, DeltaRuleOutputs};

#[derive(Debug)]
struct DeltaRuleBackward;

/// The parents are queries, keys and values, the decays, the rates, and the memory if present.
impl<B: Backend, const N: usize> Backward<B, N> for DeltaRuleBackward {
    type State = (DeltaRuleHeads, DeltaRuleInputs<B>);

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        let (heads, inputs) = ops.state;
        let gradients = B::gated_delta_rule_backward(heads, inputs, grad);
        let made = [gradients.qkv, gradients.decay, gradients.rate];
        register!(
            grads,
            B,
            ops.parents,
            made.into_iter().chain(gradients.memory)
        );
    }
}

pub(super) fn gated_delta_rule<B: Backend, C: CheckpointStrategy>(
    heads: DeltaRuleHeads,
    inputs: DeltaRuleInputs<Autodiff<B, C>>,
) -> DeltaRuleOutputs<Autodiff<B, C>> {
    let DeltaRuleInputs {
        qkv,
        decay,
        rate,
        memory,
    } = inputs;
    let nodes = (qkv.node, decay.node, rate.node);
    let past = memory.as_ref().map(|memory| memory.node.clone());
    let inputs = DeltaRuleInputs::<B> {
        qkv: qkv.primitive,
        decay: decay.primitive,
        rate: rate.primitive,
        memory: memory.map(|memory| memory.primitive),
    };
    let kept = (heads, inputs.clone());
    let DeltaRuleOutputs { output, memory } = B::gated_delta_rule(heads, inputs);
    let output = match past {
        Some(past) => with_parents!(
            DeltaRuleBackward,
            C,
            [nodes.0, nodes.1, nodes.2, past],
            kept,
            output
        ),
        None => with_parents!(
            DeltaRuleBackward,
            C,
            [nodes.0, nodes.1, nodes.2],
            kept,
            output
        ),
    };
    DeltaRuleOutputs {
        output,
        memory: <Autodiff<B, C> as AutodiffBackend>::from_inner(memory),
    }
}

#[derive(Debug)]
struct ConvolutionBackward;

/// The parents are the input and the weight.
impl<B: Backend> Backward<B, 2> for ConvolutionBackward {
    type State = ConvolutionInputs<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        let gradients = B::short_convolution_backward(ops.state, grad);
        let made = [gradients.x, gradients.weight];
        register!(grads, B, ops.parents, made);
    }
}

pub(super) fn short_convolution<B: Backend, C: CheckpointStrategy>(
    inputs: ConvolutionInputs<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let ConvolutionInputs { x, weight, past } = inputs;
    let nodes = (x.node, weight.node);
    let inputs = ConvolutionInputs::<B> {
        x: x.primitive,
        weight: weight.primitive,
        past: past.map(|past| past.primitive),
    };
    let output = B::short_convolution(inputs.clone());
    with_parents!(ConvolutionBackward, C, [nodes.0, nodes.1], inputs, output)
}
