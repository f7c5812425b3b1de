//! The backward pass of gated activations, from their saved inputs.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::FloatTensor;

use crate::{Activation, Backend};

#[derive(Debug)]
struct GatedBackward;

impl<B: Backend> Backward<B, 2> for GatedBackward {
    type State = (Activation, FloatTensor<B>, FloatTensor<B>);

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        let (kind, gate, up) = ops.state;
        let gradients = B::gated_backward(kind, gate, up, grad);
        register!(grads, B, ops.parents, [gradients.gate, gradients.up]);
    }
}

pub(super) fn gated<B: Backend, C: CheckpointStrategy>(
    kind: Activation,
    gate: FloatTensor<Autodiff<B, C>>,
    up: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = [gate.node, up.node];
    let (gate, up) = (gate.primitive, up.primitive);
    let output = B::gated(kind, gate.clone(), up.clone());
    match GatedBackward.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish((kind, gate, up), output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}
