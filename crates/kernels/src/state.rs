//! What the operations take and give beside single tensors.

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};

use crate::reference::DropoutDraws;
use crate::{AttentionOptions, RotaryLayout};

/// What a linear map takes.
#[derive(Clone, Debug)]
pub struct LinearInputs<B: Backend> {
    /// `[…, in]`.
    pub x: FloatTensor<B>,
    /// `[in, out]`.
    pub weight: FloatTensor<B>,
    /// `[out]`.
    pub bias: Option<FloatTensor<B>>,
    /// What the map is added to, `[…, out]`.
    pub residual: Option<FloatTensor<B>>,
}

/// The gradients of a linear map, those that were asked for.
#[derive(Clone, Debug)]
pub struct LinearGradients<B: Backend> {
    /// Of its input, `[…, in]`.
    pub x: Option<FloatTensor<B>>,
    /// Of its weight, `[in, out]`.
    pub weight: Option<FloatTensor<B>>,
    /// Of its bias, `[out]`.
    pub bias: Option<FloatTensor<B>>,
}

/// The gradients of a normalisation.
#[derive(Clone, Debug)]
pub struct NormGradients<B: Backend> {
    /// Of its input.
    pub x: FloatTensor<B>,
    /// Of its gain, where there is one.
    pub gain: Option<FloatTensor<B>>,
    /// Of its bias, where there is one.
    pub bias: Option<FloatTensor<B>>,
}

/// The gradients of a gated activation.
#[derive(Clone, Debug)]
pub struct GatedGradients<B: Backend> {
    /// Of what goes through the activation.
    pub gate: FloatTensor<B>,
    /// Of what it is multiplied with.
    pub up: FloatTensor<B>,
}

/// By what queries and keys are turned.
#[derive(Clone, Debug)]
pub struct RotaryAngles<B: Backend> {
    /// Which elements are paired.
    pub layout: RotaryLayout,
    /// `[seq, pairs]`.
    pub cos: FloatTensor<B>,
    /// `[seq, pairs]`.
    pub sin: FloatTensor<B>,
}

/// How a fused map's output is read as queries, keys and values, and how they attend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelfAttention {
    /// Of queries.
    pub heads: usize,
    /// Of keys and values.
    pub kv_heads: usize,
    /// Elements of each.
    pub head_dim: usize,
    /// Scale, window, dropout.
    pub options: AttentionOptions,
}

/// What an attention's backward needs of its forward pass.
#[derive(Clone, Debug)]
pub enum AttentionState<B: Backend> {
    /// Everything between queries and output, quadratic in the sequence.
    Weights {
        /// Queries, turned, `[batch, heads, q_len, head_dim]`.
        q: FloatTensor<B>,
        /// Keys, turned, `[batch, kv_heads, k_len, head_dim]`.
        k: FloatTensor<B>,
        /// Values, `[batch, kv_heads, k_len, head_dim]`.
        v: FloatTensor<B>,
        /// The softmax's weights, `[batch, kv_heads, heads / kv_heads · q_len, k_len]`.
        weights: FloatTensor<B>,
        /// The factors of their dropout, 0 or `1/(1 - p)`, of the same shape; none without dropout.
        kept: Option<FloatTensor<B>>,
    },
    /// What it takes to make the weights again block by block, linear in the sequence (Dao et al. 2022,
    /// "FlashAttention").
    LogSums(LogSums<B>),
    /// The same of backends without a kernel of their own, whose weights are composed again block by block.
    Blocks(BlockedAttention<B>),
}

/// See [`AttentionState::Blocks`].
#[derive(Clone, Debug)]
pub struct BlockedAttention<B: Backend> {
    /// Queries, turned, `[batch, heads, q_len, head_dim]`.
    pub q: FloatTensor<B>,
    /// Keys, turned, `[batch, kv_heads, k_len, head_dim]`.
    pub k: FloatTensor<B>,
    /// Values, `[batch, kv_heads, k_len, head_dim]`.
    pub v: FloatTensor<B>,
    /// The attention's output, shaped as the queries, or of a fused map `[batch, seq, heads · head_dim]`.
    pub output: FloatTensor<B>,
    /// `ln Σ exp(scores)` of each query, `[batch, heads, q_len, 1]`.
    pub log_sums: FloatTensor<B>,
    /// The first key of each query's document, `[batch, q_len]`.
    pub documents: Option<IntTensor<B>>,
    /// What dropout is made of; none without.
    pub draws: Option<DropoutDraws<B>>,
}

/// See [`AttentionState::LogSums`].
#[derive(Clone, Debug)]
pub struct LogSums<B: Backend> {
    /// What attended.
    pub inputs: AttentionInputs<B>,
    /// The attention's output.
    pub output: FloatTensor<B>,
    /// `ln Σ exp(scores)` of each query, `[batch, heads, q_len]`.
    pub log_sums: FloatTensor<B>,
    /// The first key of each query's document, `[batch, q_len]`.
    pub documents: Option<IntTensor<B>>,
    /// What dropout is drawn from.
    pub seed: u64,
}

/// Queries, keys and values, turned.
#[derive(Clone, Debug)]
pub enum AttentionInputs<B: Backend> {
    /// `[batch, heads, q_len, head_dim]`, and `[batch, kv_heads, k_len, head_dim]` twice.
    Separate([FloatTensor<B>; 3]),
    /// All in the output of a fused map, `[batch, seq, (heads + 2 · kv_heads) · head_dim]`.
    Fused(FloatTensor<B>),
}

/// The gradients of an attention.
#[derive(Clone, Debug)]
pub struct AttentionGradients<B: Backend> {
    /// Of the queries, `[batch, heads, q_len, head_dim]`.
    pub q: FloatTensor<B>,
    /// Of the keys, `[batch, kv_heads, k_len, head_dim]`.
    pub k: FloatTensor<B>,
    /// Of the values, `[batch, kv_heads, k_len, head_dim]`.
    pub v: FloatTensor<B>,
}

/// The loss of a language-model head with its gradients, made in the same pass over the vocabulary.
#[derive(Clone, Debug)]
pub struct HeadLossGradients<B: Backend> {
    /// Sum over the tokens whose target is not ignored, `[1]`: `-ln softmax(logits)[target]` and what
    /// [`crate::HeadLossOptions`] adds.
    pub loss: FloatTensor<B>,
    /// Of the loss with respect to the hidden states, `[tokens, d_model]`.
    pub hidden: FloatTensor<B>,
    /// Of the loss with respect to the head's weight, `[vocab_size, d_model]`.
    pub weight: FloatTensor<B>,
}

/// [`HeadLossGradients`] of a head whose weight is in parts.
#[derive(Clone, Debug)]
pub struct HeadLossPartsGradients<B: Backend> {
    /// As [`HeadLossGradients::loss`], `[1]`.
    pub loss: FloatTensor<B>,
    /// Of the loss with respect to the hidden states, `[tokens, d_model]`.
    pub hidden: FloatTensor<B>,
    /// Of the loss with respect to each part of the weight, `[part's rows, d_model]`.
    pub weights: Vec<FloatTensor<B>>,
}
