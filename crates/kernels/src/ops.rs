//! The operations on typed tensors: what the model calls.

use burn::tensor::{Int, Tensor, TensorPrimitive};

use crate::{
    Activation, AdamWStep, AttentionOptions, Backend, HeadLossOptions, LINEAR_ATTENTION_CHUNK,
    LinearAttentionState, Normalization, RotaryLayout, reference,
};

fn float<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> burn::tensor::ops::FloatTensor<B> {
    tensor.into_primitive().tensor()
}

fn tensor<B: Backend, const D: usize>(
    primitive: burn::tensor::ops::FloatTensor<B>,
) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// [`Backend::activation`], any shape.
pub fn activation<B: Backend, const D: usize>(kind: Activation, x: Tensor<B, D>) -> Tensor<B, D> {
    tensor(B::activation(kind, float(x)))
}

/// [`Backend::normalize`] over the last dimension of any shape.
pub fn normalize<B: Backend, const D: usize>(kind: Normalization, x: Tensor<B, D>) -> Tensor<B, D> {
    let shape = x.shape();
    let width = x.dims()[D - 1];
    let rows = x.reshape([-1, width as i64]); // [tokens, d]
    tensor::<B, 2>(B::normalize(kind, float(rows))).reshape(shape)
}

/// [`Backend::rotary`]: `x` `[batch, heads, seq, head_dim]`, `cos` and `sin` `[seq, pairs]`.
pub fn rotary<B: Backend>(
    layout: RotaryLayout,
    x: Tensor<B, 4>,
    cos: Tensor<B, 2>,
    sin: Tensor<B, 2>,
) -> Tensor<B, 4> {
    tensor(B::rotary(layout, float(x), float(cos), float(sin)))
}

/// [`Backend::attention`]: `[batch, heads, q_len, head_dim]`, `documents` `[batch, q_len]`.
pub fn attention<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    v: Tensor<B, 4>,
    documents: Option<Tensor<B, 2, Int>>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    tensor(<B as Backend>::attention(
        float(q),
        float(k),
        float(v),
        documents.map(Tensor::into_primitive),
        options,
    ))
}

/// The weights of [`attention`], `[batch, heads, q_len, k_len]`.
pub fn attention_weights<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    reference::attention_weights(q, k, options)
}

/// Softmax attention estimated by positive random features at a cost linear in the sequence: see
/// [`reference::linear_attention`]. Composed of plain operations, and differentiated by Burn, on every backend.
///
/// `q` `[batch, heads, seq, head_dim]`, `k` and `v` `[batch, kv_heads, seq, head_dim]`, `features`
/// `[features, head_dim]`; the tokens continue `past`. The output is shaped as `q`; the state is what comes after.
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

/// [`Backend::head_loss`]: the sum over the tokens whose target is not below 0, `[1]`.
pub fn head_loss<B: Backend>(
    hidden: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
    options: HeadLossOptions,
) -> Tensor<B, 1> {
    tensor(B::head_loss(
        float(hidden),
        float(weight),
        targets.into_primitive(),
        options,
    ))
}

/// [`Backend::adamw`]: `(parameter, moment1, moment2)` after the update.
pub fn adamw<B: Backend, const D: usize>(
    parameter: Tensor<B, D>,
    grad: Tensor<B, D>,
    moments: (Tensor<B, D>, Tensor<B, D>),
    step: AdamWStep,
) -> (Tensor<B, D>, (Tensor<B, D>, Tensor<B, D>)) {
    let (p, m, v) = B::adamw(
        float(parameter),
        float(grad),
        float(moments.0),
        float(moments.1),
        step,
    );
    (tensor(p), (tensor(m), tensor(v)))
}
