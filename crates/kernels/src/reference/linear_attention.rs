//! Causal linear attention by positive random features (Choromanski et al. 2021, "FAVOR+").
//!
//! With `x' = x / head_dim^¼` and the rows `ω` of `features`, `φ(x) = exp(ω x' - ‖x'‖²/2)` has
//! `E[φ(q)·φ(k)] = exp(q·k / √head_dim)` for Gaussian `ω`, so that
//!
//! ```text
//! o_i = Σ_{j≤i} (φ(q_i)·φ(k_j)) v_j / Σ_{j≤i} φ(q_i)·φ(k_j) = φ(q_i)ᵀ S_i / φ(q_i)ᵀ z_i,
//! S_i = Σ_{j≤i} φ(k_j) v_jᵀ,   z_i = Σ_{j≤i} φ(k_j)
//! ```
//!
//! estimates softmax attention at a cost linear in the sequence. It goes by chunks: within one the left form, masked;
//! from the chunks before it the right form. Values carry a column of ones, so that both sums are one product.
//!
//! Exponents are shifted so that none is above 0. What a query's features share cancels in the ratio: they are shifted
//! by their own maximum and need no `‖q'‖²`. Keys are shifted by the maximum so far, `peak_j`, never by a later key's:
//! that would let a large key empty the sums of the queries before it. A term made under `peak_j` counts
//! `exp(peak_j - peak_i)` at query `i`. The shifts cancel too, and are constants to the gradient.
//!
//! No division is differentiated: Burn's backward of one takes a reciprocal, on ndarray an estimate of 12 to 14 bits.

use burn::tensor::{Device, Tensor};

use super::attention::stacked;
use super::matmul;
use crate::{Backend, LinearAttentionState};

/// Added to the sum of a query's weights: where no feature is both the query's and a key's within f32's range, the
/// output is 0. Its power -3/2, in the backward, is finite.
const FLOOR: f64 = 1e-20;

/// `q` `[batch, heads, seq, head_dim]`, `k` and `v` `[batch, kv_heads, seq, head_dim]`, `features`
/// `[features, head_dim]`, continuing `past`: the output as `q`, and the sums with these tokens in them.
pub fn linear_attention<B: Backend>(
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

/// The weights that the estimate gives each value, `[batch, heads, seq, seq]`.
pub fn linear_attention_weights<B: Backend>(
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

/// One chunk's outputs, and the state after it.
fn one_chunk<B: Backend>(
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

/// `ωᵀ / head_dim^¼`, `[head_dim, features]`.
fn map_of<B: Backend>(features: Tensor<B, 2>) -> Tensor<B, 2> {
    let head_dim = features.dims()[1] as f64;
    features.transpose() * head_dim.powf(-0.25)
}

/// `ω x'`, `[batch, heads, seq, features]`, as one product over all tokens.
fn mapped<B: Backend>(x: Tensor<B, 4>, map: &Tensor<B, 2>) -> Tensor<B, 4> {
    let [batch, heads, seq, head_dim] = x.dims();
    let features = map.dims()[1];
    let rows = x.reshape([batch * heads * seq, head_dim]);
    matmul(rows, map.clone()).reshape([batch, heads, seq, features])
}

/// The queries' features, the heads that share keys stacked: `[batch, kv_heads, heads / kv_heads · seq, features]`.
fn queries<B: Backend>(q: Tensor<B, 4>, kv_heads: usize, map: &Tensor<B, 2>) -> Tensor<B, 4> {
    let exponents = mapped(stacked(q, kv_heads), map);
    let peaks = exponents.clone().detach().max_dim(3);
    (exponents - peaks).exp()
}

/// A chunk's keys.
struct Keys<B: Backend> {
    /// `φ(k_j) / exp(peak_j)`, `[batch, kv_heads, len, features]`.
    features: Tensor<B, 4>,
    /// `peak_j`, `[batch, kv_heads, len, 1]`.
    peaks: Tensor<B, 4>,
}

impl<B: Backend> Keys<B> {
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

    /// `φ(q_i)·φ(k_j)` up to a factor for each query, 0 for later keys: `[batch, kv_heads, stacked, len]`.
    fn shared(&self, q: &Tensor<B, 4>) -> Tensor<B, 4> {
        let [batch, kv_heads, len, _] = self.features.dims();
        // Spelled out rather than broadcast: Burn 0.21's fused kernels read a column that is subtracted from its own
        // transpose four rows at a time.
        let at_query = self.peaks.clone().repeat_dim(3, len); // [batch, kv_heads, len, len]
        let at_key = self.peaks.clone().reshape([batch, kv_heads, 1, len]);
        let at_key = at_key.repeat_dim(2, len);
        let hidden = later_keys(len, &self.features.device()).unsqueeze::<4>();
        let faded = (at_key - at_query + hidden).exp();
        per_query(matmul(q.clone(), self.features.clone().transpose()), faded)
    }

    /// The sums with this chunk's tokens in them, under its last peak.
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

/// 0 where query `i` sees key `j`, minus infinity where it does not, `[len, len]`.
fn later_keys<B: Backend>(len: usize, device: &Device<B>) -> Tensor<B, 2> {
    Tensor::<B, 2>::full([len, len], f32::NEG_INFINITY, device).triu(1)
}

/// Multiplies each of the stacked heads of `x` `[batch, kv_heads, stacked, width]` by `factors`
/// `[batch, kv_heads, len, width]`, or of width 1.
fn per_query<B: Backend>(x: Tensor<B, 4>, factors: Tensor<B, 4>) -> Tensor<B, 4> {
    let shape = x.dims();
    let [batch, kv_heads, stacked, width] = shape;
    let [_, _, len, factor_width] = factors.dims();
    let x = x.reshape([batch * kv_heads, stacked / len, len, width]);
    (x * factors.reshape([batch * kv_heads, 1, len, factor_width])).reshape(shape)
}
