//! Attention over the output of a fused projection, and its gradient.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, Tensor, TensorMetadata};

use super::{
    AttentionBlocks, BlockedState, WholeState, attention, attention_backward, attention_training,
    blocked_attention, blocked_attention_backward, blocked_attention_training, primitive, rotary,
    typed,
};
use crate::{
    AttentionGradients, AttentionMask, BaseOps, RotaryAngles, SelfAttention, SelfAttentionGradients,
};

/// See [`crate::AttentionKernels::self_attention`].
pub fn self_attention<B: BaseOps>(
    qkv: FloatTensor<B>,
    angles: Option<RotaryAngles<B>>,
    mask: AttentionMask<B>,
    config: SelfAttention,
) -> FloatTensor<B> {
    let [q, k, v] = separated::<B>(qkv, angles, config);
    merged::<B>(attention::<B>(q, k, v, mask, config.options))
}

/// [`self_attention`] with [`blocked_attention`].
pub fn blocked_self_attention<B: BaseOps>(
    qkv: FloatTensor<B>,
    angles: Option<RotaryAngles<B>>,
    mask: AttentionMask<B>,
    config: SelfAttention,
    blocks: Option<AttentionBlocks>,
) -> FloatTensor<B> {
    let [q, k, v] = separated::<B>(qkv, angles, config);
    merged::<B>(blocked_attention::<B>(
        q,
        k,
        v,
        mask,
        config.options,
        blocks,
    ))
}

/// See [`crate::AttentionKernels::self_attention_training`].
pub fn self_attention_training<B: BaseOps>(
    qkv: FloatTensor<B>,
    angles: Option<RotaryAngles<B>>,
    mask: AttentionMask<B>,
    config: SelfAttention,
) -> (FloatTensor<B>, WholeState<B>) {
    let [q, k, v] = separated::<B>(qkv, angles, config);
    let (output, state) = attention_training::<B>(q, k, v, mask, config.options);
    (merged::<B>(output), state)
}

/// [`self_attention_training`] with [`blocked_attention_training`]. The state holds the output in its returned
/// layout, so it shares memory with the tensor that the next projection saves.
pub fn blocked_self_attention_training<B: BaseOps>(
    qkv: FloatTensor<B>,
    angles: Option<RotaryAngles<B>>,
    mask: AttentionMask<B>,
    config: SelfAttention,
    blocks: Option<AttentionBlocks>,
) -> (FloatTensor<B>, BlockedState<B>) {
    let [q, k, v] = separated::<B>(qkv, angles, config);
    let (output, mut state) =
        blocked_attention_training::<B>(q, k, v, mask, config.options, blocks);
    let output = merged::<B>(output);
    state.output = output.clone();
    (output, state)
}

/// See [`crate::AttentionKernels::self_attention_backward`].
pub fn self_attention_backward<B: BaseOps>(
    state: WholeState<B>,
    angles: Option<RotaryAngles<B>>,
    grad: FloatTensor<B>,
    config: SelfAttention,
    bias: bool,
) -> SelfAttentionGradients<B> {
    let grad = by_heads::<B>(grad, config);
    let gradients = attention_backward::<B>(state, grad, config.options, bias);
    fused_gradients(gradients, angles)
}

/// The backward pass of [`blocked_self_attention_training`].
pub fn blocked_self_attention_backward<B: BaseOps>(
    state: BlockedState<B>,
    angles: Option<RotaryAngles<B>>,
    grad: FloatTensor<B>,
    config: SelfAttention,
    bias: bool,
    blocks: Option<AttentionBlocks>,
) -> SelfAttentionGradients<B> {
    let state = BlockedState {
        output: by_heads::<B>(state.output, config),
        ..state
    };
    let grad = by_heads::<B>(grad, config);
    let gradients = blocked_attention_backward::<B>(state, grad, config.options, bias, blocks);
    fused_gradients(gradients, angles)
}

/// Rotates the gradients of queries and keys back and concatenates the gradients into one tensor.
fn fused_gradients<B: BaseOps>(
    grads: AttentionGradients<B>,
    angles: Option<RotaryAngles<B>>,
) -> SelfAttentionGradients<B> {
    let rotated_back = |x| match &angles {
        Some(of) => rotary::<B>(of.layout, x, of.cos.clone(), B::float_neg(of.sin.clone())),
        None => x,
    };
    let AttentionGradients {
        q,
        k,
        v,
        bias,
        sinks,
    } = grads;
    let parts = [rotated_back(q), rotated_back(k), v].map(merged::<B>);
    SelfAttentionGradients {
        qkv: B::float_cat(parts.into(), 2),
        bias,
        sinks,
    }
}

/// Converts `[batch, seq, heads · head_dim]` to `[batch, heads, seq, head_dim]`.
fn by_heads<B: BaseOps>(x: FloatTensor<B>, config: SelfAttention) -> FloatTensor<B> {
    primitive(heads::<B>(typed(x), 0, config.heads, config.head_dim))
}

/// Splits `qkv` into queries and keys, both rotated, and values.
pub(crate) fn separated<B: BaseOps>(
    qkv: FloatTensor<B>,
    angles: Option<RotaryAngles<B>>,
    config: SelfAttention,
) -> [FloatTensor<B>; 3] {
    let qkv = typed::<B, 3>(qkv);
    let part = |first, count| primitive(heads(qkv.clone(), first, count, config.head_dim));
    let q = part(0, config.heads);
    let k = part(config.heads, config.kv_heads);
    let v = part(config.heads + config.kv_heads, config.kv_heads);
    match angles {
        Some(of) => [
            rotary::<B>(of.layout, q, of.cos.clone(), of.sin.clone()),
            rotary::<B>(of.layout, k, of.cos, of.sin),
            v,
        ],
        None => [q, k, v],
    }
}

/// Extracts `count` heads starting at head `first`: `[batch, seq, all]` to `[batch, count, seq, head_dim]`.
fn heads<B: BaseOps>(x: Tensor<B, 3>, first: usize, count: usize, head_dim: usize) -> Tensor<B, 4> {
    let [batch, seq, _] = x.dims();
    x.narrow(2, first * head_dim, count * head_dim)
        .reshape([batch, seq, count, head_dim])
        .swap_dims(1, 2)
}

/// Converts `[batch, heads, seq, head_dim]` to `[batch, seq, heads · head_dim]`.
fn merged<B: BaseOps>(x: FloatTensor<B>) -> FloatTensor<B> {
    let [batch, heads, seq, head_dim] = x.shape().dims();
    let x = B::float_swap_dims(x, 1, 2);
    B::float_reshape(x, Shape::new([batch, seq, heads * head_dim]))
}
