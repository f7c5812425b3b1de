//! Attention with grouped key-value heads that materializes all scores, and its gradient.

use burn::tensor::activation::softmax;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Distribution, Tensor};

use super::attention_scores::{ScoreRange, Scores, uncapped, where_any_key};
use super::product::product;
use super::sinks::{of_queries, summed};
use super::{primitive, typed};
use crate::{AttentionGradients, AttentionMask, AttentionOptions, BaseOps, Precision};

/// The state of [`attention_backward`]: all intermediate results, quadratic in the sequence length.
#[derive(Clone, Debug)]
pub struct WholeState<B: BaseOps> {
    /// Queries, rotated, `[batch, heads, q_len, head_dim]`.
    pub q: FloatTensor<B>,
    /// Keys, rotated, `[batch, kv_heads, k_len, head_dim]`.
    pub k: FloatTensor<B>,
    /// Values, `[batch, kv_heads, k_len, head_dim]`.
    pub v: FloatTensor<B>,
    /// The weights of the softmax, `[batch, kv_heads, heads / kv_heads · q_len, k_len]`.
    pub weights: FloatTensor<B>,
    /// `tanh(scale · q kᵀ / cap)`, `[batch, heads, q_len, k_len]`; `None` without a soft cap.
    pub bounded: Option<FloatTensor<B>>,
    /// The dropout factors, 0 or `1/(1 - p)`, in the shape of the weights; `None` without dropout.
    pub kept: Option<FloatTensor<B>>,
    /// The weights of the sinks, `[batch, heads, q_len, 1]`; `None` without sinks.
    pub sinks: Option<FloatTensor<B>>,
}

/// The softmax of all scores.
struct Weights<B: BaseOps> {
    /// See [`WholeState::weights`].
    values: Tensor<B, 4>,
    /// See [`WholeState::bounded`].
    bounded: Option<Tensor<B, 4>>,
    /// See [`WholeState::sinks`].
    sinks: Option<Tensor<B, 4>>,
}

/// See [`crate::AttentionKernels::attention`]. Query heads that share a key-value head are stacked along their
/// sequence, so keys and values are never expanded.
pub fn attention<B: BaseOps>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    mask: AttentionMask<B>,
    options: AttentionOptions,
) -> FloatTensor<B> {
    let q = typed::<B, 4>(q); // [batch, heads, q_len, head_dim]
    let shape = q.dims();
    let weights = weights(q, typed(k), &mask, options);
    primitive(product(weights.values, typed(v), options.precision).reshape(shape))
}

/// See [`crate::AttentionKernels::attention_training`].
pub fn attention_training<B: BaseOps>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    mask: AttentionMask<B>,
    options: AttentionOptions,
) -> (FloatTensor<B>, WholeState<B>) {
    let shape = typed::<B, 4>(q.clone()).dims();
    let weights = weights::<B>(typed(q.clone()), typed(k.clone()), &mask, options);
    let kept = (options.dropout > 0.0).then(|| kept(&weights.values, options.dropout));
    let applied = dropped(weights.values.clone(), kept.as_ref());
    let mixed = product(applied, typed(v.clone()), options.precision);
    let state = WholeState {
        q,
        k,
        v,
        weights: primitive(weights.values),
        bounded: weights.bounded.map(primitive),
        kept: kept.map(primitive),
        sinks: weights.sinks.map(primitive),
    };
    (primitive(mixed.reshape(shape)), state)
}

