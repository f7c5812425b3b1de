//! The attentions' backward, from what their forward pass left.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::tensor::ops::{FloatTensor, IntTensor};

use crate::{AttentionOptions, AttentionState, Backend, RotaryAngles, SelfAttention};

#[derive(Debug)]
struct AttentionBackward;

impl<B: Backend> Backward<B, 3> for AttentionBackward {
    type State = (AttentionState<B>, AttentionOptions);

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node); // [batch, heads, q_len, head_dim]
        let (state, options) = ops.state;
        let made = B::attention_backward(state, grad, options);
        for (parent, grad) in ops.parents.into_iter().zip([made.q, made.k, made.v]) {
            if let Some(node) = parent {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

/// Dropout acts whether a gradient is asked for or not.
pub(super) fn attention<B: Backend, C: CheckpointStrategy>(
    q: FloatTensor<Autodiff<B, C>>,
    k: FloatTensor<Autodiff<B, C>>,
    v: FloatTensor<Autodiff<B, C>>,
    documents: Option<IntTensor<B>>,
    options: AttentionOptions,
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = [q.node, k.node, v.node];
    let (output, state) =
        B::attention_training(q.primitive, k.primitive, v.primitive, documents, options);
    match AttentionBackward
        .prepare::<C>(nodes)
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => prep.finish((state, options), output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}

#[derive(Debug)]
struct SelfAttentionBackward;

impl<B: Backend> Backward<B, 1> for SelfAttentionBackward {
    type State = (AttentionState<B>, Option<RotaryAngles<B>>, SelfAttention);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let (state, angles, how) = ops.state;
        unary::<B, _>(ops.parents, ops.node, grads, |grad| {
            B::self_attention_backward(state, angles, grad, how)
        });
    }
}

/// The angles are constants: no gradient flows into them.
pub(super) fn self_attention<B: Backend, C: CheckpointStrategy>(
    qkv: FloatTensor<Autodiff<B, C>>,
    angles: Option<RotaryAngles<Autodiff<B, C>>>,
    documents: Option<IntTensor<B>>,
    how: SelfAttention,
) -> FloatTensor<Autodiff<B, C>> {
    let angles = angles.map(|of| RotaryAngles::<B> {
        layout: of.layout,
        cos: of.cos.primitive,
        sin: of.sin.primitive,
    });
    let (output, state) = B::self_attention_training(qkv.primitive, angles.clone(), documents, how);
    match SelfAttentionBackward
        .prepare::<C>([qkv.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => prep.finish((state, angles, how), output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}
