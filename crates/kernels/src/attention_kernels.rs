//! The forward, training and backward passes of a backend's attention, and the state between them.

use std::fmt::Debug;

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Bool, Int, Shape, Tensor, TensorPrimitive};

use crate::base_ops::usable;
use crate::{AttentionOptions, BaseOps, KeyValueCache, PackedTokens, RotaryAngles};

/// Attention with grouped key-value heads, `softmax(scores + bias + mask) v`. Sinks are further scores without a value.
///
/// [`AttentionOptions`] defines the scores and the reach. Each group of `heads / kv_heads` consecutive query
/// heads shares a key-value head. A query without any visible key has an output of 0 and contributes no gradient.
///
/// [`crate::reference`] has two implementations composed of plain tensor operations: `WholeAttention`, which
/// materializes all scores at once, and `BlockedAttention`, which materializes a bounded number of them.
pub trait AttentionKernels<B: BaseOps>: 'static {
    /// The results of [`AttentionKernels::attention_training`] that its backward pass needs.
    type State: Clone + Debug + Send + 'static;

    /// The results of [`AttentionKernels::self_attention_training`] that its backward pass needs.
    type SelfState: Clone + Debug + Send + 'static;

    /// Attention without dropout, of `q` `[batch, heads, q_len, head_dim]` over `k` and `v`
    /// `[batch, kv_heads, k_len, head_dim]`, to the shape of `q`. Queries may come from a different sequence than
    /// keys and values.
    fn attention(
        q: FloatTensor<B>,
        k: FloatTensor<B>,
        v: FloatTensor<B>,
        mask: AttentionMask<B>,
        options: AttentionOptions,
    ) -> FloatTensor<B>;

    /// [`AttentionKernels::attention`] over the packed keys and values of a cache, as if they were unpacked first.
    fn attention_packed(
        q: FloatTensor<B>,
        k: PackedTokens<B>,
        v: PackedTokens<B>,
        mask: AttentionMask<B>,
        options: AttentionOptions,
    ) -> FloatTensor<B> {
        let [k, v] = [k, v].map(B::unpack_tokens);
        Self::attention(q, k, v, mask, options)
    }

    /// [`AttentionKernels::attention`] with dropout. Also returns the state for the backward pass.
    fn attention_training(
        q: FloatTensor<B>,
        k: FloatTensor<B>,
        v: FloatTensor<B>,
        mask: AttentionMask<B>,
        options: AttentionOptions,
    ) -> (FloatTensor<B>, Self::State);

    /// The gradients of [`AttentionKernels::attention_training`] from its state and the gradient of its output.
    /// `bias` requests the gradient of the mask's bias.
    fn attention_backward(
        state: Self::State,
        grad: FloatTensor<B>,
        options: AttentionOptions,
        bias: bool,
    ) -> AttentionGradients<B>;

    /// Attention without dropout over the output of a fused projection,
    /// `[batch, seq, (heads + 2 · kv_heads) · head_dim]`: the heads of the queries, then of the keys, then of the
    /// values. Queries and keys are rotated first if there are angles. Returns `[batch, seq, heads · head_dim]`.
    fn self_attention(
        qkv: FloatTensor<B>,
        angles: Option<RotaryAngles<B>>,
        mask: AttentionMask<B>,
        config: SelfAttention,
    ) -> FloatTensor<B>;

    /// [`AttentionKernels::self_attention`] over a cache's tokens followed by those of `qkv`, which are appended to it. It
    /// must have room for them, and the angles are those of the new tokens. Also returns the cache.
    fn cached_attention(
        qkv: FloatTensor<B>,
        angles: Option<RotaryAngles<B>>,
        cache: KeyValueCache<B>,
        mask: AttentionMask<B>,
        config: SelfAttention,
    ) -> (FloatTensor<B>, KeyValueCache<B>) {
        let SelfAttention {
            heads,
            kv_heads,
            head_dim,
            options,
        } = config;
        let qkv = Tensor::<B, 3>::from_primitive(TensorPrimitive::Float(qkv));
        let [batch, seq, _] = qkv.dims();
        let part = |first: usize, count: usize| {
            let columns = qkv.clone().narrow(2, first * head_dim, count * head_dim);
            let heads = columns.reshape([batch, seq, count, head_dim]);
            heads.swap_dims(1, 2).into_primitive().tensor()
        };
        let [q, k] = [part(0, heads), part(heads, kv_heads)].map(|x| match &angles {
            Some(of) => B::rotary(of.layout, x, of.cos.clone(), of.sin.clone()),
            None => x,
        });
        let keys = B::write_tokens(cache.keys, k, cache.len);
        let values = B::write_tokens(cache.values, part(heads + kv_heads, kv_heads), cache.len);
        let len = cache.len + seq;
        let seen = |held: &FloatTensor<B>| {
            let held = Tensor::<B, 4>::from_primitive(TensorPrimitive::Float(held.clone()));
            held.narrow(2, 0, len).into_primitive().tensor()
        };
        let output = Self::attention(q, seen(&keys), seen(&values), mask, options);
        let output = B::float_swap_dims(output, 1, 2); // [batch, seq, heads, head_dim]
        let output = B::float_reshape(output, Shape::new([batch, seq, heads * head_dim]));
        (output, KeyValueCache { keys, values, len })
    }

    /// [`AttentionKernels::self_attention`] with dropout. Also returns the state for the backward pass.
    fn self_attention_training(
        qkv: FloatTensor<B>,
        angles: Option<RotaryAngles<B>>,
        mask: AttentionMask<B>,
        config: SelfAttention,
    ) -> (FloatTensor<B>, Self::SelfState);

    /// The gradients of [`AttentionKernels::self_attention_training`]; see
    /// [`AttentionKernels::attention_backward`].
    fn self_attention_backward(
        state: Self::SelfState,
        angles: Option<RotaryAngles<B>>,
        grad: FloatTensor<B>,
        config: SelfAttention,
        bias: bool,
    ) -> SelfAttentionGradients<B>;
}

