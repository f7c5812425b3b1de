//! The backward pass of the embedding. It adds to the gradient that the table has accumulated so far, which comes
//! from the head if the two share their weight.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::{FloatTensor, IntTensor};

use super::gradient::{saved, take_gradient};
use crate::Backend;

#[derive(Debug)]
struct EmbeddingBackward;

impl<B: Backend> Backward<B, 1> for EmbeddingBackward {
    type State = (FloatTensor<Autodiff<B>>, IntTensor<B>);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        let (table, ids) = ops.state;
        let [node] = ops.parents;
        if let Some(node) = node {
            let added = take_gradient::<B>(grads, &table);
            let table_grad = <B as Backend>::embedding_backward(table.primitive, ids, grad, added);
            grads.register::<B>(node.id, table_grad);
        }
    }
}

pub(super) fn embedding<B: Backend, C: CheckpointStrategy>(
    table: FloatTensor<Autodiff<B, C>>,
    ids: IntTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let state = (saved::<B>(&table), ids.clone());
    let output = <B as Backend>::embedding(table.primitive, ids);
    match EmbeddingBackward
        .prepare::<C>([table.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => prep.finish(state, output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}
