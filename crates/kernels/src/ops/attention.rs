//! Attention on typed tensors.

use burn::tensor::Tensor;

use super::{float, tensor};
use crate::{
    AttentionKernels, AttentionMask, AttentionOptions, Backend, KeyValueCache,
    LINEAR_ATTENTION_CHUNK, LinearAttentionState, PackedTokens, RotaryAngles, RotaryLayout,
    SelfAttention, reference,
};

/// [`AttentionKernels::attention`]: `q` `[batch, heads, q_len, head_dim]`, `k` and `v`
/// `[batch, kv_heads, k_len, head_dim]`, to the shape of `q`.
pub fn attention<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    v: Tensor<B, 4>,
    mask: AttentionMask<B>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    let [q, k, v] = [q, k, v].map(float);
    tensor(B::Attention::attention(q, k, v, mask, options))
}

/// [`AttentionKernels::attention_packed`]: [`attention`] over packed keys and values.
pub fn attention_packed<B: Backend>(
    q: Tensor<B, 4>,
    k: PackedTokens<B>,
    v: PackedTokens<B>,
    mask: AttentionMask<B>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    tensor(B::Attention::attention_packed(
        float(q),
        k,
        v,
        mask,
        options,
    ))
}

/// The rotation angles of queries and keys in [`self_attention`] and [`cached_attention`], `[seq, pairs]` each.
#[derive(Clone, Debug)]
pub struct Angles<B: Backend> {
    /// The pairing of elements.
    pub layout: RotaryLayout,
    /// Cosines.
    pub cos: Tensor<B, 2>,
    /// Sines.
    pub sin: Tensor<B, 2>,
}

impl<B: Backend> Angles<B> {
    fn into_primitives(self) -> RotaryAngles<B> {
        RotaryAngles {
            layout: self.layout,
            cos: float(self.cos),
            sin: float(self.sin),
        }
    }
}

/// [`AttentionKernels::self_attention`]: `[batch, seq, (heads + 2 · kv_heads) · head_dim]` to
/// `[batch, seq, heads · head_dim]`.
pub fn self_attention<B: Backend>(
    qkv: Tensor<B, 3>,
    angles: Option<Angles<B>>,
    mask: AttentionMask<B>,
    config: SelfAttention,
) -> Tensor<B, 3> {
    let angles = angles.map(Angles::into_primitives);
    tensor(B::Attention::self_attention(
        float(qkv),
        angles,
        mask,
        config,
    ))
}

/// [`AttentionKernels::cached_attention`]: [`self_attention`] over `len` tokens of the cached `keys` and `values`
/// `[batch, kv_heads, capacity, head_dim]` followed by those of `qkv`. Also returns the keys and values with the new tokens.
pub fn cached_attention<B: Backend>(
    qkv: Tensor<B, 3>,
    angles: Option<Angles<B>>,
    [keys, values]: [Tensor<B, 4>; 2],
    len: usize,
    mask: AttentionMask<B>,
    config: SelfAttention,
) -> (Tensor<B, 3>, [Tensor<B, 4>; 2]) {
    let angles = angles.map(Angles::into_primitives);
    let cache = KeyValueCache {
        keys: float(keys),
        values: float(values),
        len,
    };
    let (output, cache) = B::Attention::cached_attention(float(qkv), angles, cache, mask, config);
    (tensor(output), [cache.keys, cache.values].map(tensor))
}

/// The weights of [`attention`] without dropout, `[batch, heads, q_len, k_len]`.
pub fn attention_weights<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    mask: AttentionMask<B>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    reference::attention_weights(q, k, mask, options)
}

/// Softmax attention estimated with positive random features, at a cost linear in the sequence length; see
/// [`reference::linear_attention`]. It is composed of plain operations that Burn differentiates, on every
/// backend.
///
/// `q` is `[batch, heads, seq, head_dim]`, `k` and `v` are `[batch, kv_heads, seq, head_dim]`, and `features` is
/// `[features, head_dim]`. The tokens continue the sequence summarized by `past`. Returns the output in the shape
/// of `q`, and the state after these tokens.
pub fn linear_attention<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    v: Tensor<B, 4>,
    features: Tensor<B, 2>,
    past: Option<LinearAttentionState<B>>,
) -> (Tensor<B, 4>, Option<LinearAttentionState<B>>) {
    reference::linear_attention(q, k, v, features, past, LINEAR_ATTENTION_CHUNK)
}

/// The weights of [`linear_attention`] without a past, `[batch, heads, seq, seq]`.
pub fn linear_attention_weights<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    features: Tensor<B, 2>,
) -> Tensor<B, 4> {
    reference::linear_attention_weights(q, k, features)
}
