//! Causal attention with grouped key-value heads, and its gradient.

use burn::tensor::activation::softmax;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Distribution, Int, Tensor};

use super::attention_mask::{added_mask, hidden_keys};
use super::blocked_attention::blocked_attention_backward;
use super::product::product;
use super::{primitive, typed};
use crate::{
    AttentionGradients, AttentionInputs, AttentionOptions, AttentionState, Backend, LogSums,
    Precision,
};

/// See [`crate::Backend::attention`]. The query heads that share a key-value head are stacked along their sequence,
/// so keys and values are never expanded.
pub fn attention<B: Backend>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    documents: Option<IntTensor<B>>,
    options: AttentionOptions,
) -> FloatTensor<B> {
    let q = typed::<B, 4>(q); // [batch, heads, q_len, head_dim]
    let shape = q.dims();
    let documents = documents.map(Tensor::from_primitive);
    let weights = weights(q, typed(k), documents, options); // [batch, kv_heads, stacked, k_len]
    primitive(product(weights, typed(v), options.precision).reshape(shape))
}

/// See [`crate::Backend::attention_training`].
pub fn attention_training<B: Backend>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    documents: Option<IntTensor<B>>,
    options: AttentionOptions,
) -> (FloatTensor<B>, AttentionState<B>) {
    let shape = typed::<B, 4>(q.clone()).dims();
    let documents = documents.map(Tensor::from_primitive);
    let weights = weights::<B>(typed(q.clone()), typed(k.clone()), documents, options); // [batch, kv_heads, stacked, k_len]
    let kept = (options.dropout > 0.0).then(|| kept(&weights, options.dropout));
    let applied = dropped(weights.clone(), kept.as_ref());
    let mixed = product(applied, typed(v.clone()), options.precision);
    let state = AttentionState::Weights {
        q,
        k,
        v,
        weights: primitive(weights),
        kept: kept.map(primitive),
    };
    (primitive(mixed.reshape(shape)), state)
}

/// See [`crate::Backend::attention_backward`].
///
/// With `W` the softmax's weights, `M` the dropout's factors and `O = (W ∘ M) V`: `dV = (W ∘ M)ᵀ dO`,
/// `dW = dO Vᵀ ∘ M`, the scores' gradient `dS = W ∘ (dW - rowsum(dW ∘ W))`, and from it `dQ = dS K · scale`,
/// `dK = dSᵀ Q · scale`. Nothing is divided: Burn's own backward of a division takes a reciprocal, which on ndarray is
/// the processor's estimate, good to 12 or 14 bits.
pub fn attention_backward<B: Backend>(
    state: AttentionState<B>,
    grad: FloatTensor<B>,
    options: AttentionOptions,
) -> AttentionGradients<B> {
    let (q, k, v, weights, kept) = match state {
        AttentionState::Weights {
            q,
            k,
            v,
            weights,
            kept,
        } => (q, k, v, weights, kept),
        AttentionState::LogSums(state) => {
            let [q, k, v, weights] = made_again::<B>(state, options);
            (q, k, v, weights, None)
        }
        AttentionState::Blocks(state) => {
            return blocked_attention_backward::<B>(state, grad, options, None);
        }
    };
    let by = |a: Tensor<B, 4>, b: Tensor<B, 4>| product(a, b, options.precision);
    let k = typed::<B, 4>(k); // [batch, kv_heads, k_len, head_dim]
    let v = typed::<B, 4>(v);
    let q = typed::<B, 4>(q); // [batch, heads, q_len, head_dim]
    let shape = q.dims();
    let q = stacked(q, k.dims()[1]); // [batch, kv_heads, stacked, head_dim]
    let grad = stacked(typed::<B, 4>(grad), k.dims()[1]);
    let weights = typed::<B, 4>(weights); // [batch, kv_heads, stacked, k_len]
    let kept = kept.map(typed::<B, 4>);

    let applied = dropped(weights.clone(), kept.as_ref());
    let v_grad = by(applied.transpose(), grad.clone());
    let weights_grad = dropped(by(grad, v.transpose()), kept.as_ref());
    let along = (weights_grad.clone() * weights.clone()).sum_dim(3); // [batch, kv_heads, stacked, 1]
    let scores_grad = weights * (weights_grad - along) * options.scale;
    AttentionGradients {
        q: primitive(by(scores_grad.clone(), k).reshape(shape)),
        k: primitive(by(scores_grad.transpose(), q)),
        v: primitive(v_grad),
    }
}

