//! The online softmax over chunks of keys, and its gradient.

use pulp::Simd;

use super::dropout::HeadDropout;
use super::mask::{Block, KeyChunk, LANES, QUERIES, WEIGHTS_ROW};
use super::tile::{store, vector};
use super::visibility::Visibility;
use crate::cpu::vector::{LEAST_EXPONENT, exp, exponential};

/// The running state of a block of queries after the previous chunks.
pub struct Softmax {
    /// The largest score.
    pub largest: [f32; QUERIES],
    /// `Σ exp(score - largest)`.
    pub sums: [f32; QUERIES],
    /// The factor by which the last chunk rescales the previous sums.
    pub correction: [f32; QUERIES],
}

impl Softmax {
    #[inline(always)]
    pub fn new() -> Self {
        Self {
            largest: [f32::NEG_INFINITY; QUERIES],
            sums: [0.0; QUERIES],
            correction: [0.0; QUERIES],
        }
    }

    /// Replaces the scores of a chunk by the weights `exp(score - largest)`, where they are computed;
    /// 0 for hidden keys.
    #[inline(always)]
    pub fn pass<S: Simd>(
        &mut self,
        simd: S,
        block: &Block,
        chunk: &KeyChunk,
        visibility: &Visibility,
        scores: &mut [f32],
    ) {
        // One vector of queries at a time, so their largest scores and sums stay in registers.
        for at in (0..QUERIES).step_by(S::F32_LANES) {
            let column = at / LANES;
            let old = vector::<S>(&self.largest, at);
            let mut largest = old;
            for rows in visibility.key_rows() {
                if !rows.columns.contains(&column) {
                    continue;
                }
                let whole = rows.whole[column];
                for key in rows.keys.clone() {
                    let mut score = vector::<S>(scores, key * WEIGHTS_ROW + at);
                    if !whole {
                        score = block.hide(simd, chunk.keys.start + key, at, score);
                        store::<S>(scores, key * WEIGHTS_ROW + at, score);
                    }
                    largest = simd.max_f32s(score, largest);
                }
            }
            // For a query without a visible key so far, -∞ - 0 gives a weight of 0, while -∞ - (-∞) would be NaN.
            let none = simd.splat_f32s(f32::NEG_INFINITY);
            let nothing = simd.equal_f32s(largest, none);
            let shifts = simd.select_f32s(nothing, simd.splat_f32s(0.0), largest);
            let correction = weight(simd, simd.sub_f32s(old, shifts));
            let mut sums = simd.mul_f32s(vector::<S>(&self.sums, at), correction);
            for rows in visibility.key_rows() {
                if !rows.columns.contains(&column) {
                    continue;
                }
                for key in rows.keys.clone() {
                    let score = vector::<S>(scores, key * WEIGHTS_ROW + at);
                    let weight = weight(simd, simd.sub_f32s(score, shifts));
                    store::<S>(scores, key * WEIGHTS_ROW + at, weight);
                    sums = simd.add_f32s(sums, weight);
                }
            }
            store::<S>(&mut self.largest, at, largest);
            store::<S>(&mut self.sums, at, sums);
            store::<S>(&mut self.correction, at, correction);
        }
    }
}

/// The terms of the softmax's gradient for a block of queries.
pub struct SoftmaxGradient {
    /// `ln Σ exp(score)`.
    pub log_sums: [f32; QUERIES],
    /// `rowsum(dO ∘ O)`.
    pub along: [f32; QUERIES],
}

impl SoftmaxGradient {
    #[inline(always)]
    pub fn new() -> Self {
        Self {
            log_sums: [0.0; QUERIES],
            along: [0.0; QUERIES],
        }
    }

