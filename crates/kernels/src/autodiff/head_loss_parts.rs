//! The backward pass of a head whose weight is split into parts. As for a single weight, the forward pass
//! computes the gradients together with the loss.
//!
//! A Burn node has a fixed number of parents, but the number of parts depends on the device. Each parent
//! therefore gets its own node, whose backward pass multiplies the saved gradient by that of the loss. One node
//! carries the loss and the others carry 0; their sum is the loss.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::{FloatTensor, FloatTensorOps};
use burn::tensor::{FloatDType, Shape};

use super::head_loss::inner;
use crate::{Backend, HeadLossInputs};

/// The backward pass of one parent: multiplies the saved gradient by the gradient of the loss.
#[derive(Debug)]
struct AttachedBackward;

impl<B: Backend> Backward<B, 1> for AttachedBackward {
    /// The gradient of the parent for a loss gradient of 1.
    type State = FloatTensor<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node); // [1]
        let [parent] = ops.parents;
        if let Some(node) = parent {
            grads.register::<B>(node.id, B::scaled(ops.state, grad));
        }
    }
}

/// Returns `value` `[1]` as a function of `parent` with the given `gradient`, which has the parent's shape.
fn attached<B: Backend, C: CheckpointStrategy>(
    parent: FloatTensor<Autodiff<B, C>>,
    value: FloatTensor<B>,
    gradient: FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    match AttachedBackward
        .prepare::<C>([parent.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => prep.finish(gradient, value),
        OpsKind::UnTracked(prep) => prep.finish(value),
    }
}

pub(super) fn several_parts<B: Backend, C: CheckpointStrategy>(
    inputs: HeadLossInputs<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let (hidden, weights) = (inputs.hidden.clone(), inputs.weights.clone());
    let tracked = hidden.is_tracked() || weights.iter().any(|part| part.is_tracked());
    if !tracked {
        let loss = B::head_loss(inner(inputs));
        return <Autodiff<B, C> as AutodiffBackend>::from_inner(loss);
    }
    let gradients = B::head_loss_gradients(inner(inputs));
    let device = B::float_device(&gradients.loss);
    let mut loss = attached::<B, C>(hidden, gradients.loss, gradients.hidden);
    for (part, gradient) in weights.into_iter().zip(gradients.weights) {
        let zero = B::float_zeros(Shape::new([1]), &device, FloatDType::F32);
        let zero = attached::<B, C>(part, zero, gradient);
        loss = <Autodiff<B, C> as FloatTensorOps<_>>::float_add(loss, zero);
    }
    loss
}
