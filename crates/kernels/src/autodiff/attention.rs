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

#[derive(Debug)]
struct AttentionBackward;

/// The parents are the queries, keys and values, followed by the bias if there is one.
impl<B: Backend, const N: usize> Backward<B, N> for AttentionBackward {
    type State = (State<B>, AttentionOptions);

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node); // [batch, heads, q_len, head_dim]
        let (state, options) = ops.state;
        let mut parents = ops.parents.into_iter();
        let mut next = || parents.next().flatten();
        let (q, k, v, bias) = (next(), next(), next(), next());
        let gradients = B::Attention::attention_backward(state, grad, options, bias.is_some());
        let gradients = [
            (q, Some(gradients.q)),
            (k, Some(gradients.k)),
            (v, Some(gradients.v)),
            (bias, gradients.bias),
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

/// The parents are the output of the fused projection, followed by the bias if there is one.
impl<B: Backend, const N: usize> Backward<B, N> for SelfAttentionBackward {
    type State = (SelfState<B>, Option<RotaryAngles<B>>, SelfAttention);

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node); // [batch, seq, heads · head_dim]
        let (state, angles, config) = ops.state;
        let mut parents = ops.parents.into_iter();
        let mut next = || parents.next().flatten();
        let (qkv, bias) = (next(), next());
        let gradients =
            B::Attention::self_attention_backward(state, angles, grad, config, bias.is_some());
        for (node, grad) in [(qkv, Some(gradients.qkv)), (bias, gradients.bias)] {
            if let (Some(node), Some(grad)) = (node, grad) {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

// In Burn, the number of parents is part of an operation's type.
macro_rules! tracked {
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
        let (mask, bias) = untracked(mask);
        let (output, state) =
            B::Attention::attention_training(q.primitive, k.primitive, v.primitive, mask, options);
        let (q, k, v, state) = (q.node, k.node, v.node, (state, options));
        match bias {
            Some(bias) => tracked!(AttentionBackward, [q, k, v, bias.node], state, output),
            None => tracked!(AttentionBackward, [q, k, v], state, output),
        }
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
        let (mask, bias) = untracked(mask);
        let (output, state) =
            B::Attention::self_attention_training(qkv.primitive, angles.clone(), mask, config);
        let state = (state, angles, config);
        match bias {
            Some(bias) => {
                tracked!(SelfAttentionBackward, [qkv.node, bias.node], state, output)
            }
            None => tracked!(SelfAttentionBackward, [qkv.node], state, output),
        }
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

/// Returns the mask for the inner backend, and the tracked bias.
fn untracked<B: Backend, C: CheckpointStrategy>(
    mask: AttentionMask<Autodiff<B, C>>,
) -> (AttentionMask<B>, Option<FloatTensor<Autodiff<B, C>>>) {
    let bias = mask.bias.map(|bias| bias.into_primitive().tensor());
    let of_inner = |bias: &FloatTensor<Autodiff<B, C>>| {
        Tensor::from_primitive(TensorPrimitive::Float(bias.primitive.clone()))
    };
    let mask = AttentionMask {
        documents: mask.documents.map(Tensor::inner),
        padding: mask.padding.map(Tensor::inner),
        bias: bias.as_ref().map(of_inner),
    };
    (mask, bias)
}
