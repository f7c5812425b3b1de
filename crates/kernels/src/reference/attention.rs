//! Causal attention with grouped key-value heads.

use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Bool, Device, Distribution, Int, Tensor};

use super::{primitive, typed};
use crate::AttentionOptions;

/// See [`crate::Backend::attention`]. The query heads that share a key-value head are stacked along their sequence,
/// so keys and values are never expanded.
pub fn attention<B: Backend>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    options: AttentionOptions,
) -> FloatTensor<B> {
    let q = typed::<B, 4>(q); // [batch, heads, q_len, head_dim]
    let k = typed::<B, 4>(k); // [batch, kv_heads, k_len, head_dim]
    let v = typed::<B, 4>(v);
    let [batch, heads, q_len, head_dim] = q.dims();
    let [_, kv_heads, k_len, _] = k.dims();
    let stacked = heads / kv_heads * q_len;
    let device = q.device();

    let q = q.reshape([batch, kv_heads, stacked, head_dim]);
    let scores = q.matmul(k.transpose()) * options.scale; // [batch, kv_heads, stacked, k_len]
    let scores = scores.reshape([batch, heads, q_len, k_len]);
    let scores = match hidden_keys::<B>(q_len, k_len, options.window, &device) {
        Some(mask) => scores.mask_fill(mask.unsqueeze::<4>(), f32::NEG_INFINITY),
        None => scores,
    };
    let weights = drop_out(softmax(scores, 3), options.dropout);
    let weights = weights.reshape([batch, kv_heads, stacked, k_len]);
    let mixed = weights.matmul(v); // [batch, kv_heads, stacked, head_dim]
    primitive(mixed.reshape([batch, heads, q_len, head_dim]))
}

/// True where query `i` may not see key `j`, `[q_len, k_len]`; none where every query sees every key.
fn hidden_keys<B: Backend>(
    q_len: usize,
    k_len: usize,
    window: Option<usize>,
    device: &Device<B>,
) -> Option<Tensor<B, 2, Bool>> {
    let window = window.filter(|&window| window < k_len);
    if q_len == 1 && window.is_none() {
        return None;
    }
    let offset = (k_len - q_len) as i64;
    let queries = Tensor::<B, 1, Int>::arange(offset..k_len as i64, device).reshape([q_len, 1]);
    let keys = Tensor::<B, 1, Int>::arange(0..k_len as i64, device).reshape([1, k_len]);
    let keys = keys.expand([q_len, k_len]);
    let queries = queries.expand([q_len, k_len]);
    let future = keys.clone().greater(queries.clone());
    Some(match window {
        Some(window) => future.bool_or(keys.lower_equal(queries - window as i64)),
        None => future,
    })
}

/// Zeroes each element with probability `p` and scales the others by `1/(1 - p)`, under autodiff only.
fn drop_out<B: Backend>(x: Tensor<B, 4>, p: f64) -> Tensor<B, 4> {
    if p == 0.0 || !B::ad_enabled(&x.device()) {
        return x;
    }
    let kept = x.random_like(Distribution::Bernoulli(1.0 - p));
    x * kept * (1.0 / (1.0 - p))
}