/// Queries, keys, values and weights of a state that has the sums of the weights alone. What was dropped is known to the
/// backend that made the state, whose own backward this is not.
fn made_again<B: Backend>(state: LogSums<B>, options: AttentionOptions) -> [FloatTensor<B>; 4] {
    let (q, k, v) = match state.inputs {
        AttentionInputs::Separate([q, k, v]) => (q, k, v),
        AttentionInputs::Fused(all) => (all.clone(), all.clone(), all),
    };
    let documents = state.documents.map(Tensor::from_primitive);
    let weights = weights::<B>(typed(q.clone()), typed(k.clone()), documents, options);
    [q, k, v, primitive(weights)]
}

/// The softmax's weights without dropout, `[batch, heads, q_len, k_len]`, in f32 on every backend: they are for looking at.
pub fn attention_weights<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    let [batch, heads, q_len, _] = q.dims();
    let k_len = k.dims()[2];
    let options = AttentionOptions {
        precision: Precision::F32,
        ..options
    };
    weights(q, k, None, options).reshape([batch, heads, q_len, k_len])
}

/// `softmax(q kᵀ · scale + mask)`, `[batch, kv_heads, heads / kv_heads · q_len, k_len]`.
fn weights<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    documents: Option<Tensor<B, 2, Int>>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    let [batch, heads, q_len, _] = q.dims();
    let [_, kv_heads, k_len, _] = k.dims();
    let device = q.device();
    let q = stacked(q, kv_heads);
    let scores = product(q, k.transpose(), options.precision) * options.scale;
    let shape = scores.dims(); // [batch, kv_heads, stacked, k_len]
    let positions = k_len - q_len..k_len;
    let scores = match hidden_keys::<B>(positions, 0..k_len, documents, options, &device) {
        // Added as one row to each head's scores as another: filling takes a mask of the scores' full shape, and
        // making that takes longer than the softmax does.
        Some(hidden) => {
            let mask = added_mask(hidden);
            let mask = mask.reshape([-1, 1, (q_len * k_len) as i64]); // [1 or batch, 1, q_len · k_len]
            let mask = match mask.dims()[0] {
                1 => mask.reshape([1, q_len * k_len]),
                // Spelled out for each head: Burn 0.21's flex adds a row of each sequence to many rows element by
                // element, in more time than the softmax takes.
                _ => mask
                    .repeat_dim(1, heads)
                    .reshape([batch * heads, q_len * k_len]),
            };
            let rows = scores.reshape([batch * heads, q_len * k_len]);
            (rows + mask).reshape(shape)
        }
        None => scores,
    };
    softmax(scores, 3)
}

/// `[batch, heads, q_len, head_dim]` to `[batch, kv_heads, heads / kv_heads · q_len, head_dim]`.
pub(super) fn stacked<B: Backend>(x: Tensor<B, 4>, kv_heads: usize) -> Tensor<B, 4> {
    let [batch, heads, q_len, head_dim] = x.dims();
    x.reshape([batch, kv_heads, heads / kv_heads * q_len, head_dim])
}

/// 0 with probability `p`, `1/(1 - p)` otherwise.
fn kept<B: Backend>(x: &Tensor<B, 4>, p: f64) -> Tensor<B, 4> {
    x.random_like(Distribution::Bernoulli(1.0 - p)) * (1.0 / (1.0 - p))
}

fn dropped<B: Backend>(x: Tensor<B, 4>, kept: Option<&Tensor<B, 4>>) -> Tensor<B, 4> {
    match kept {
        Some(kept) => x * kept.clone(),
        None => x,
    }
}
