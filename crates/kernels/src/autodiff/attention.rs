//! The backward pass of attention, from the state saved by the inner backend's forward pass.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};

use crate::reference::{self, WholeState};
use crate::{
    AttentionGradients, AttentionKernels, AttentionMask, AttentionOptions, Backend, RotaryAngles,
    SelfAttention, SelfAttentionGradients,
};

type State<B> = <<B as Backend>::Attention as AttentionKernels<B>>::State;
type SelfState<B> = <<B as Backend>::Attention as AttentionKernels<B>>::SelfState;

/// The inner backend's attention, differentiated by its own backward pass. Dropout applies even if no gradient is
/// required.
///
/// Its own training passes, which second derivatives need, are the reference implementations, differentiated by
/// Burn.
#[derive(Clone, Copy, Debug)]
pub struct TrackedAttention;

/// The tensors of a mask that are parents: the bias, followed by the sinks.
#[derive(Clone, Copy, Debug)]
struct MaskParents {
    bias: bool,
    sinks: bool,
}

impl MaskParents {
    fn of<T>((bias, sinks): &(Option<T>, Option<T>)) -> Self {
        Self {
            bias: bias.is_some(),
            sinks: sinks.is_some(),
        }
    }

    /// The nodes of bias and sinks, which follow in `next`.
    fn next<T>(self, mut next: impl FnMut() -> Option<T>) -> (Option<T>, Option<T>) {
        let bias = self.bias.then(&mut next).flatten();
        (bias, self.sinks.then(next).flatten())
    }
}

#[derive(Debug)]
struct AttentionBackward;

