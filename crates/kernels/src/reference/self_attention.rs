//! Attention of a fused map's output, and its gradient.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Shape, Tensor, TensorMetadata};

use super::{
    AttentionBlocks, attention, attention_backward, attention_training, blocked_attention,
    blocked_attention_training, primitive, rotary, typed,
};
use crate::{
    AttentionGradients, AttentionInputs, AttentionState, Backend, BlockedAttention, RotaryAngles,
    SelfAttention,
};

/// See [`crate::Backend::self_attention`].
pub fn self_attention<B: Backend>(
    qkv: FloatTensor<B>,
    angles: Option<RotaryAngles<B>>,
    documents: Option<IntTensor<B>>,
    how: SelfAttention,
) -> FloatTensor<B> {
    let [q, k, v] = separated::<B>(qkv, angles, how);
    merged::<B>(attention::<B>(q, k, v, documents, how.options))
}

/// [`self_attention`] by [`blocked_attention`].
pub fn blocked_self_attention<B: Backend>(
    qkv: FloatTensor<B>,
    angles: Option<RotaryAngles<B>>,
    documents: Option<IntTensor<B>>,
    how: SelfAttention,
    blocks: Option<AttentionBlocks>,
) -> FloatTensor<B> {
    let [q, k, v] = separated::<B>(qkv, angles, how);
    merged::<B>(blocked_attention::<B>(
        q,
        k,
        v,
        documents,
        how.options,
        blocks,
    ))
}

/// See [`crate::Backend::self_attention_training`].
pub fn self_attention_training<B: Backend>(
    qkv: FloatTensor<B>,
    angles: Option<RotaryAngles<B>>,
    documents: Option<IntTensor<B>>,
    how: SelfAttention,
) -> (FloatTensor<B>, AttentionState<B>) {
    let [q, k, v] = separated::<B>(qkv, angles, how);
    let (output, state) = attention_training::<B>(q, k, v, documents, how.options);
    (merged::<B>(output), state)
}

/// [`self_attention_training`] by [`blocked_attention_training`]. The state has the output as it is given, which the map after
/// it keeps too.
pub fn blocked_self_attention_training<B: Backend>(
    qkv: FloatTensor<B>,
    angles: Option<RotaryAngles<B>>,
    documents: Option<IntTensor<B>>,
    how: SelfAttention,
    blocks: Option<AttentionBlocks>,
) -> (FloatTensor<B>, BlockedAttention<B>) {
    let [q, k, v] = separated::<B>(qkv, angles, how);
    let (output, mut state) =
        blocked_attention_training::<B>(q, k, v, documents, how.options, blocks);
    let output = merged::<B>(output);
    state.output = output.clone();
    (output, state)
}

/// See [`crate::Backend::self_attention_backward`].
pub fn self_attention_backward<B: Backend>(
    state: AttentionState<B>,
    angles: Option<RotaryAngles<B>>,
    grad: FloatTensor<B>,
    how: SelfAttention,
) -> FloatTensor<B> {
    let by_heads = |x| primitive(heads::<B>(typed(x), 0, how.heads, how.head_dim));
    let state = match state {
        AttentionState::LogSums(mut state) => {
            if let AttentionInputs::Fused(qkv) = state.inputs {
                state.inputs = AttentionInputs::Separate(separated::<B>(qkv, None, how));
            }
            AttentionState::LogSums(state)
        }
        AttentionState::Blocks(state) => AttentionState::Blocks(BlockedAttention {
            output: by_heads(state.output),
            ..state
        }),
        state @ AttentionState::Weights { .. } => state,
    };
    let grad = by_heads(grad);
    let AttentionGradients { q, k, v } = attention_backward::<B>(state, grad, how.options);
    let turned_back = |x| match &angles {
        Some(of) => rotary::<B>(of.layout, x, of.cos.clone(), B::float_neg(of.sin.clone())),
        None => x,
    };
    let parts = [turned_back(q), turned_back(k), v].map(merged::<B>);
    B::float_cat(parts.into(), 2)
}

/// Queries and keys, turned, and values.
fn separated<B: Backend>(
    qkv: FloatTensor<B>,
    angles: Option<RotaryAngles<B>>,
    how: SelfAttention,
) -> [FloatTensor<B>; 3] {
    let qkv = typed::<B, 3>(qkv);
    let part = |first, count| primitive(heads(qkv.clone(), first, count, how.head_dim));
    let q = part(0, how.heads);
    let k = part(how.heads, how.kv_heads);
    let v = part(how.heads + how.kv_heads, how.kv_heads);
    match angles {
        Some(of) => [
            rotary::<B>(of.layout, q, of.cos.clone(), of.sin.clone()),
            rotary::<B>(of.layout, k, of.cos, of.sin),
            v,
        ],
        None => [q, k, v],
    }
}

/// `count` heads from head `first` on: `[batch, seq, all]` to `[batch, count, seq, head_dim]`.
fn heads<B: Backend>(x: Tensor<B, 3>, first: usize, count: usize, head_dim: usize) -> Tensor<B, 4> {
    let [batch, seq, _] = x.dims();
    x.narrow(2, first * head_dim, count * head_dim)
        .reshape([batch, seq, count, head_dim])
        .swap_dims(1, 2)
}

/// `[batch, heads, seq, head_dim]` to `[batch, seq, heads · head_dim]`.
fn merged<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let [batch, heads, seq, head_dim] = x.shape().dims();
    let x = B::float_swap_dims(x, 1, 2);
    B::float_reshape(x, Shape::new([batch, seq, heads * head_dim]))
}
