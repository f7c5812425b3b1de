//! Blocks of 32 weights with one scale `d`, and possibly a minimum `m`, in f16.
//!
//! | format | layout | a weight |
//! |---|---|---|
//! | q8_0 | `d`, 32 signed bytes | `d q` |
//! | q4_0 | `d`, 16 bytes | `d (q - 8)` |
//! | q4_1 | `d`, `m`, 16 bytes | `d q + m` |
//! | q5_0 | `d`, 4 bytes of fifth bits, 16 bytes | `d (q - 16)` |
//! | q5_1 | `d`, `m`, 4 bytes of fifth bits, 16 bytes | `d q + m` |
//!
//! Byte `j` of the 16 has weight `j` in its low half and weight `j + 16` in its high half. The fifth bits are bits
//! of one number, in the order of the weights.

use super::search::{self, Affine};
use super::{put_scale, scale};

/// Weights per block.
const LEN: usize = 32;

/// The search for the scale and minimum of a block with importance.
const AFFINE: Affine = Affine {
    start: -0.9,
    step: 0.05,
    steps: 36,
    absolute: false,
};

#[inline(always)]
pub(super) fn unpack_q8_0(block: &[u8; 34], out: &mut [f32; LEN]) {
    let d = scale(block, 0);
    for (out, q) in out.iter_mut().zip(&block[2..]) {
        *out = f32::from(q.cast_signed()) * d;
    }
}

#[inline(always)]
pub(super) fn unpack_q4_0(block: &[u8; 18], out: &mut [f32; LEN]) {
    let d = scale(block, 0);
    for j in 0..LEN / 2 {
        let q = block[2 + j];
        out[j] = (f32::from(q & 15) - 8.0) * d;
        out[j + LEN / 2] = (f32::from(q >> 4) - 8.0) * d;
    }
}

#[inline(always)]
pub(super) fn unpack_q4_1(block: &[u8; 20], out: &mut [f32; LEN]) {
    let (d, m) = (scale(block, 0), scale(block, 2));
    for j in 0..LEN / 2 {
        let q = block[4 + j];
        out[j] = f32::from(q & 15) * d + m;
        out[j + LEN / 2] = f32::from(q >> 4) * d + m;
    }
}

#[inline(always)]
pub(super) fn unpack_q5_0(block: &[u8; 22], out: &mut [f32; LEN]) {
    let d = scale(block, 0);
    let fifth = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
    for j in 0..LEN / 2 {
        let [low, high] = five_bits(block[6 + j], fifth, j);
        out[j] = (low - 16.0) * d;
        out[j + LEN / 2] = (high - 16.0) * d;
    }
}

#[inline(always)]
pub(super) fn unpack_q5_1(block: &[u8; 24], out: &mut [f32; LEN]) {
    let (d, m) = (scale(block, 0), scale(block, 2));
    let fifth = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
    for j in 0..LEN / 2 {
        let [low, high] = five_bits(block[8 + j], fifth, j);
        out[j] = low * d + m;
        out[j + LEN / 2] = high * d + m;
    }
}

/// Weights `j` and `j + 16` of a block with fifth bits.
#[inline(always)]
fn five_bits(q: u8, fifth: u32, j: usize) -> [f32; 2] {
    let bit = |at: usize| ((fifth >> at) & 1) << 4;
    let low = u32::from(q & 15) | bit(j);
    let high = u32::from(q >> 4) | bit(j + LEN / 2);
    [low as f32, high as f32]
}

/// The importance of a row's weights, relative to their mean square.
#[derive(Clone, Copy)]
pub(super) struct Importance {
    mean_square: f32,
}

impl Importance {
    pub(super) fn of(row: &[f32], importance: Option<&[f32]>) -> Self {
        let sum = match importance {
            Some(_) => search::sum_of_squares(row),
            None => 0.0,
        };
        Self {
            mean_square: sum / row.len() as f32,
        }
    }

    /// The importance of each rounding error of a block.
    pub(super) fn block(
        self,
        w: &[f32; LEN],
        importance: Option<&[f32; LEN]>,
    ) -> Option<[f32; LEN]> {
        importance.map(|importance| search::error_weights(w, importance, self.mean_square))
    }
}

