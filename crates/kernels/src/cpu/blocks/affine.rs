//! Blocks of 256 weights `d s q - e t`: each sub-block has a quantized scale `s` and minimum `t`, and the block has
//! `d` and `e` in f16.
//!
//! | format | sub-block | layout |
//! |---|---|---|
//! | q2_k | 16 | 16 bytes with `s` in the low and `t` in the high half, 64 bytes of 2-bit values, `d`, `e` |
//! | q4_k | 32 | `d`, `e`, 12 bytes of scales and minimums, 128 bytes of 4-bit values |
//! | q5_k | 32 | `d`, `e`, 12 bytes of scales and minimums, 32 bytes of fifth bits, 128 bytes of low 4 bits |
//!
//! 2-bit values: each half of the block has 32 bytes. Byte `l` has weight `32 i + l` of its half in bits `2 i` and
//! `2 i + 1`. 4-bit values: each quarter has 32 bytes, with weight `l` in the low and `32 + l` in the high half of
//! byte `l`. Fifth bits: bit `i` of byte `l` belongs to weight `32 i + l` of the block.

use super::bytes::{map, or};
use super::search::{self, Affine, nearest};
use super::{Subs, put_scale, scale, six_bit_scales};

/// Weights per block.
const LEN: usize = 256;

#[inline(always)]
pub(super) fn levels_q2(block: &[u8; 84], q: &mut [u8; LEN], subs: &mut Subs<'_>) {
    let (d, e) = (scale(block, 80), scale(block, 82));
    let (mut scales, mut minimums) = ([0.0; 16], [0.0; 16]);
    for (scale, sub) in scales.iter_mut().zip(&block[..16]) {
        *scale = d * f32::from(sub & 15);
    }
    for (minimum, sub) in minimums.iter_mut().zip(&block[..16]) {
        *minimum = e * f32::from(sub >> 4);
    }
    subs.scales.copy_from_slice(&scales);
    subs.minimums.copy_from_slice(&minimums);
    get_pairs(&block[16..80], q);
}

#[inline(always)]
pub(super) fn levels_q4(block: &[u8; 144], q: &mut [u8; LEN], subs: &mut Subs<'_>) {
    get_wide_subs(block, subs);
    get_halves(&block[16..], q);
}

#[inline(always)]
pub(super) fn levels_q5(block: &[u8; 176], q: &mut [u8; LEN], subs: &mut Subs<'_>) {
    get_wide_subs(block, subs);
    let (fifth, low) = block[16..].split_at(32);
    get_halves(low, q);
    let (q, _) = q.as_chunks_mut::<32>();
    for (j, q) in q.iter_mut().enumerate() {
        *q = or(&q[..], map(fifth, |byte| (byte >> j & 1) << 4));
    }
}

/// Reads the scales and minimums of sub-blocks of 32 weights.
#[inline(always)]
fn get_wide_subs(block: &[u8], subs: &mut Subs<'_>) {
    let (d, e) = (scale(block, 0), scale(block, 2));
    let (scales, minimums) = six_bit_scales::get(&block[4..16]);
    let (mut all_d, mut all_m) = ([0.0; 16], [0.0; 16]);
    for j in 0..16 {
        all_d[j] = d * f32::from(scales[j / 2]);
    }
    for j in 0..16 {
        all_m[j] = e * f32::from(minimums[j / 2]);
    }
    subs.scales.copy_from_slice(&all_d);
    subs.minimums.copy_from_slice(&all_m);
}

pub(super) fn pack_q2(w: &[f32; LEN], importance: Option<&[f32; LEN]>, out: &mut [u8; 84]) {
    let levels = Levels {
        top: 3,
        scales: 15,
        search: Affine {
            start: -0.5,
            step: 0.1,
            steps: 15,
            absolute: true,
        },
    };
    let squares = search::sum_of_squares(w) / LEN as f32;
    let packed = Packed::<16>::of(
        w,
        importance,
        &levels,
        squares,
        |w: &[f32; 16]| w.map(f32::abs),
        &mut out[80..],
    );
    let subs = packed.scales.iter().zip(&packed.minimums);
    for (out, (scale, minimum)) in out.iter_mut().zip(subs) {
        *out = scale | minimum << 4;
    }
    put_q2(&packed.q, out);
}

