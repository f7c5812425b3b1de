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

use super::bytes::{map, or};
use super::float::f16_to_f32;
use super::levels::{SUB, Subs};
use super::put_scale;
use super::search::{self, Affine};

/// Weights per block.
const LEN: usize = 32;

/// The search for the scale and minimum of a block with importance.
const AFFINE: Affine = Affine {
    start: -0.9,
    step: 0.05,
    steps: 36,
    absolute: false,
};

/// Blocks whose scales are converted at a time.
const GROUP: usize = 8;

/// Reads the levels of some blocks with the scale first, and then the minimum if there is one.
#[inline(always)]
pub(super) fn read<const BYTES: usize, const MINIMUM: bool>(
    bytes: &[u8],
    q: &mut [u8],
    subs: Subs<'_>,
    levels: impl Fn(&[u8; BYTES], &mut [u8; LEN]) + Copy,
) {
    let blocks = bytes.as_chunks::<BYTES>().0;
    // There may be room for more blocks.
    let q = &mut q.as_chunks_mut().0[..blocks.len()];
    let scales = &mut subs.scales.as_chunks_mut().0[..blocks.len()];
    let minimums = &mut subs.minimums.as_chunks_mut().0[..blocks.len()];
    let (groups, rest) = blocks.as_chunks::<GROUP>();
    let (q, rest_q) = q.as_chunks_mut::<GROUP>();
    let (scales, rest_scales) = scales.as_chunks_mut::<GROUP>();
    let (minimums, rest_minimums) = minimums.as_chunks_mut::<GROUP>();
    let subs = scales.iter_mut().zip(minimums);
    for ((blocks, q), (scales, minimums)) in groups.iter().zip(q).zip(subs) {
        read_group::<BYTES, MINIMUM, GROUP>(blocks, q, scales, minimums, levels);
    }
    let blocks = rest.as_chunks().0.iter().zip(rest_q.as_chunks_mut().0);
    let subs = rest_scales.as_chunks_mut().0.iter_mut();
    let subs = subs.zip(rest_minimums.as_chunks_mut().0);
    for ((blocks, q), (scales, minimums)) in blocks.zip(subs) {
        read_group::<BYTES, MINIMUM, 1>(blocks, q, scales, minimums, levels);
    }
}

// Loops instead of `array::map`, which would be compiled for the baseline CPU.
#[inline(always)]
fn read_group<const BYTES: usize, const MINIMUM: bool, const COUNT: usize>(
    blocks: &[[u8; BYTES]; COUNT],
    q: &mut [[u8; LEN]; COUNT],
    scales: &mut [[f32; LEN / SUB]; COUNT],
    minimums: &mut [[f32; LEN / SUB]; COUNT],
    levels: impl Fn(&[u8; BYTES], &mut [u8; LEN]) + Copy,
) {
    let (mut d, mut m) = ([0; COUNT], [0; COUNT]);
    for (at, block) in blocks.iter().enumerate() {
        d[at] = u16::from_le_bytes([block[0], block[1]]);
        if MINIMUM {
            // Stored minimums are added, those of levels subtracted.
            m[at] = u16::from_le_bytes([block[2], block[3]]) ^ 0x8000;
        }
    }
    for at in 0..COUNT {
        scales[at] = [f16_to_f32(d[at]); LEN / SUB];
        minimums[at] = [f16_to_f32(m[at]); LEN / SUB];
    }
    for (block, q) in blocks.iter().zip(q) {
        levels(block, q);
    }
}

#[inline(always)]
pub(super) fn levels_q8_0(block: &[u8; 34], q: &mut [u8; LEN]) {
    *q = map(&block[2..], |byte| byte ^ 0x80);
}

#[inline(always)]
pub(super) fn levels_q4_0(block: &[u8; 18], q: &mut [u8; LEN]) {
    get_halves(&block[2..], q);
}

#[inline(always)]
pub(super) fn levels_q4_1(block: &[u8; 20], q: &mut [u8; LEN]) {
    get_halves(&block[4..], q);
}

#[inline(always)]
pub(super) fn levels_q5_0(block: &[u8; 22], q: &mut [u8; LEN]) {
    get_five_bits(&block[2..], q);
}

#[inline(always)]
pub(super) fn levels_q5_1(block: &[u8; 24], q: &mut [u8; LEN]) {
    get_five_bits(&block[4..], q);
}

/// Reads two 4-bit values per byte.
#[inline(always)]
pub(super) fn get_halves(bytes: &[u8], q: &mut [u8; LEN]) {
    *q = halves(bytes);
}

#[inline(always)]
fn halves(bytes: &[u8]) -> [u8; LEN] {
    let (mut both, mut q) = ([0u8; LEN / 2], [0u8; LEN]);
    both.copy_from_slice(&bytes[..LEN / 2]);
    for (j, byte) in both.iter().enumerate() {
        q[j] = byte & 15;
    }
    for (j, byte) in both.iter().enumerate() {
        q[j + LEN / 2] = byte >> 4;
    }
    q
}

/// Reads the fifth bits, and adds them to the low 4 bits.
#[inline(always)]
fn get_five_bits(bytes: &[u8], q: &mut [u8; LEN]) {
    let low = halves(&bytes[4..]);
    let fifth = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let mut upper = [0u8; LEN];
    for (j, upper) in upper.iter_mut().enumerate() {
        *upper = ((fifth >> j & 1) << 4) as u8;
    }
    *q = or(&low, upper);
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
pub(super) fn put_five_bits(q: &[u8; LEN], out: &mut [u8]) {
    let (fifth, low) = out.split_at_mut(4);
    let bits = q
        .iter()
        .rev()
        .fold(0u32, |bits, q| bits << 1 | u32::from(q >> 4));
    fifth.copy_from_slice(&bits.to_le_bytes());
    put_halves(&q.map(|q| q & 15), low);
}
