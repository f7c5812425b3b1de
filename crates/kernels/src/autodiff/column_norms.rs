//! The backward pass of the normalization of groups of columns, from its inputs.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::FloatTensor;

use crate::{Backend, ColumnNormInputs, ColumnNorms};

#[derive(Debug)]
struct ColumnNormBackward;

/// The parents are the input, followed by the gains and the biases if present.
impl<B: Backend, const N: usize> Backward<B, N> for ColumnNormBackward {
    type State = (ColumnNorms, ColumnNormInputs<B>);

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        let (norms, inputs) = ops.state;
        let gradients = B::normalize_columns_backward(norms, inputs, grad);
        let affine = [gradients.gains, gradients.biases].into_iter().flatten();
        let made = [gradients.x].into_iter().chain(affine.flatten());
        register!(grads, B, ops.parents, made);
    }
}

pub(super) fn normalize_columns<B: Backend, C: CheckpointStrategy>(
    norms: ColumnNorms,
    inputs: ColumnNormInputs<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let ColumnNormInputs { x, gains, biases } = inputs;
    let nodes = |of: &Option<[FloatTensor<Autodiff<B, C>>; 2]>| {
        let of = of.as_ref();
        of.map(|both| both.each_ref().map(|one| one.node.clone()))
    };
    let parents = (nodes(&gains), nodes(&biases));
    let inner =
        |of: Option<[FloatTensor<Autodiff<B, C>>; 2]>| of.map(|both| both.map(|one| one.primitive));
    let (node, inputs) = (
        x.node,
        ColumnNormInputs::<B> {
            x: x.primitive,
            gains: inner(gains),
            biases: inner(biases),
        },
    );
    let kept = (norms, inputs.clone());
    let output = B::normalize_columns(norms, inputs);
    match parents {
        (Some([g1, g2]), Some([b1, b2])) => {
            with_parents!(ColumnNormBackward, C, [node, g1, g2, b1, b2], kept, output)
        }
        (Some([one, two]), None) | (None, Some([one, two])) => {
            with_parents!(ColumnNormBackward, C, [node, one, two], kept, output)
        }
        (None, None) => with_parents!(ColumnNormBackward, C, [node], kept, output),
    }
}
