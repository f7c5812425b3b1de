//! The trait: Burn's backend and the operations that this project may do better than composed ones.

use burn::tensor::TensorMetadata;
use burn::tensor::backend::{AutodiffBackend, Backend as BurnBackend};
use burn::tensor::ops::{FloatTensor, IntTensor};

use crate::{
    Activation, AdamWStep, AttentionOptions, HeadLossOptions, Normalization, RotaryLayout,
    reference,
};

/// What an attention's backward needs of its forward pass.
#[derive(Clone, Debug)]
pub struct AttentionState<B: BurnBackend> {
    /// The softmax's weights, `[batch, kv_heads, heads / kv_heads · q_len, k_len]`.
    pub weights: FloatTensor<B>,
    /// The factors of their dropout, 0 or `1/(1 - p)`, of the same shape; none without dropout.
    pub kept: Option<FloatTensor<B>>,
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
}

/// The loss of a language-model head with its gradients, made in the same pass over the vocabulary.
#[derive(Clone, Debug)]
pub struct HeadLossGradients<B: BurnBackend> {
    /// Sum over the tokens whose target is not ignored, `[1]`: `-ln softmax(logits)[target]` and what
    /// [`HeadLossOptions`] adds.
    pub loss: FloatTensor<B>,
    /// Of the loss with respect to the hidden states, `[tokens, d_model]`.
    pub hidden: FloatTensor<B>,
    /// Of the loss with respect to the head's weight, `[vocab_size, d_model]`.
    pub weight: FloatTensor<B>,
}

/// A Burn backend with the language model's operations.
///
/// Each has a body composed of plain tensor operations ([`mod@reference`]): `impl Backend for NdArray {}` is a complete
/// port. A backend overrides an operation where it can do better, and is then tested against the composed body.
pub trait Backend: BurnBackend {
    /// `f(x)`, elementwise.
    fn activation(kind: Activation, x: FloatTensor<Self>) -> FloatTensor<Self> {
        reference::activation::<Self>(kind, x)
    }

    /// `f'(x) · grad`, elementwise.
    fn activation_backward(
        kind: Activation,
        x: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        reference::activation_backward::<Self>(kind, x, grad)
    }

    /// Normalises over the last dimension: `[tokens, d]` to `[tokens, d]`.
    fn normalize(kind: Normalization, x: FloatTensor<Self>) -> FloatTensor<Self> {
        reference::normalize::<Self>(kind, x)
    }

    /// The gradient of [`Backend::normalize`] with respect to `x`, from `x` and the output's gradient.
    fn normalize_backward(
        kind: Normalization,
        x: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        reference::normalize_backward::<Self>(kind, x, grad)
    }

    /// Rotates the first `2 · pairs` elements of each head of `x` `[batch, heads, seq, head_dim]` by the angles whose
    /// cosines and sines are `[seq, pairs]`; the rest passes. With `-sin` it is its own inverse and its backward.
    fn rotary(
        layout: RotaryLayout,
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        reference::rotary::<Self>(layout, x, cos, sin)
    }

    /// Causal attention of `[batch, heads, q_len, head_dim]` queries over `[batch, kv_heads, k_len, head_dim]` keys
    /// and values, `heads / kv_heads` query heads to one of theirs: `softmax(q kᵀ · scale + mask) v`. Nothing is
    /// dropped.
    ///
    /// `documents` `[batch, q_len]` is the first key of each query's document: it sees no key before that, and its
    /// global tokens are counted from there. Without it, all keys of a sequence are one document.
    fn attention(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        documents: Option<IntTensor<Self>>,
        options: AttentionOptions,
    ) -> FloatTensor<Self> {
        reference::attention::<Self>(q, k, v, documents, options)
    }

    /// [`Backend::attention`] with its dropout, and what [`Backend::attention_backward`] needs.
    fn attention_training(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        documents: Option<IntTensor<Self>>,
        options: AttentionOptions,
    ) -> (FloatTensor<Self>, AttentionState<Self>) {
        reference::attention_training::<Self>(q, k, v, documents, options)
    }

    /// The gradients of [`Backend::attention_training`] from its inputs, its state, which knows the documents, and its
    /// output's gradient.
    fn attention_backward(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        state: AttentionState<Self>,
        grad: FloatTensor<Self>,
        options: AttentionOptions,
    ) -> AttentionGradients<Self> {
        reference::attention_backward::<Self>(q, k, v, state, grad, options)
    }

    /// The summed cross-entropy of `logits = hidden · weightᵀ` against `targets`, without holding all logits at once:
    /// `hidden` `[tokens, d_model]`, `weight` `[vocab_size, d_model]`, `targets` `[tokens]`, those below 0
    /// ignored; the loss is `[1]`. The options may add terms to it.
    fn head_loss(
        hidden: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        targets: IntTensor<Self>,
        options: HeadLossOptions,
    ) -> FloatTensor<Self> {
        let rows = reference::rows_per_block(weight.shape()[0]);
        reference::head_loss::<Self>(hidden, weight, targets, options, rows)
    }

    /// [`Backend::head_loss`] with its gradients, from the same pass.
    fn head_loss_gradients(
        hidden: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        targets: IntTensor<Self>,
        options: HeadLossOptions,
    ) -> HeadLossGradients<Self> {
        let rows = reference::rows_per_block(weight.shape()[0]);
        reference::head_loss_gradients::<Self>(hidden, weight, targets, options, rows)
    }

    /// One AdamW update: `(parameter, moment1, moment2)` after it.
    fn adamw(
        parameter: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        moment1: FloatTensor<Self>,
        moment2: FloatTensor<Self>,
        step: AdamWStep,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        reference::adamw::<Self>(parameter, grad, moment1, moment2, step)
    }
}

/// A backend that training runs on: [`Backend`] itself, with automatic differentiation over an inner [`Backend`].
pub trait TrainingBackend: Backend + AutodiffBackend<InnerBackend: Backend> {}

impl<B> TrainingBackend for B where B: Backend + AutodiffBackend<InnerBackend: Backend> {}