pub(super) fn pack_q8_0(w: &[f32; LEN], out: &mut [u8; 34]) {
    let largest = w.iter().fold(0.0f32, |largest, w| largest.max(w.abs()));
    let d = largest / 127.0;
    let inverse = inverse(d);
    put_scale(out, 0, d);
    for (out, w) in out[2..].iter_mut().zip(w) {
        *out = ((w * inverse).round() as i8).cast_unsigned();
    }
}

pub(super) fn pack_q4_0(w: &[f32; LEN], importance: Option<[f32; LEN]>, out: &mut [u8; 18]) {
    let (d, q) = symmetric(w, 8, importance);
    put_scale(out, 0, d);
    put_halves(&q, &mut out[2..]);
}

pub(super) fn pack_q4_1(w: &[f32; LEN], importance: Option<[f32; LEN]>, out: &mut [u8; 20]) {
    let (d, m, q) = affine(w, 15, importance);
    put_scale(out, 0, d);
    put_scale(out, 2, m);
    put_halves(&q, &mut out[4..]);
}

pub(super) fn pack_q5_0(w: &[f32; LEN], importance: Option<[f32; LEN]>, out: &mut [u8; 22]) {
    let (d, q) = symmetric(w, 16, importance);
    put_scale(out, 0, d);
    put_five_bits(&q, &mut out[2..]);
}

pub(super) fn pack_q5_1(w: &[f32; LEN], importance: Option<[f32; LEN]>, out: &mut [u8; 24]) {
    let (d, m, q) = affine(w, 31, importance);
    put_scale(out, 0, d);
    put_scale(out, 2, m);
    put_five_bits(&q, &mut out[4..]);
}

/// The scale and values of a block of `2 half` levels. Without importance, the weight of the largest magnitude
/// becomes the lowest level.
fn symmetric(w: &[f32; LEN], half: u8, importance: Option<[f32; LEN]>) -> (f32, [u8; LEN]) {
    let mut q = [0; LEN];
    if let Some(importance) = importance {
        let d = search::symmetric(w, &importance, half, &mut q);
        return (d, q);
    }
    let d = search::extreme(w) / -f32::from(half);
    let inverse = inverse(d);
    for (q, w) in q.iter_mut().zip(w) {
        let level = (w * inverse + (f32::from(half) + 0.5)) as u8;
        *q = level.min(2 * half - 1);
    }
    (d, q)
}

/// The scale, minimum and values of a block with levels `0..=top`.
fn affine(w: &[f32; LEN], top: u8, importance: Option<[f32; LEN]>) -> (f32, f32, [u8; LEN]) {
    let mut q = [0; LEN];
    if let Some(importance) = importance {
        let (d, below) = search::affine(w, &importance, top, AFFINE, &mut q);
        return (d, -below, q);
    }
    // Not `f32::min`, which may return either of two zeros.
    let lower = |least: f32, &w: &f32| if w < least { w } else { least };
    let higher = |most: f32, &w: &f32| if w > most { w } else { most };
    let least = w.iter().fold(f32::MAX, lower);
    let most = w.iter().fold(-f32::MAX, higher);
    let d = (most - least) / f32::from(top);
    let inverse = inverse(d);
    for (q, w) in q.iter_mut().zip(w) {
        *q = (((w - least) * inverse + 0.5) as u8).min(top);
    }
    (d, least, q)
}

/// `1 / d`, or 0 if `d` is 0.
fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// Writes two 4-bit values per byte.
pub(super) fn put_halves(q: &[u8; LEN], out: &mut [u8]) {
    for (j, out) in out.iter_mut().enumerate() {
        *out = q[j] | q[j + LEN / 2] << 4;
    }
}

/// Writes the fifth bits, then the low 4 bits.
fn put_five_bits(q: &[u8; LEN], out: &mut [u8]) {
    let (fifth, low) = out.split_at_mut(4);
    let bits = q
        .iter()
        .rev()
        .fold(0u32, |bits, q| bits << 1 | u32::from(q >> 4));
    fifth.copy_from_slice(&bits.to_le_bytes());
    put_halves(&q.map(|q| q & 15), low);
}
