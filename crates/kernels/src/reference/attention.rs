//! Causal attention with grouped key-value heads, and its gradient.

use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Bool, Device, Distribution, Int, Tensor};

use super::{primitive, typed};
use crate::{AttentionGradients, AttentionInputs, AttentionOptions, AttentionState, LogSums};

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
    primitive(weights.matmul(typed(v)).reshape(shape))
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
    let mixed = dropped(weights.clone(), kept.as_ref()).matmul(typed(v.clone()));
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
    };
    let k = typed::<B, 4>(k); // [batch, kv_heads, k_len, head_dim]
    let v = typed::<B, 4>(v);
    let q = typed::<B, 4>(q); // [batch, heads, q_len, head_dim]
    let shape = q.dims();
    let q = stacked(q, k.dims()[1]); // [batch, kv_heads, stacked, head_dim]
    let grad = stacked(typed::<B, 4>(grad), k.dims()[1]);
    let weights = typed::<B, 4>(weights); // [batch, kv_heads, stacked, k_len]
    let kept = kept.map(typed::<B, 4>);

    let applied = dropped(weights.clone(), kept.as_ref());
    let v_grad = applied.transpose().matmul(grad.clone());
    let weights_grad = dropped(grad.matmul(v.transpose()), kept.as_ref());
    let along = (weights_grad.clone() * weights.clone()).sum_dim(3); // [batch, kv_heads, stacked, 1]
    let scores_grad = weights * (weights_grad - along) * options.scale;
    AttentionGradients {
        q: primitive(scores_grad.clone().matmul(k).reshape(shape)),
        k: primitive(scores_grad.transpose().matmul(q)),
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

/// The softmax's weights without dropout, `[batch, heads, q_len, k_len]`.
pub fn attention_weights<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    let [batch, heads, q_len, _] = q.dims();
    let k_len = k.dims()[2];
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
    let scores = stacked(q, kv_heads).matmul(k.transpose()) * options.scale;
    let shape = scores.dims(); // [batch, kv_heads, stacked, k_len]
    let scores = match hidden_keys::<B>(q_len, k_len, documents, options, &device) {
        // Added as one row to each head's scores as another: filling takes a mask of the scores' full shape, and
        // making that takes longer than the softmax does.
        Some(hidden) => {
            let mask = Tensor::<B, 2>::zeros(hidden.dims(), &device);
            let mask = mask.mask_fill(hidden, f32::NEG_INFINITY);
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

/// True where query `i` may not see key `j`, `[q_len, k_len]`, or with documents, `[batch, q_len]`, `[batch · q_len, k_len]`;
/// none where every query sees every key.
fn hidden_keys<B: Backend>(
    q_len: usize,
    k_len: usize,
    documents: Option<Tensor<B, 2, Int>>,
    options: AttentionOptions,
    device: &Device<B>,
) -> Option<Tensor<B, 2, Bool>> {
    let reach = |window: usize| window.saturating_add(options.global_tokens);
    let window = options.window.filter(|&window| reach(window) < k_len);
    if q_len == 1 && window.is_none() && documents.is_none() {
        return None;
    }
    let offset = (k_len - q_len) as i64;
    let queries = Tensor::<B, 1, Int>::arange(offset..k_len as i64, device).reshape([q_len, 1]);
    let keys = Tensor::<B, 1, Int>::arange(0..k_len as i64, device).reshape([1, k_len]);
    let rows = documents.as_ref().map_or(1, |of| of.dims()[0]) * q_len;
    let all = [rows, k_len];
    let keys = keys.expand(all);
    let queries = queries.repeat_dim(0, rows / q_len).expand(all);
    let first = documents.map(|of| of.reshape([rows, 1]).expand(all));

    let mut hidden = keys.clone().greater(queries.clone());
    if let Some(first) = &first {
        hidden = hidden.bool_or(keys.clone().lower(first.clone()));
    }
    if let Some(window) = window {
        let tokens = options.global_tokens as i64;
        let global = match first {
            Some(first) => keys.clone().lower(first + tokens),
            None => keys.clone().lower_elem(tokens),
        };
        let left = keys.lower_equal(queries - window as i64);
        hidden = hidden.bool_or(left.bool_and(global.bool_not()));
    }
    Some(hidden)
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
