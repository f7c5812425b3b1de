//! The backward pass of rotary embeddings: the rotation by the opposite angles. It does not need the input.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::tensor::ops::FloatTensor;

use crate::{Backend, RotaryLayout};

#[derive(Debug)]
struct RotaryBackward;

impl<B: Backend> Backward<B, 1> for RotaryBackward {
    type State = (RotaryLayout, FloatTensor<B>, FloatTensor<B>);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let (layout, cos, sin) = ops.state;
        unary::<B, _>(ops.parents, ops.node, grads, |grad| {
            B::rotary(layout, grad, cos, B::float_neg(sin))
        });
    }
}

/// The angles are constants: `cos` and `sin` receive no gradient.
pub(super) fn rotary<B: Backend, C: CheckpointStrategy>(
    layout: RotaryLayout,
    x: FloatTensor<Autodiff<B, C>>,
    cos: FloatTensor<Autodiff<B, C>>,
    sin: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let (cos, sin) = (cos.primitive, sin.primitive);
    let output = B::rotary(layout, x.primitive, cos.clone(), sin.clone());
    match RotaryBackward
        .prepare::<C>([x.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => prep.finish((layout, cos, sin), output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}
