//! Operations of one input whose backward needs that input alone: activations and normalisations.

use std::fmt::Debug;
use std::marker::PhantomData;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::tensor::ops::FloatTensor;

use crate::Backend;

/// Which operation it is, with its numbers.
pub(super) trait Kind: Copy + Debug + Send + 'static {}

impl<K: Copy + Debug + Send + 'static> Kind for K {}

/// The gradient of the input from the kept input and the output's gradient.
type InputGradient<K, B> = fn(K, FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>;

#[derive(Debug)]
struct KeptInput<K>(PhantomData<K>);

impl<K: Kind, B: Backend> Backward<B, 1> for KeptInput<K> {
    type State = (K, FloatTensor<B>, InputGradient<K, B>);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let (kind, x, backward) = ops.state;
        unary::<B, _>(ops.parents, ops.node, grads, |grad| backward(kind, x, grad));
    }
}

/// `forward(kind, x)`, differentiated by `backward(kind, x, grad)`.
pub(super) fn kept_input<K: Kind, B: Backend, C: CheckpointStrategy>(
    kind: K,
    x: FloatTensor<Autodiff<B, C>>,
    forward: fn(K, FloatTensor<B>) -> FloatTensor<B>,
    backward: InputGradient<K, B>,
) -> FloatTensor<Autodiff<B, C>> {
    match KeptInput(PhantomData)
        .prepare::<C>([x.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => prep.finish(
            (kind, x.primitive.clone(), backward),
            forward(kind, x.primitive),
        ),
        OpsKind::UnTracked(prep) => prep.finish(forward(kind, x.primitive)),
    }
}
