//! The backward pass of adding weighted rows. The output's gradient is the base's too, so that a chain of such operations copies
//! nothing of it.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::{FloatTensor, IntTensor};

use crate::Backend;

#[derive(Debug)]
struct AddRowsBackward;

/// The parents are the base, the rows and the weights.
impl<B: Backend> Backward<B, 3> for AddRowsBackward {
    type State = (FloatTensor<B>, FloatTensor<B>, IntTensor<B>);

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        let (x, weights, ids) = ops.state;
        let [base, x_node, weights_node] = ops.parents;
        if x_node.is_some() || weights_node.is_some() {
            let made = B::add_rows_backward(x, weights, ids, grad.clone());
            for (node, grad) in [(x_node, made.x), (weights_node, made.weights)] {
                if let Some(node) = node {
                    grads.register::<B>(node.id, grad);
                }
            }
        }
        if let Some(node) = base {
            grads.register::<B>(node.id, grad);
        }
    }
}

pub(super) fn add_rows<B: Backend, C: CheckpointStrategy>(
    base: FloatTensor<Autodiff<B, C>>,
    x: FloatTensor<Autodiff<B, C>>,
    weights: FloatTensor<Autodiff<B, C>>,
    ids: IntTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = [base.node, x.node, weights.node];
    let (x, weights) = (x.primitive, weights.primitive);
    let state = (x.clone(), weights.clone(), ids.clone());
    let output = B::add_rows(base.primitive, x, weights, ids);
    match AddRowsBackward
        .prepare::<C>(nodes)
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => prep.finish(state, output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}
