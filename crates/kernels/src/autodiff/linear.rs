//! The backward pass of linear layers, from their saved input and weight.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::FloatTensor;

use super::gradient::{saved, take_gradient};
use crate::{Backend, LinearInputs, Precision};

#[derive(Debug)]
struct LinearBackward;

/// The state of the backward pass.
#[derive(Clone, Debug)]
struct SavedState<B: Backend> {
    /// Its values are those of [`Backend::linear_training`].
    x: FloatTensor<Autodiff<B>>,
    weight: FloatTensor<B>,
    bias: bool,
    precision: Precision,
}

/// The parents are the input and the weight, followed by the bias and the residual if present.
impl<B: Backend, const N: usize> Backward<B, N> for LinearBackward {
    type State = SavedState<B>;

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        let kept = ops.state;
        let mut parents = ops.parents.into_iter();
        let mut next = || parents.next().flatten();
        let (x, weight) = (next(), next());
        let bias = kept.bias.then(&mut next).flatten();
        let residual = next();
        let added = take_gradient::<B>(grads, &kept.x);
        let wanted = [x.is_some(), weight.is_some(), bias.is_some()];
        let gradients = <B as Backend>::linear_backward(
            kept.x.primitive,
            kept.weight,
            grad.clone(),
            added,
            wanted,
            kept.precision,
        );
        let gradients = [
            (x, gradients.x),
            (weight, gradients.weight),
            (bias, gradients.bias),
            (residual, Some(grad)),
        ];
        for (node, grad) in gradients {
            if let (Some(node), Some(grad)) = (node, grad) {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

pub(super) fn linear<B: Backend, C: CheckpointStrategy>(
    inputs: LinearInputs<Autodiff<B, C>>,
    precision: Precision,
) -> FloatTensor<Autodiff<B, C>> {
    let mut saved_x = saved::<B>(&inputs.x);
    let node = |of: &Option<FloatTensor<Autodiff<B, C>>>| of.as_ref().map(|of| of.node.clone());
    let (bias, residual) = (node(&inputs.bias), node(&inputs.residual));
    let [x, weight] = [inputs.x.node, inputs.weight.node];
    let inputs = LinearInputs::<B> {
        x: inputs.x.primitive,
        weight: inputs.weight.primitive,
        bias: inputs.bias.map(|bias| bias.primitive),
        residual: inputs.residual.map(|residual| residual.primitive),
    };
    let (output, [kept_x, kept_weight]) = <B as Backend>::linear_training(inputs, precision);
    saved_x.primitive = kept_x;
    let kept = SavedState {
        x: saved_x,
        weight: kept_weight,
        bias: bias.is_some(),
        precision,
    };
    match (bias, residual) {
        (Some(bias), Some(residual)) => {
            with_parents!(LinearBackward, C, [x, weight, bias, residual], kept, output)
        }
        (Some(one), None) | (None, Some(one)) => {
            with_parents!(LinearBackward, C, [x, weight, one], kept, output)
        }
        (None, None) => with_parents!(LinearBackward, C, [x, weight], kept, output),
    }
}
