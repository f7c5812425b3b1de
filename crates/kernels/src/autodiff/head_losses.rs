//! The backward pass of the head with one loss for each token. The gradients of the losses are known only in the backward
//! pass, which computes the logits again, block by block.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::FloatTensor;

use super::head_loss::inner;
use crate::{Backend, HeadLossInputs};

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

/// The losses as functions of the hidden states and of a weight in a single part.
pub(super) fn single_part<B: Backend, C: CheckpointStrategy>(
    weight: FloatTensor<Autodiff<B, C>>,
    inputs: HeadLossInputs<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let parents = [inputs.hidden.node.clone(), weight.node];
    let inputs = inner(inputs);
    let losses = B::head_losses(inputs.clone());
    match HeadLossesBackward
        .prepare::<C>(parents)
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => prep.finish(inputs, losses),
        OpsKind::UnTracked(prep) => prep.finish(losses),
    }
}
