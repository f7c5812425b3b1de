//! The backward pass of gated columns that are added to a tensor, from the gates and the columns.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::FloatTensor;

use crate::Backend;

#[derive(Debug)]
struct GatedColumnsBackward;

/// The parents are the tensor, the gates and the columns.
impl<B: Backend> Backward<B, 3> for GatedColumnsBackward {
    type State = (FloatTensor<B>, FloatTensor<B>);

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        let (gates, added) = ops.state;
        let gradients = B::add_gated_columns_backward(gates, added, grad.clone());
        let made = [grad, gradients.gate, gradients.up];
        register!(grads, B, ops.parents, made);
    }
}

pub(super) fn add_gated_columns<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    gates: FloatTensor<Autodiff<B, C>>,
    added: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = (x.node, gates.node, added.node);
    let kept = (gates.primitive, added.primitive);
    let output = B::add_gated_columns(x.primitive, kept.0.clone(), kept.1.clone());
    with_parents!(
        GatedColumnsBackward,
        C,
        [nodes.0, nodes.1, nodes.2],
        kept,
        output
    )
}