/// Optional restrictions and biases of attention scores, in addition to the reach.
#[derive(Clone, Debug)]
pub struct AttentionMask<B: BurnBackend> {
    /// The first key of each query's document, `[batch, q_len]`. Earlier keys are hidden from the query, and the
    /// global tokens of a window are counted from there. It must not be after the query's own key. With a causal
    /// reach this isolates documents from each other; with full reach, the keys after a document stay visible.
    pub documents: Option<Tensor<B, 2, Int>>,
    /// The padding mask, `[batch, k_len]`: true for visible keys.
    pub padding: Option<Tensor<B, 2, Bool>>,
    /// Differentiable bias, added to the scores after scale and soft cap, `[heads, q_len, k_len]` (as in the
    /// relative positions of T5, Raffel et al. 2020).
    pub bias: Option<Tensor<B, 3>>,
    /// Differentiable sinks, one more score per head that has no value, `[heads]` (OpenAI 2025, "gpt-oss"): the weights of a
    /// query sum to less than 1.
    pub sinks: Option<Tensor<B, 1>>,
}

impl<B: BurnBackend> Default for AttentionMask<B> {
    fn default() -> Self {
        Self {
            documents: None,
            padding: None,
            bias: None,
            sinks: None,
        }
    }
}

impl<B: BurnBackend> AttentionMask<B> {
    /// Returns true if there is no restriction, no bias and no sink.
    pub fn is_empty(&self) -> bool {
        let restricts = self.documents.is_some() || self.padding.is_some();
        !restricts && self.bias.is_none() && self.sinks.is_none()
    }

    /// Returns a mask that isolates documents, if there are any; see [`AttentionMask::documents`].
    pub fn of_documents(documents: Option<Tensor<B, 2, Int>>) -> Self {
        Self {
            documents,
            ..Self::default()
        }
    }
}

impl AttentionOptions {
    /// Returns the options with a precision that the device of `x` supports.
    pub(crate) fn usable<B: BaseOps>(self, x: &FloatTensor<B>) -> Self {
        let precision = usable::<B>(self.precision, x);
        Self { precision, ..self }
    }
}

/// The heads in the output of a fused projection, and the options of their attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelfAttention {
    /// The number of query heads.
    pub heads: usize,
    /// The number of key-value heads.
    pub kv_heads: usize,
    /// The number of elements per head.
    pub head_dim: usize,
    /// Reach, scale, soft cap, dropout and precision.
    pub options: AttentionOptions,
}

impl SelfAttention {
    /// Returns the configuration with a precision that the device of `x` supports.
    pub(crate) fn usable<B: BaseOps>(self, x: &FloatTensor<B>) -> Self {
        let options = self.options.usable::<B>(x);
        Self { options, ..self }
    }
}

/// The gradients of attention.
#[derive(Clone, Debug)]
pub struct AttentionGradients<B: BurnBackend> {
    /// The gradient of the queries, `[batch, heads, q_len, head_dim]`.
    pub q: FloatTensor<B>,
    /// The gradient of the keys, `[batch, kv_heads, k_len, head_dim]`.
    pub k: FloatTensor<B>,
    /// The gradient of the values, `[batch, kv_heads, k_len, head_dim]`.
    pub v: FloatTensor<B>,
    /// The gradient of the bias, `[heads, q_len, k_len]`, if requested.
    pub bias: Option<FloatTensor<B>>,
    /// The gradient of the sinks, `[heads]`, if there are any.
    pub sinks: Option<FloatTensor<B>>,
}

/// The gradients of attention over the output of a fused projection.
#[derive(Clone, Debug)]
pub struct SelfAttentionGradients<B: BurnBackend> {
    /// The gradient of the projection's output, `[batch, seq, (heads + 2 · kv_heads) · head_dim]`.
    pub qkv: FloatTensor<B>,
    /// The gradient of the bias, `[heads, seq, seq]`, if requested.
    pub bias: Option<FloatTensor<B>>,
    /// The gradient of the sinks, `[heads]`, if there are any.
    pub sinks: Option<FloatTensor<B>>,
}
