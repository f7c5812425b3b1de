//! The backward pass of activations, from the tensor saved by the forward pass.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::tensor::ops::FloatTensor;

use crate::{Activation, Backend};

#[derive(Debug)]
struct ActivationBackward;

impl<B: Backend> Backward<B, 1> for ActivationBackward {
    type State = (Activation, FloatTensor<B>);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let (kind, kept) = ops.state;
        unary::<B, _>(ops.parents, ops.node, grads, |grad| {
            B::activation_backward(kind, kept, grad)
        });
    }
}

pub(super) fn activation<B: Backend, C: CheckpointStrategy>(
    kind: Activation,
    x: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    match ActivationBackward
        .prepare::<C>([x.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => {
            let (output, kept) = B::activation_training(kind, x.primitive);
            prep.finish((kind, kept), output)
        }
        OpsKind::UnTracked(prep) => prep.finish(B::activation(kind, x.primitive)),
    }
}