/// See [`crate::AttentionKernels::attention_backward`].
///
/// With the softmax weights `W`, the dropout factors `M` and `O = (W ∘ M) V`: `dV = (W ∘ M)ᵀ dO`,
/// `dW = dO Vᵀ ∘ M`. The gradient of the masked scores is `dS = W ∘ (dW - rowsum(dW ∘ W))`, and that of the bias
/// is `Σ dS` over the batch. With `T = tanh(scale · q kᵀ / cap)` of a soft cap, `dX = dS ∘ (1 - T²) · scale`,
/// `dQ = dX K`, `dK = dXᵀ Q`. There is no division: Burn's backward pass of a division takes a reciprocal, which
/// on ndarray is the CPU's estimate with 12 to 14 accurate bits.
pub fn attention_backward<B: BaseOps>(
    state: WholeState<B>,
    grad: FloatTensor<B>,
    options: AttentionOptions,
    bias: bool,
) -> AttentionGradients<B> {
    let by = |a: Tensor<B, 4>, b: Tensor<B, 4>| product(a, b, options.precision);
    let k = typed::<B, 4>(state.k); // [batch, kv_heads, k_len, head_dim]
    let v = typed::<B, 4>(state.v);
    let q = typed::<B, 4>(state.q); // [batch, heads, q_len, head_dim]
    let shape = q.dims();
    let [batch, heads, q_len, _] = shape;
    let [_, kv_heads, k_len, _] = k.dims();
    let q = stacked(q, kv_heads); // [batch, kv_heads, stacked, head_dim]
    let grad = stacked(typed::<B, 4>(grad), kv_heads);
    let weights = typed::<B, 4>(state.weights); // [batch, kv_heads, stacked, k_len]
    let kept = state.kept.map(typed::<B, 4>);

    let applied = dropped(weights.clone(), kept.as_ref());
    let v_grad = by(applied.transpose(), grad.clone());
    let weights_grad = dropped(by(grad, v.transpose()), kept.as_ref());
    let along = (weights_grad.clone() * weights.clone()).sum_dim(3); // [batch, kv_heads, stacked, 1]
    let sinks = state.sinks.map(|of| {
        let along = along.clone().reshape([batch, heads, q_len, 1]);
        primitive(summed(typed::<B, 4>(of) * along))
    });
    let scores_grad = weights * (weights_grad - along);
    let bias_grad = bias.then(|| {
        let of_heads = scores_grad.clone().reshape([batch, heads, q_len, k_len]);
        primitive(of_heads.sum_dim(0).reshape([heads, q_len, k_len]))
    });
    let bounded = state.bounded.map(|of| stacked(typed(of), kv_heads));
    let scores_grad = uncapped(scores_grad, bounded) * options.scale;
    AttentionGradients {
        q: primitive(by(scores_grad.clone(), k).reshape(shape)),
        k: primitive(by(scores_grad.transpose(), q)),
        v: primitive(v_grad),
        bias: bias_grad,
        sinks,
    }
}

/// The softmax weights without dropout, `[batch, heads, q_len, k_len]`. They are for inspection, and f32 on every
/// backend.
pub fn attention_weights<B: BaseOps>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    mask: AttentionMask<B>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    let [batch, heads, q_len, _] = q.dims();
    let k_len = k.dims()[2];
    let options = AttentionOptions {
        precision: Precision::F32,
        ..options
    };
    let weights = weights(q, k, &mask, options).values;
    weights.reshape([batch, heads, q_len, k_len])
}

/// Returns the softmax of the scores.
fn weights<B: BaseOps>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    mask: &AttentionMask<B>,
    options: AttentionOptions,
) -> Weights<B> {
    let [batch, heads, q_len, _] = q.dims();
    let [_, kv_heads, k_len, _] = k.dims();
    let products = product(stacked(q, kv_heads), k.transpose(), options.precision);
    let products = products.reshape([batch, heads, q_len, k_len]);
    let range = ScoreRange {
        sequences: 0..batch,
        queries: 0..q_len,
        keys: 0..k_len,
    };
    let scores = Scores::new(products, &range, [q_len, k_len], mask, options);
    let (weights, sinks) = match &mask.sinks {
        None => (softmax(scores.values, 3), None),
        Some(sinks) => {
            let sinks = of_queries(sinks, &scores.values);
            let all = softmax(Tensor::cat(vec![scores.values, sinks], 3), 3);
            let of_sinks = all.clone().narrow(3, k_len, 1);
            (all.narrow(3, 0, k_len), Some(of_sinks))
        }
    };
    let weights = where_any_key(weights, scores.any_key);
    Weights {
        values: stacked(weights, kv_heads),
        bounded: scores.bounded,
        sinks,
    }
}

/// Stacks the query heads that share a key-value head: `[batch, heads, q_len, width]` to
/// `[batch, kv_heads, heads / kv_heads · q_len, width]`.
pub(super) fn stacked<B: BaseOps>(x: Tensor<B, 4>, kv_heads: usize) -> Tensor<B, 4> {
    let [batch, heads, q_len, width] = x.dims();
    x.reshape([batch, kv_heads, heads / kv_heads * q_len, width])
}

/// Draws dropout factors in the shape of `x`: 0 with probability `p`, `1/(1 - p)` otherwise.
fn kept<B: BaseOps>(x: &Tensor<B, 4>, p: f64) -> Tensor<B, 4> {
    x.random_like(Distribution::Bernoulli(1.0 - p)) * (1.0 / (1.0 - p))
}

fn dropped<B: BaseOps>(x: Tensor<B, 4>, kept: Option<&Tensor<B, 4>>) -> Tensor<B, 4> {
    match kept {
        Some(kept) => x * kept.clone(),
        None => x,
    }
}
