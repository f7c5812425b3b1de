//! Causal linear attention with positive random features (Choromanski et al. 2021, "FAVOR+").
//!
//! With `x' = x / head_dim^¼` and the rows `ω` of `features`, `φ(x) = exp(ω x' - ‖x'‖²/2)` satisfies
//! `E[φ(q)·φ(k)] = exp(q·k / √head_dim)` for Gaussian `ω`. Therefore
//!
//! ```text
//! o_i = Σ_{j≤i} (φ(q_i)·φ(k_j)) v_j / Σ_{j≤i} φ(q_i)·φ(k_j) = φ(q_i)ᵀ S_i / φ(q_i)ᵀ z_i,
//! S_i = Σ_{j≤i} φ(k_j) v_jᵀ,   z_i = Σ_{j≤i} φ(k_j)
//! ```
//!
//! estimates softmax attention at a cost linear in the sequence length. The computation is chunked: pairs within
//! a chunk use the left form with a mask, earlier chunks the right form. A column of ones is appended to the
//! values, so one product computes both sums.
//!
//! Exponents are shifted to at most 0. Factors common to all features of a query cancel in the ratio, so queries
//! are shifted by their own maximum and do not need `‖q'‖²`. Keys are shifted by the running maximum `peak_j`,
//! never by the maximum of a later key: a single large key would otherwise underflow the sums of the queries
//! before it. A term computed with `peak_j` is multiplied by `exp(peak_j - peak_i)` at query `i`. These shifts
//! cancel too, and are constants for the gradient.
//!
//! No division is differentiated: Burn's backward pass of a division takes a reciprocal, which on ndarray is an
//! estimate with 12 to 14 accurate bits.

use burn::tensor::{Device, Tensor};

use super::attention::stacked;
use super::matmul;
use crate::{BaseOps, LinearAttentionState};

/// Added to the sum of a query's weights. If the query shares no feature with any key within f32's range, the output
/// is 0. Its power -3/2, which the backward pass computes, is finite.
const FLOOR: f64 = 1e-20;

/// Linear attention of `q` `[batch, heads, seq, head_dim]` over `k` and `v` `[batch, kv_heads, seq, head_dim]`,
/// with `features` `[features, head_dim]`, continuing `past`. Returns the output in the shape of `q`, and the
/// state after these tokens.
pub fn linear_attention<B: BaseOps>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    v: Tensor<B, 4>,
    features: Tensor<B, 2>,
    past: Option<LinearAttentionState<B>>,
    chunk: usize,
) -> (Tensor<B, 4>, Option<LinearAttentionState<B>>) {
    let [batch, kv_heads, seq, _] = k.dims();
    let ones = Tensor::ones([batch, kv_heads, seq, 1], &k.device());
    let v = Tensor::cat(vec![v, ones], 3); // [batch, kv_heads, seq, head_dim + 1]
    let map = map_of(features);
    let mut state = past;
    let mut outputs = Vec::with_capacity(seq.div_ceil(chunk));
    for start in (0..seq).step_by(chunk) {
        let len = chunk.min(seq - start);
        let part = |x: &Tensor<B, 4>| x.clone().narrow(2, start, len);
        let (output, next) = one_chunk(part(&q), part(&k), part(&v), &map, state);
        outputs.push(output);
        state = Some(next);
    }
    (Tensor::cat(outputs, 2), state)
}

/// The estimated attention weights, `[batch, heads, seq, seq]`.
pub fn linear_attention_weights<B: BaseOps>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    features: Tensor<B, 2>,
) -> Tensor<B, 4> {
    let [batch, heads, seq, _] = q.dims();
    let map = map_of(features);
    let keys = Keys::new(k, &map, None);
    let shared = keys.shared(&queries(q, keys.kv_heads(), &map));
    let total = shared.clone().sum_dim(3) + FLOOR;
    (shared / total).reshape([batch, heads, seq, seq])
}

/// Returns the outputs of one chunk and the state after it.
fn one_chunk<B: BaseOps>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    v: Tensor<B, 4>, // with the column of ones
    map: &Tensor<B, 2>,
    past: Option<LinearAttentionState<B>>,
) -> (Tensor<B, 4>, LinearAttentionState<B>) {
    let shape = q.dims();
    let head_dim = shape[3];
    let keys = Keys::new(k, map, past.as_ref().map(|past| past.peak.clone()));
    let q = queries(q, keys.kv_heads(), map); // [batch, kv_heads, stacked, features]

    let within = matmul(keys.shared(&q), v.clone()); // [batch, kv_heads, stacked, head_dim + 1]
    let sums = match &past {
        Some(past) => {
            let faded = (past.peak.clone() - keys.peaks.clone()).exp(); // [batch, kv_heads, len, 1]
            within + per_query(matmul(q, past.sums.clone()), faded)
        }
        None => within,
    };
    let total = sums.clone().narrow(3, head_dim, 1) + FLOOR;
    let root = total.powf_scalar(-0.5);
    let output = sums.narrow(3, 0, head_dim) * (root.clone() * root);
    (output.reshape(shape), keys.added_to(past, v))
}