/// The parents are the queries, keys and values, followed by those of the mask.
impl<B: Backend, const N: usize> Backward<B, N> for AttentionBackward {
    type State = (State<B>, AttentionOptions, MaskParents);

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node); // [batch, heads, q_len, head_dim]
        let (state, options, of_mask) = ops.state;
        let mut parents = ops.parents.into_iter();
        let mut next = || parents.next().flatten();
        let (q, k, v) = (next(), next(), next());
        let (bias, sinks) = of_mask.next(next);
        let gradients = B::Attention::attention_backward(state, grad, options, bias.is_some());
        let gradients = [
            (q, Some(gradients.q)),
            (k, Some(gradients.k)),
            (v, Some(gradients.v)),
            (bias, gradients.bias),
            (sinks, gradients.sinks),
        ];
        for (node, grad) in gradients {
            if let (Some(node), Some(grad)) = (node, grad) {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

#[derive(Debug)]
struct SelfAttentionBackward;

/// The parents are the output of the fused projection, followed by those of the mask.
impl<B: Backend, const N: usize> Backward<B, N> for SelfAttentionBackward {
    type State = (
        SelfState<B>,
        Option<RotaryAngles<B>>,
        SelfAttention,
        MaskParents,
    );

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node); // [batch, seq, heads · head_dim]
        let (state, angles, config, of_mask) = ops.state;
        let mut parents = ops.parents.into_iter();
        let mut next = || parents.next().flatten();
        let qkv = next();
        let (bias, sinks) = of_mask.next(next);
        let gradients =
            B::Attention::self_attention_backward(state, angles, grad, config, bias.is_some());
        let gradients = [
            (qkv, Some(gradients.qkv)),
            (bias, gradients.bias),
            (sinks, gradients.sinks),
        ];
        for (node, grad) in gradients {
            if let (Some(node), Some(grad)) = (node, grad) {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

// In Burn, the number of parents is part of an operation's type.
macro_rules! tracked {
    ($backward:expr, [$($parent:expr),+], $mask:expr, $state:expr, $output:expr) => {
        match $mask {
            (None, None) => tracked!($backward, [$($parent),+], $state, $output),
            (Some(bias), None) => tracked!($backward, [$($parent),+, bias.node], $state, $output),
            (None, Some(sinks)) => tracked!($backward, [$($parent),+, sinks.node], $state, $output),
            (Some(bias), Some(sinks)) => {
                tracked!($backward, [$($parent),+, bias.node, sinks.node], $state, $output)
            }
        }
    };
    ($backward:expr, [$($parent:expr),+], $state:expr, $output:expr) => {
        match $backward.prepare::<C>([$($parent),+]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish($state, $output),
            OpsKind::UnTracked(prep) => prep.finish($output),
        }
    };
}

impl<B: Backend, C: CheckpointStrategy> AttentionKernels<Autodiff<B, C>> for TrackedAttention {
    type State = WholeState<Autodiff<B, C>>;
    type SelfState = WholeState<Autodiff<B, C>>;

    fn attention(
        q: FloatTensor<Autodiff<B, C>>,
        k: FloatTensor<Autodiff<B, C>>,
        v: FloatTensor<Autodiff<B, C>>,
        mask: AttentionMask<Autodiff<B, C>>,
        options: AttentionOptions,
    ) -> FloatTensor<Autodiff<B, C>> {
        let (mask, of_mask) = untracked(mask);
        let (output, state) =
            B::Attention::attention_training(q.primitive, k.primitive, v.primitive, mask, options);
        let state = (state, options, MaskParents::of(&of_mask));
        let (q, k, v) = (q.node, k.node, v.node);
        tracked!(AttentionBackward, [q, k, v], of_mask, state, output)
    }

    fn attention_training(
        q: FloatTensor<Autodiff<B, C>>,
        k: FloatTensor<Autodiff<B, C>>,
        v: FloatTensor<Autodiff<B, C>>,
        mask: AttentionMask<Autodiff<B, C>>,
        options: AttentionOptions,
    ) -> (FloatTensor<Autodiff<B, C>>, Self::State) {
        reference::attention_training(q, k, v, mask, options)
    }

    fn attention_backward(
        state: Self::State,
        grad: FloatTensor<Autodiff<B, C>>,
        options: AttentionOptions,
        bias: bool,
    ) -> AttentionGradients<Autodiff<B, C>> {
        reference::attention_backward(state, grad, options, bias)
    }

    /// The angles are constants: they receive no gradient.
    fn self_attention(
        qkv: FloatTensor<Autodiff<B, C>>,
        angles: Option<RotaryAngles<Autodiff<B, C>>>,
        mask: AttentionMask<Autodiff<B, C>>,
        config: SelfAttention,
    ) -> FloatTensor<Autodiff<B, C>> {
        let angles = angles.map(|of| RotaryAngles::<B> {
            layout: of.layout,
            cos: of.cos.primitive,
            sin: of.sin.primitive,
        });
        let (mask, of_mask) = untracked(mask);
        let (output, state) =
            B::Attention::self_attention_training(qkv.primitive, angles.clone(), mask, config);
        let state = (state, angles, config, MaskParents::of(&of_mask));
        tracked!(SelfAttentionBackward, [qkv.node], of_mask, state, output)
    }

    fn self_attention_training(
        qkv: FloatTensor<Autodiff<B, C>>,
        angles: Option<RotaryAngles<Autodiff<B, C>>>,
        mask: AttentionMask<Autodiff<B, C>>,
        config: SelfAttention,
    ) -> (FloatTensor<Autodiff<B, C>>, Self::SelfState) {
        reference::self_attention_training(qkv, angles, mask, config)
    }

    fn self_attention_backward(
        state: Self::SelfState,
        angles: Option<RotaryAngles<Autodiff<B, C>>>,
        grad: FloatTensor<Autodiff<B, C>>,
        config: SelfAttention,
        bias: bool,
    ) -> SelfAttentionGradients<Autodiff<B, C>> {
        reference::self_attention_backward(state, angles, grad, config, bias)
    }
}

/// The tracked bias and sinks of a mask.
type TrackedMask<B, C> = (
    Option<FloatTensor<Autodiff<B, C>>>,
    Option<FloatTensor<Autodiff<B, C>>>,
);

/// Returns the mask for the inner backend, and the tracked bias and sinks.
fn untracked<B: Backend, C: CheckpointStrategy>(
    mask: AttentionMask<Autodiff<B, C>>,
) -> (AttentionMask<B>, TrackedMask<B, C>) {
    let bias = mask.bias.map(|bias| bias.into_primitive().tensor());
    let sinks = mask.sinks.map(|sinks| sinks.into_primitive().tensor());
    let inner = AttentionMask {
        documents: mask.documents.map(Tensor::inner),
        padding: mask.padding.map(Tensor::inner),
        bias: bias.as_ref().map(of_inner::<B, C, 3>),
        sinks: sinks.as_ref().map(of_inner::<B, C, 1>),
    };
    (inner, (bias, sinks))
}

/// The tensor of the inner backend.
fn of_inner<B: Backend, C: CheckpointStrategy, const D: usize>(
    tracked: &FloatTensor<Autodiff<B, C>>,
) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(tracked.primitive.clone()))
}
