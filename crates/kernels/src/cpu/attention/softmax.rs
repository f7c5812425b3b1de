//! The softmax over keys that come in pieces.

use pulp::Simd;

use super::cut::Cut;
use super::mask::{Block, LANES, Piece, QUERIES, WEIGHTS_ROW};
use super::tile::{store, vector};
use crate::cpu::vector::{LEAST_EXPONENT, exponential};

/// The running state of a block of queries over the pieces before.
pub struct Softmax {
    /// The largest score.
    pub largest: [f32; QUERIES],
    /// `Σ exp(score - largest)`.
    pub sums: [f32; QUERIES],
    /// The last piece's factor of the sums before it.
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

    /// Makes weights `exp(score - largest)` of a piece's scores in their place, as far as the cut computes them, 0 where a
    /// query does not see a key.
    #[inline(always)]
    pub fn pass<S: Simd>(
        &mut self,
        simd: S,
        block: &Block,
        piece: &Piece,
        cut: &Cut,
        scores: &mut [f32],
    ) {
        // Vector by vector of queries, so that their largest scores and sums stay in registers.
        for at in (0..QUERIES).step_by(S::F32_LANES) {
            let column = at / LANES;
            let old = vector::<S>(&self.largest, at);
            let mut largest = old;
            for rows in cut.key_rows() {
                if !rows.columns.contains(&column) {
                    continue;
                }
                let whole = rows.whole[column];
                for key in rows.keys.clone() {
                    let mut score = vector::<S>(scores, key * WEIGHTS_ROW + at);
                    if !whole {
                        score = block.hide(simd, piece.keys.start + key, at, score);
                        store::<S>(scores, key * WEIGHTS_ROW + at, score);
                    }
                    largest = simd.max_f32s(score, largest);
                }
            }
            // A query without a visible key yet: -∞ - 0 has a weight of 0, while -∞ - (-∞) is NaN.
            let none = simd.splat_f32s(f32::NEG_INFINITY);
            let nothing = simd.equal_f32s(largest, none);
            let shifts = simd.select_f32s(nothing, simd.splat_f32s(0.0), largest);
            let correction = weight(simd, simd.sub_f32s(old, shifts));
            let mut sums = simd.mul_f32s(vector::<S>(&self.sums, at), correction);
            for rows in cut.key_rows() {
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

/// `e^x` where `x` is not above 0, but for rounding: [`crate::cpu::vector::exp`] without what it does for large numbers,
/// and with fused multiply-adds if the CPU has them.
#[inline(always)]
pub fn weight<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    use exponential::{LN_2_HIGH, LN_2_LOW, P, ROUND};
    let least = simd.splat_f32s(LEAST_EXPONENT);
    let small = simd.less_than_f32s(x, least);
    // A selection that a NaN passes unchanged.
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
    // n in two's complement from the lowest bits of `shifted`, and 2ⁿ by its exponent.
    let bias = simd.splat_u32s(127u32.wrapping_sub(ROUND.to_bits()));
    let n = simd.add_u32s(simd.transmute_u32s_f32s(shifted), bias);
    let power = simd.wrapping_dyn_shl_u32s(n, simd.splat_u32s(23));
    let value = simd.mul_f32s(value, simd.transmute_f32s_u32s(power));
    simd.select_f32s(small, simd.splat_f32s(0.0), value)
}
