//! The backward pass of the head with one loss for each token. The gradients of the losses are known only in the backward
//! pass, which computes the logits again, block by block.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::{FloatTensor, IntTensor};

use crate::{Backend, HeadLossInputs, HeadLossOptions, Precision};

#[derive(Debug)]
struct HeadLossesBackward;

impl<B: Backend> Backward<B, 2> for HeadLossesBackward {
    /// The inputs, with the weight in a single part.
    type State = HeadLossInputs<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node); // [tokens]
        let [hidden, weight] = ops.parents;
        let made = B::head_losses_backward(ops.state, grad, weight.is_some());
        if let Some(node) = hidden {
            grads.register::<B>(node.id, made.hidden);
        }
        if let Some((node, weight_grad)) = weight.zip(made.weights.into_iter().next()) {
            grads.register::<B>(node.id, weight_grad);
        }
    }
}

pub(super) fn single_part<B: Backend, C: CheckpointStrategy>(
    hidden: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
    targets: IntTensor<B>,
    options: HeadLossOptions,
    precision: Precision,
) -> FloatTensor<Autodiff<B, C>> {
    let inputs = HeadLossInputs {
        hidden: hidden.primitive,
        weights: vec![weight.primitive],
        targets,
        options,
        precision,
    };
    let losses = {
        let inputs = inputs.clone();
        let (hidden, weights, targets) = (inputs.hidden, inputs.weights, inputs.targets);
        B::head_losses(hidden, weights, targets, options, precision)
    };
    match HeadLossesBackward
        .prepare::<C>([hidden.node, weight.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => prep.finish(inputs, losses),
        OpsKind::UnTracked(prep) => prep.finish(losses),
    }
}
