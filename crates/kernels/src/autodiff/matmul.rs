//! The backward pass of matrix products: two products with transposed operands.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, binary};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, TensorMetadata};

use crate::Backend;

#[derive(Debug)]
struct MatmulBackward;

impl<B: Backend> Backward<B, 2> for MatmulBackward {
    type State = [FloatTensor<B>; 2];

    /// `∂a = ∂ bᵀ` and `∂b = aᵀ ∂`.
    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let [a, b] = ops.state;
        let shapes = [a.shape(), b.shape()];
        binary::<B, _, _>(
            ops.parents,
            ops.node,
            grads,
            |grad| summed_to::<B>(B::matmul(grad, transposed::<B>(b)), &shapes[0]),
            |grad| summed_to::<B>(B::matmul(transposed::<B>(a), grad), &shapes[1]),
        );
    }
}

fn transposed<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let dims = x.shape().num_dims();
    B::float_swap_dims(x, dims - 2, dims - 1)
}

/// Sums a gradient over the dimensions in which its operand was broadcast.
fn summed_to<B: Backend>(grad: FloatTensor<B>, shape: &Shape) -> FloatTensor<B> {
    let repeated = |&dim: &usize| shape[dim] != grad.shape()[dim];
    let repeated: Vec<usize> = (0..shape.num_dims()).filter(repeated).collect();
    repeated.into_iter().fold(grad, B::float_sum_dim)
}

pub(super) fn matmul<B: Backend, C: CheckpointStrategy>(
    a: FloatTensor<Autodiff<B, C>>,
    b: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let kept = [a.primitive.clone(), b.primitive.clone()];
    let output = B::matmul(a.primitive, b.primitive);
    match MatmulBackward
        .prepare::<C>([a.node, b.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => prep.finish(kept, output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}
