//! The backward pass of normalization, from its saved input.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::FloatTensor;

use super::gradient::{saved, take_gradient};
use crate::{Backend, Normalization};

#[derive(Debug)]
struct NormBackward;

/// The tensors saved for the backward pass.
#[derive(Clone, Debug)]
struct SavedState<B: Backend> {
    kind: Normalization,
    x: FloatTensor<Autodiff<B>>,
    gain: Option<FloatTensor<B>>,
    bias: bool,
}

/// The parents are the input, followed by the gain and the bias if present.
impl<B: Backend, const N: usize> Backward<B, N> for NormBackward {
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
        let x = parents.next().flatten();
        let added = take_gradient::<B>(grads, &kept.x);
        let gradients = B::normalize_backward(
            kept.kind,
            kept.x.primitive,
            kept.gain,
            kept.bias,
            grad,
            added,
        );
        if let Some(x) = x {
            grads.register::<B>(x.id, gradients.x);
        }
        let affine = [gradients.gain, gradients.bias].into_iter().flatten();
        for (parent, grad) in parents.zip(affine) {
            if let Some(node) = parent {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

pub(super) fn normalize<B: Backend, C: CheckpointStrategy>(
    kind: Normalization,
    x: FloatTensor<Autodiff<B, C>>,
    gain: Option<FloatTensor<Autodiff<B, C>>>,
    bias: Option<FloatTensor<Autodiff<B, C>>>,
) -> FloatTensor<Autodiff<B, C>> {
    let kept = SavedState {
        kind,
        x: saved::<B>(&x),
        gain: gain.as_ref().map(|gain| gain.primitive.clone()),
        bias: bias.is_some(),
    };
    let node = |of: &Option<FloatTensor<Autodiff<B, C>>>| of.as_ref().map(|of| of.node.clone());
    let nodes = (node(&gain), node(&bias));
    let inner = |of: Option<FloatTensor<Autodiff<B, C>>>| of.map(|of| of.primitive);
    let output = B::normalize(kind, x.primitive, inner(gain), inner(bias));
    // In Burn, the number of parents is part of an operation's type.
    macro_rules! with_parents {
        ($($parent:expr),+) => {
            match NormBackward.prepare::<C>([$($parent),+]).compute_bound().stateful() {
                OpsKind::Tracked(prep) => prep.finish(kept, output),
                OpsKind::UnTracked(prep) => prep.finish(output),
            }
        };
    }
    match nodes {
        (Some(gain), Some(bias)) => with_parents!(x.node, gain, bias),
        (Some(one), None) | (None, Some(one)) => with_parents!(x.node, one),
        (None, None) => with_parents!(x.node),
    }
}
