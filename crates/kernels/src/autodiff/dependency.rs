//! A dependency without a gradient, which determines the order of the backward pass.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::FloatTensor;

use crate::Backend;

#[derive(Debug)]
struct DependencyBackward;

/// The parents are the tensor and the one that it depends on.
impl<B: Backend> Backward<B, 2> for DependencyBackward {
    type State = ();

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        if let [Some(tensor), _] = ops.parents {
            grads.register::<B>(tensor.id, grad);
        }
    }
}

pub(super) fn depending_on<B: Backend, C: CheckpointStrategy>(
    tensor: FloatTensor<Autodiff<B, C>>,
    x: &FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    if !tensor.is_tracked() {
        return tensor;
    }
    let nodes = (tensor.node, x.node.clone());
    with_parents!(
        DependencyBackward,
        C,
        [nodes.0, nodes.1],
        (),
        tensor.primitive
    )
}