    /// Replaces scores by weights, and gradients of the weights by gradients of the scores times `scale`, where
    /// they are computed. Both are 0 for hidden keys.
    #[inline(always)]
    pub fn pass<S: Simd>(
        &self,
        simd: S,
        (block, chunk, visibility): (&Block, &KeyChunk, &Visibility),
        dropout: Option<(HeadDropout, usize)>,
        scale: f32,
        weights: &mut [f32],
        grads: &mut [f32],
    ) {
        let scales = simd.splat_f32s(scale);
        for rows in visibility.key_rows() {
            let vectors = rows.columns.start * LANES..rows.columns.end * LANES;
            for at in vectors.step_by(S::F32_LANES) {
                let whole = rows.whole[at / LANES];
                let log_sums = vector::<S>(&self.log_sums, at);
                let along = vector::<S>(&self.along, at);
                for key in rows.keys.clone() {
                    let place = key * WEIGHTS_ROW + at;
                    let mut score = vector::<S>(weights, place);
                    let mut grad = vector::<S>(grads, place);
                    if !whole {
                        score = block.hide(simd, chunk.keys.start + key, at, score);
                    }
                    let weight = weight(simd, simd.sub_f32s(score, log_sums));
                    let mut kept = weight;
                    if let Some((of_head, first_query)) = dropout {
                        let of_key = of_head.of_key(chunk.keys.start + key);
                        let factors = of_key.factors::<S>((first_query + at) as u32);
                        kept = simd.mul_f32s(weight, factors);
                        grad = simd.mul_f32s(grad, factors);
                    }
                    let scaled = simd.mul_f32s(weight, scales);
                    let grad = simd.mul_f32s(scaled, simd.sub_f32s(grad, along));
                    store::<S>(weights, place, kept);
                    store::<S>(grads, place, grad);
                }
            }
        }
    }
}

/// The factor that makes the weighted sum of the values of a query its output, and `ln Σ exp(score)`. `sum` is
/// `Σ exp(score - largest)` over the visible keys; 0 if there are none. A sink is one more score.
#[inline(always)]
pub fn finished(largest: f32, sum: f32, sink: Option<f32>) -> (f32, f32) {
    match sink {
        None if sum == 0.0 => (0.0, f32::NEG_INFINITY),
        None => (1.0 / sum, largest + sum.ln()),
        Some(sink) if sum == 0.0 => (0.0, sink),
        Some(sink) => {
            let most = largest.max(sink);
            let shrunk = exp(largest - most);
            let total = sum * shrunk + exp(sink - most);
            (shrunk / total, most + total.ln())
        }
    }
}

/// `e^x` for `x` that is at most 0, up to rounding errors. Compared to [`crate::cpu::vector::exp`], it omits the
/// handling of large `x` and uses fused multiply-adds if the CPU has them.
#[inline(always)]
pub fn weight<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    use exponential::{LN_2_HIGH, LN_2_LOW, P, ROUND};
    let least = simd.splat_f32s(LEAST_EXPONENT);
    let small = simd.less_than_f32s(x, least);
    // A selection, rather than a maximum, so that NaN stays NaN.
    let clamped = simd.select_f32s(small, least, x);
    let log2_e = simd.splat_f32s(std::f32::consts::LOG2_E);
    let shifted = simd.mul_add_e_f32s(clamped, log2_e, simd.splat_f32s(ROUND));
    let n = simd.sub_f32s(shifted, simd.splat_f32s(ROUND));
    let r = simd.mul_add_e_f32s(n, simd.splat_f32s(-LN_2_HIGH), clamped);
    let r = simd.mul_add_e_f32s(n, simd.splat_f32s(-LN_2_LOW), r);
    let mut p = simd.splat_f32s(P[0]);
    p = simd.mul_add_e_f32s(p, r, simd.splat_f32s(P[1]));
    p = simd.mul_add_e_f32s(p, r, simd.splat_f32s(P[2]));
    p = simd.mul_add_e_f32s(p, r, simd.splat_f32s(P[3]));
    p = simd.mul_add_e_f32s(p, r, simd.splat_f32s(P[4]));
    p = simd.mul_add_e_f32s(p, r, simd.splat_f32s(P[5]));
    let value = simd.mul_add_e_f32s(
        p,
        simd.mul_f32s(r, r),
        simd.add_f32s(r, simd.splat_f32s(1.0)),
    );
    // n in two's complement from the lowest bits of `shifted`; 2ⁿ is assembled from its exponent.
    let bias = simd.splat_u32s(127u32.wrapping_sub(ROUND.to_bits()));
    let n = simd.add_u32s(simd.transmute_u32s_f32s(shifted), bias);
    let power = simd.wrapping_dyn_shl_u32s(n, simd.splat_u32s(23));
    let value = simd.mul_f32s(value, simd.transmute_f32s_u32s(power));
    simd.select_f32s(small, simd.splat_f32s(0.0), value)
}