/// Writes the values of a q2_k block.
pub(super) fn put_q2(q: &[u8; LEN], out: &mut [u8; 84]) {
    put_pairs(q, &mut out[16..80]);
}

pub(super) fn pack_q4(w: &[f32; LEN], importance: Option<&[f32; LEN]>, out: &mut [u8; 144]) {
    let levels = Levels {
        top: 15,
        scales: 63,
        search: Affine {
            start: -1.0,
            step: 0.1,
            steps: 20,
            absolute: false,
        },
    };
    let packed = pack_wide(w, importance, &levels, out);
    put_q4(&packed.q, out);
}

/// Writes the values of a q4_k block.
pub(super) fn put_q4(q: &[u8; LEN], out: &mut [u8; 144]) {
    put_halves(q, &mut out[16..]);
}

pub(super) fn pack_q5(w: &[f32; LEN], importance: Option<&[f32; LEN]>, out: &mut [u8; 176]) {
    let levels = Levels {
        top: 31,
        scales: 63,
        search: Affine {
            start: -0.5,
            step: 0.1,
            steps: 15,
            absolute: false,
        },
    };
    let packed = pack_wide(w, importance, &levels, out);
    put_q5(&packed.q, out);
}

/// Writes the values of a q5_k block.
pub(super) fn put_q5(q: &[u8; LEN], out: &mut [u8; 176]) {
    let (fifth, low) = out[16..].split_at_mut(32);
    for (l, fifth) in fifth.iter_mut().enumerate() {
        let bits = (0..8).map(|i| q[32 * i + l] >> 4 << i);
        *fifth = bits.fold(0, |byte, bit| byte | bit);
    }
    put_halves(&q.map(|q| q & 15), low);
}

/// Packs the scales and minimums of sub-blocks of 32 weights.
fn pack_wide(
    w: &[f32; LEN],
    importance: Option<&[f32; LEN]>,
    levels: &Levels,
    out: &mut [u8],
) -> Packed<32> {
    let squares = 2.0 * search::sum_of_squares(w) / LEN as f32;
    let weights = |w: &[f32; 32]| {
        let deviation = (search::sum_of_squares(w) / 32.0).sqrt();
        w.map(|w| deviation + w.abs())
    };
    let packed = Packed::<32>::of(w, importance, levels, squares, weights, out);
    six_bit_scales::put(&packed.scales, &packed.minimums, &mut out[4..16]);
    packed
}

/// The numbers of levels of a format.
struct Levels {
    /// The highest level of a weight.
    top: u8,
    /// The highest level of a scale or minimum.
    scales: u8,
    /// The search for scales and minimums without importance.
    search: Affine,
}

/// The search for scales and minimums with importance.
const BY_IMPORTANCE: Affine = Affine {
    start: -0.9,
    step: 0.05,
    steps: 36,
    absolute: false,
};

/// A packed block with sub-blocks of `SUB` weights.
struct Packed<const SUB: usize> {
    /// One per sub-block; 16 suffice for all sizes.
    scales: [u8; 16],
    minimums: [u8; 16],
    q: [u8; LEN],
}

