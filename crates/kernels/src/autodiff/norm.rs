//! The normalisation's backward, from the kept input.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::tensor::ops::FloatTensor;

use crate::{Backend, Normalization};

#[derive(Debug)]
struct NormalizeBackward;

impl<B: Backend> Backward<B, 1> for NormalizeBackward {
    type State = (Normalization, FloatTensor<B>);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let (kind, x) = ops.state;
        unary::<B, _>(ops.parents, ops.node, grads, |grad| {
            B::normalize_backward(kind, x, grad)
        });
    }
}

pub(super) fn normalize<B: Backend, C: CheckpointStrategy>(
    kind: Normalization,
    x: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    match NormalizeBackward
        .prepare::<C>([x.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => {
            prep.finish((kind, x.primitive.clone()), B::normalize(kind, x.primitive))
        }
        OpsKind::UnTracked(prep) => prep.finish(B::normalize(kind, x.primitive)),
    }
}
