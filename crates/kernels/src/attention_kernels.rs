//! A backend's attention: forward, training and backward passes, with the state between them.

use std::fmt::Debug;

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Bool, Int, Tensor};

use crate::{AttentionOptions, Backend, RotaryAngles};

/// Attention with grouped key-value heads, `softmax(scores + bias + mask) v`.
///
/// [`AttentionOptions`] has the scores' equation and the reach. Every `heads / kv_heads` consecutive query heads share a
/// key-value head. A query that sees no key has an output of 0, and no gradient comes from it.
///
/// [`crate::reference`] has two implementations composed of plain tensor operations: `WholeAttention`, which holds all scores
/// at once, and `BlockedAttention`, which holds a bounded number of them.
pub trait AttentionKernels<B: Backend>: 'static {
    /// The forward pass's results that [`AttentionKernels::attention_backward`] needs.
    type State: Clone + Debug + Send + 'static;

    /// The forward pass's results that [`AttentionKernels::self_attention_backward`] needs.
    type SelfState: Clone + Debug + Send + 'static;

    /// `q` `[batch, heads, q_len, head_dim]`, `k` and `v` `[batch, kv_heads, k_len, head_dim]` to the shape of `q`, without
    /// dropout. Queries, and keys and values, may be of different sequences.
    fn attention(
        q: FloatTensor<B>,
        k: FloatTensor<B>,
        v: FloatTensor<B>,
        mask: AttentionMask<B>,
        options: AttentionOptions,
    ) -> FloatTensor<B>;

    /// [`AttentionKernels::attention`] with dropout, and the state of its backward pass.
    fn attention_training(
        q: FloatTensor<B>,
        k: FloatTensor<B>,
        v: FloatTensor<B>,
        mask: AttentionMask<B>,
        options: AttentionOptions,
    ) -> (FloatTensor<B>, Self::State);

    /// The gradients of [`AttentionKernels::attention_training`] from its state and its output's gradient; of the mask's bias,
    /// if there is one, where `bias` asks for it.
    fn attention_backward(
        state: Self::State,
        grad: FloatTensor<B>,
        options: AttentionOptions,
        bias: bool,
    ) -> AttentionGradients<B>;

    /// Attention of a fused projection's output `[batch, seq, (heads + 2 · kv_heads) · head_dim]`, queries, then keys, then
    /// values, head by head, the queries and keys rotated first where there are angles: `[batch, seq, heads · head_dim]`,
    /// without dropout.
    fn self_attention(
        qkv: FloatTensor<B>,
        angles: Option<RotaryAngles<B>>,
        mask: AttentionMask<B>,
        config: SelfAttention,
    ) -> FloatTensor<B>;

    /// [`AttentionKernels::self_attention`] with dropout, and the state of its backward pass.
    fn self_attention_training(
        qkv: FloatTensor<B>,
        angles: Option<RotaryAngles<B>>,
        mask: AttentionMask<B>,
        config: SelfAttention,
    ) -> (FloatTensor<B>, Self::SelfState);

    /// The gradients of [`AttentionKernels::self_attention_training`], as [`AttentionKernels::attention_backward`].
    fn self_attention_backward(
        state: Self::SelfState,
        angles: Option<RotaryAngles<B>>,
        grad: FloatTensor<B>,
        config: SelfAttention,
        bias: bool,
    ) -> SelfAttentionGradients<B>;
}

/// Restrictions and biases of an attention's scores beyond its reach, each optional.
#[derive(Clone, Debug)]
pub struct AttentionMask<B: BurnBackend> {
    /// The first key of each query's document, `[batch, q_len]`: a query sees no key before it, and a window's global tokens are
    /// counted from there. It must not be after the query's own key. Documents are isolated from each other by it under a
    /// causal reach; full reach still sees the keys after a document.
    pub documents: Option<Tensor<B, 2, Int>>,
    /// The padding mask, `[batch, k_len]`: true where the key may be seen.
    pub padding: Option<Tensor<B, 2, Bool>>,
    /// Added to the scores after scale and soft cap, `[heads, q_len, k_len]` (T5's relative positions, Raffel et al. 2020).
    /// Differentiable.
    pub bias: Option<Tensor<B, 3>>,
}

impl<B: BurnBackend> Default for AttentionMask<B> {
    fn default() -> Self {
        Self {
            documents: None,
            padding: None,
            bias: None,
        }
    }
}

impl<B: BurnBackend> AttentionMask<B> {
    /// Returns true if there is no restriction and no bias.
    pub fn is_empty(&self) -> bool {
        self.documents.is_none() && self.padding.is_none() && self.bias.is_none()
    }

    /// The mask that isolates documents, if there are any; see [`AttentionMask::documents`].
    pub fn of_documents(documents: Option<Tensor<B, 2, Int>>) -> Self {
        Self {
            documents,
            ..Self::default()
        }
    }
}

/// The heads of a fused projection's output, and the options of their attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelfAttention {
    /// Query heads.
    pub heads: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    /// Elements of each head.
    pub head_dim: usize,
    /// Reach, scale, soft cap, dropout.
    pub options: AttentionOptions,
}

/// The gradients of an attention.
#[derive(Clone, Debug)]
pub struct AttentionGradients<B: BurnBackend> {
    /// Of the queries, `[batch, heads, q_len, head_dim]`.
    pub q: FloatTensor<B>,
    /// Of the keys, `[batch, kv_heads, k_len, head_dim]`.
    pub k: FloatTensor<B>,
    /// Of the values, `[batch, kv_heads, k_len, head_dim]`.
    pub v: FloatTensor<B>,
    /// Of the bias, `[heads, q_len, k_len]`, where it was asked for.
    pub bias: Option<FloatTensor<B>>,
}

/// The gradients of an attention of a fused projection's output.
#[derive(Clone, Debug)]
pub struct SelfAttentionGradients<B: BurnBackend> {
    /// Of the projection's output, `[batch, seq, (heads + 2 · kv_heads) · head_dim]`.
    pub qkv: FloatTensor<B>,
    /// Of the bias, `[heads, seq, seq]`, where it was asked for.
    pub bias: Option<FloatTensor<B>>,
}