impl<const SUB: usize> Packed<SUB> {
    /// Packs a block, and writes `d` and `e` to the first four bytes of `out`. `error_weights` is the importance of a
    /// sub-block's rounding errors if no importance is given, and `mean_square` scales a given one.
    fn of(
        w: &[f32; LEN],
        importance: Option<&[f32; LEN]>,
        levels: &Levels,
        mean_square: f32,
        error_weights: impl Fn(&[f32; SUB]) -> [f32; SUB],
        out: &mut [u8],
    ) -> Self {
        let mut packed = Self {
            scales: [0; 16],
            minimums: [0; 16],
            q: [0; LEN],
        };
        let (subs, _) = w.as_chunks::<SUB>();
        let (mut scales, mut minimums, mut sums) = ([0.0; 16], [0.0; 16], [0.0; 16]);
        for (j, (w, q)) in subs.iter().zip(packed.q.chunks_mut(SUB)).enumerate() {
            let (errors, search) = match importance {
                Some(all) => {
                    let importance = &all[j * SUB..(j + 1) * SUB];
                    let errors = search::error_weights(w, importance, mean_square);
                    (errors, BY_IMPORTANCE)
                }
                None => (error_weights(w), levels.search),
            };
            sums[j] = errors.iter().fold(0.0, |sum, error| sum + error);
            (scales[j], minimums[j]) = search::affine(w, &errors, levels.top, search, q);
        }
        let count = subs.len();
        let quantize = |values: &[f32], q: &mut [u8]| match importance {
            Some(_) => search::positive(values, &sums[..count], levels.scales, q),
            None => round_positive(values, levels.scales, q),
        };
        let d = quantize(&scales[..count], &mut packed.scales[..count]);
        let e = quantize(&minimums[..count], &mut packed.minimums[..count]);
        let (d, e) = (put_scale(out, 0, d), put_scale(out, 2, e));
        // Rounds each weight again with the rounded scales.
        for (j, (w, q)) in subs.iter().zip(packed.q.chunks_mut(SUB)).enumerate() {
            let d = d * f32::from(packed.scales[j]);
            if d == 0.0 {
                continue;
            }
            let m = e * f32::from(packed.minimums[j]);
            for (q, w) in q.iter_mut().zip(w) {
                *q = nearest((w + m) / d).clamp(0, i32::from(levels.top)) as u8;
            }
        }
        packed
    }
}

/// Quantizes non-negative numbers to levels `0..=top`, with the largest at `top`. Returns the scale.
fn round_positive(values: &[f32], top: u8, q: &mut [u8]) -> f32 {
    let most = values.iter().fold(
        0.0f32,
        |most, &value| if value > most { value } else { most },
    );
    let inverse = if most > 0.0 {
        f32::from(top) / most
    } else {
        0.0
    };
    for (q, value) in q.iter_mut().zip(values) {
        *q = (nearest(inverse * value) as u8).min(top);
    }
    most / f32::from(top)
}

/// Reads four 2-bit values per byte.
#[inline(always)]
pub(super) fn get_pairs(bytes: &[u8], q: &mut [u8; LEN]) {
    for (q, bytes) in q.chunks_exact_mut(128).zip(bytes.chunks_exact(32)) {
        let (q, _) = q.as_chunks_mut::<32>();
        for (i, q) in q.iter_mut().enumerate() {
            *q = map(bytes, |byte| byte >> (2 * i) & 3);
        }
    }
}

/// Reads two 4-bit values per byte.
#[inline(always)]
fn get_halves(bytes: &[u8], q: &mut [u8; LEN]) {
    let (q, _) = q.as_chunks_mut::<32>();
    for (q, bytes) in q.chunks_exact_mut(2).zip(bytes.chunks_exact(32)) {
        q[0] = map(bytes, |byte| byte & 15);
        q[1] = map(bytes, |byte| byte >> 4);
    }
}

/// Writes four 2-bit values per byte.
pub(super) fn put_pairs(q: &[u8; LEN], out: &mut [u8]) {
    for (q, out) in q.chunks(128).zip(out.chunks_mut(32)) {
        for (l, out) in out.iter_mut().enumerate() {
            *out = q[l] | q[l + 32] << 2 | q[l + 64] << 4 | q[l + 96] << 6;
        }
    }
}

/// Writes two 4-bit values per byte.
fn put_halves(q: &[u8; LEN], out: &mut [u8]) {
    for (q, out) in q.chunks(64).zip(out.chunks_mut(32)) {
        for (l, out) in out.iter_mut().enumerate() {
            *out = q[l] | q[l + 32] << 4;
        }
    }
}
