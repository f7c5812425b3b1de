//! The backward pass of the head. The forward pass computes the gradients together with the loss, so the logits
//! are computed once and only exist in blocks. The backward pass multiplies these gradients by the scalar
//! gradient of the loss.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::FloatTensor;

use crate::{Backend, HeadLossInputs};

#[derive(Debug)]
struct HeadLossBackward;

impl<B: Backend> Backward<B, 2> for HeadLossBackward {
    /// The gradients of the hidden states and of the weight, which is in a single part.
    type State = (FloatTensor<B>, Vec<FloatTensor<B>>);

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node); // [1]
        let (hidden_grad, weight_grads) = ops.state;
        let [hidden, weight] = ops.parents;
        if let Some(node) = hidden {
            grads.register::<B>(node.id, B::scaled(hidden_grad, grad.clone()));
        }
        if let Some((node, weight_grad)) = weight.zip(weight_grads.into_iter().next()) {
            grads.register::<B>(node.id, B::scaled(weight_grad, grad));
        }
    }
}

/// The inputs without their nodes.
pub(super) fn inner<B: Backend, C: CheckpointStrategy>(
    inputs: HeadLossInputs<Autodiff<B, C>>,
) -> HeadLossInputs<B> {
    HeadLossInputs {
        hidden: inputs.hidden.primitive,
        weights: inputs.weights.into_iter().map(|x| x.primitive).collect(),
        targets: inputs.targets,
        options: inputs.options,
        precision: inputs.precision,
    }
}

/// The loss as a function of the hidden states and of a weight in a single part.
pub(super) fn single_part<B: Backend, C: CheckpointStrategy>(
    weight: FloatTensor<Autodiff<B, C>>,
    inputs: HeadLossInputs<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let trains_weight = weight.is_tracked();
    let parents = [inputs.hidden.node.clone(), weight.node];
    let inputs = inner(inputs);
    match HeadLossBackward
        .prepare::<C>(parents)
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) if trains_weight => {
            let gradients = B::head_loss_gradients(inputs);
            prep.finish((gradients.hidden, gradients.weights), gradients.loss)
        }
        OpsKind::Tracked(prep) => {
            let (loss, hidden) = B::head_loss_hidden_gradient(inputs);
            prep.finish((hidden, Vec::new()), loss)
        }
        OpsKind::UnTracked(prep) => prep.finish(B::head_loss(inputs)),
    }
}