/// The feature matrix `ωᵀ / head_dim^¼`, `[head_dim, features]`.
fn map_of<B: BaseOps>(features: Tensor<B, 2>) -> Tensor<B, 2> {
    let head_dim = features.dims()[1] as f64;
    features.transpose() * head_dim.powf(-0.25)
}

/// `ω x'`, `[batch, heads, seq, features]`, as a single product over all tokens.
fn mapped<B: BaseOps>(x: Tensor<B, 4>, map: &Tensor<B, 2>) -> Tensor<B, 4> {
    let [batch, heads, seq, head_dim] = x.dims();
    let features = map.dims()[1];
    let rows = x.reshape([batch * heads * seq, head_dim]);
    matmul(rows, map.clone()).reshape([batch, heads, seq, features])
}

/// The features of the queries. Heads that share keys are stacked:
/// `[batch, kv_heads, heads / kv_heads · seq, features]`.
fn queries<B: BaseOps>(q: Tensor<B, 4>, kv_heads: usize, map: &Tensor<B, 2>) -> Tensor<B, 4> {
    let exponents = mapped(stacked(q, kv_heads), map);
    let peaks = exponents.clone().detach().max_dim(3);
    (exponents - peaks).exp()
}

/// The keys of a chunk.
struct Keys<B: BaseOps> {
    /// `φ(k_j) / exp(peak_j)`, `[batch, kv_heads, len, features]`.
    features: Tensor<B, 4>,
    /// `peak_j`, `[batch, kv_heads, len, 1]`.
    peaks: Tensor<B, 4>,
}

impl<B: BaseOps> Keys<B> {
    fn new(k: Tensor<B, 4>, map: &Tensor<B, 2>, past_peak: Option<Tensor<B, 4>>) -> Self {
        let head_dim = k.dims()[3] as f64;
        let half_square = (k.clone() * k.clone()).sum_dim(3) * (0.5 / head_dim.sqrt());
        let exponents = mapped(k, map) - half_square;
        let peaks = exponents.clone().detach().max_dim(3).cummax(2);
        let peaks = match past_peak {
            Some(past) => {
                let past = past.expand(peaks.dims());
                peaks.max_pair(past)
            }
            None => peaks,
        };
        Self {
            features: (exponents - peaks.clone()).exp(),
            peaks,
        }
    }

    fn kv_heads(&self) -> usize {
        self.features.dims()[1]
    }

    /// `φ(q_i)·φ(k_j)` up to a factor per query, and 0 for later keys: `[batch, kv_heads, stacked, len]`.
    fn shared(&self, q: &Tensor<B, 4>) -> Tensor<B, 4> {
        let [batch, kv_heads, len, _] = self.features.dims();
        // Repeated instead of broadcast: Burn 0.21's fused kernels vectorize over four rows incorrectly when a
        // column is subtracted from its own transpose.
        let at_query = self.peaks.clone().repeat_dim(3, len); // [batch, kv_heads, len, len]
        let at_key = self.peaks.clone().reshape([batch, kv_heads, 1, len]);
        let at_key = at_key.repeat_dim(2, len);
        let hidden = later_keys(len, &self.features.device()).unsqueeze::<4>();
        let faded = (at_key - at_query + hidden).exp();
        per_query(matmul(q.clone(), self.features.clone().transpose()), faded)
    }

    /// The state after this chunk, relative to the chunk's last peak.
    fn added_to(
        self,
        past: Option<LinearAttentionState<B>>,
        v: Tensor<B, 4>,
    ) -> LinearAttentionState<B> {
        let len = self.peaks.dims()[2];
        let peak = self.peaks.clone().narrow(2, len - 1, 1); // [batch, kv_heads, 1, 1]
        let features = self.features * (self.peaks - peak.clone()).exp();
        let sums = matmul(features.transpose(), v); // [batch, kv_heads, features, head_dim + 1]
        let sums = match past {
            Some(past) => past.sums * (past.peak - peak.clone()).exp() + sums,
            None => sums,
        };
        LinearAttentionState { sums, peak }
    }
}

/// 0 for visible keys and minus infinity for keys after the query, `[len, len]`.
fn later_keys<B: BaseOps>(len: usize, device: &Device<B>) -> Tensor<B, 2> {
    Tensor::<B, 2>::full([len, len], f32::NEG_INFINITY, device).triu(1)
}

/// Multiplies each of the stacked heads of `x` `[batch, kv_heads, stacked, width]` by `factors`
/// `[batch, kv_heads, len, width]`, where the width may also be 1.
fn per_query<B: BaseOps>(x: Tensor<B, 4>, factors: Tensor<B, 4>) -> Tensor<B, 4> {
    let shape = x.dims();
    let [batch, kv_heads, stacked, width] = shape;
    let [_, _, len, factor_width] = factors.dims();
    let x = x.reshape([batch * kv_heads, stacked / len, len, width]);
    (x * factors.reshape([batch * kv_heads, 1, len, factor_width])).reshape(shape)
}
