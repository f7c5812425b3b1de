//! A gradient that is computed outside of the graph. It takes part in the backward pass without a product or a sum.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::FloatTensor;

use crate::Backend;

#[derive(Debug)]
struct WithGradientBackward;

/// The parents are the output and the tensor that has the gradient.
impl<B: Backend> Backward<B, 2> for WithGradientBackward {
    type State = FloatTensor<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        let [x, of] = ops.parents;
        for (node, grad) in [(x, grad), (of, ops.state)] {
            if let Some(node) = node {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

pub(super) fn with_gradient<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    of: FloatTensor<Autodiff<B, C>>,
    gradient: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    match WithGradientBackward
        .prepare::<C>([x.node, of.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => prep.finish(gradient.primitive, x.primitive),
        OpsKind::UnTracked(prep) => prep.finish(x.primitive),
    }
}
