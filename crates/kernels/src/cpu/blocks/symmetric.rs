//! Blocks of 256 weights `d s q` with signed `q`: each sub-block of 16 has a quantized scale `s`, and the block has
//! `d` in f16.
//!
//! | format | layout |
//! |---|---|
//! | q3_k | 32 bytes of third bits, 64 bytes of low 2 bits, 12 bytes of scales, `d` |
//! | q6_k | 128 bytes of low 4 bits, 64 bytes of upper 2 bits, 16 bytes of scales, `d` |
//!
//! q3_k stores `q + 4` and `s + 32`. The low 2 bits are as in [`super::affine`]; third bits as its fifth bits. Scale
//! `j` has its low 4 bits in byte `j % 8`, in the half `j / 8`, and its upper 2 bits in byte `8 + j % 4`, from bit
//! `2 (j / 4)`.
//!
//! q6_k stores `q + 32` and a signed byte per scale. Each half of the block has 64 bytes of low bits: byte `l` has
//! weight `l` of the half in its low and weight `64 + l` in its high half. It has 32 bytes of upper bits, laid out as
//! 2-bit values.

use super::affine::{get_pairs, put_pairs};
use super::bytes::{map, or};
use super::search::{self, nearest};
use super::{Subs, put_scale, scale};

/// Weights per block.
const LEN: usize = 256;
/// Sub-blocks per block, and weights per sub-block.
const SUB: usize = 16;

#[inline(always)]
pub(super) fn levels_q3(block: &[u8; 110], q: &mut [u8; LEN], subs: &mut Subs<'_>) {
    let d = scale(block, 108);
    subs.minimums.fill(0.0);
    for (sub, scale) in subs.scales.iter_mut().zip(scales_q3(&block[96..108])) {
        *sub = d * f32::from(scale);
    }
    let (third, low) = block.split_at(32);
    get_pairs(&low[..64], q);
    let (q, _) = q.as_chunks_mut::<32>();
    for (j, q) in q.iter_mut().enumerate() {
        *q = or(&q[..], map(third, |byte| (byte >> j & 1) << 2));
    }
}

#[inline(always)]
pub(super) fn levels_q6(block: &[u8; 210], q: &mut [u8; LEN], subs: &mut Subs<'_>) {
    let d = scale(block, 208);
    subs.minimums.fill(0.0);
    let mut scales = [0.0; SUB];
    for (scale, byte) in scales.iter_mut().zip(&block[192..208]) {
        *scale = d * f32::from(byte.cast_signed());
    }
    subs.scales.copy_from_slice(&scales);
    get_pairs(&block[128..192], q);
    let (q, _) = q.as_chunks_mut::<32>();
    for (q, bytes) in q.chunks_exact_mut(4).zip(block.chunks_exact(64)) {
        let (first, second) = bytes.split_at(32);
        let upper = |q: &[u8; 32]| map(q, |level| level << 4);
        q[0] = or(&upper(&q[0]), map(first, |byte| byte & 15));
        q[1] = or(&upper(&q[1]), map(second, |byte| byte & 15));
        q[2] = or(&upper(&q[2]), map(first, |byte| byte >> 4));
        q[3] = or(&upper(&q[3]), map(second, |byte| byte >> 4));
    }
}

pub(super) fn pack_q3(w: &[f32; LEN], importance: Option<&[f32; LEN]>, out: &mut [u8; 110]) {
    let (subs, _) = w.as_chunks::<SUB>();
    let (mut q, mut scales, mut levels) = ([0; LEN], [0.0; SUB], [0; SUB]);
    let d = match importance {
        None => {
            for ((w, q), scale) in subs.iter().zip(q.chunks_mut(SUB)).zip(&mut scales) {
                *scale = search::symmetric_by_level(w, 4, q);
            }
            let inverse = -32.0 / search::extreme(&scales);
            match inverse.is_finite() {
                true => {
                    levels =
                        scales.map(|scale| (nearest(inverse * scale).clamp(-32, 31) + 32) as u8);
                    1.0 / inverse
                }
                false => 0.0,
            }
        }
        Some(importance) => {
            let mean_square = 2.0 * search::sum_of_squares(w) / LEN as f32;
            let mut sums = [0.0; SUB];
            for (j, (w, q)) in subs.iter().zip(q.chunks_mut(SUB)).enumerate() {
                let importance = &importance[j * SUB..(j + 1) * SUB];
                let errors = search::error_weights(w, importance, mean_square);
                sums[j] = errors.iter().fold(0.0, |sum, error| sum + error);
                scales[j] = search::symmetric(w, &errors, 4, q);
            }
            search::symmetric(&scales, &sums, 32, &mut levels)
        }
    };
    let d = put_scale(out, 108, d);
    put_scales_q3(&levels, &mut out[96..108]);
    for ((w, q), level) in subs.iter().zip(q.chunks_mut(SUB)).zip(levels) {
        round_again(w, d * (f32::from(level) - 32.0), 4, q);
    }
    put_q3(&q, out);
}

/// Writes the values of a q3_k block.
pub(super) fn put_q3(q: &[u8; LEN], out: &mut [u8; 110]) {
    for (l, third) in out[..32].iter_mut().enumerate() {
        let bits = (0..8).map(|i| q[32 * i + l] >> 2 << i);
        *third = bits.fold(0, |byte, bit| byte | bit);
    }
    put_pairs(&q.map(|q| q & 3), &mut out[32..96]);
}

pub(super) fn pack_q6(w: &[f32; LEN], importance: Option<&[f32; LEN]>, out: &mut [u8; 210]) {
    let (subs, _) = w.as_chunks::<SUB>();
    let (mut q, mut scales) = ([0; LEN], [0.0; SUB]);
    for (j, (w, q)) in subs.iter().zip(q.chunks_mut(SUB)).enumerate() {
        scales[j] = match importance {
            Some(all) => search::symmetric(w, &all[j * SUB..(j + 1) * SUB], 32, q),
            None => search::symmetric(w, &w.map(|w| w * w), 32, q),
        };
    }
    let extreme = search::extreme(&scales);
    if extreme.abs() < search::TINY {
        out.fill(0);
        return;
    }
    let inverse = -128.0 / extreme;
    let d = put_scale(out, 208, 1.0 / inverse);
    for ((j, w), q) in subs.iter().enumerate().zip(q.chunks_mut(SUB)) {
        let level = nearest(inverse * scales[j]).min(127) as i8;
        out[192 + j] = level.cast_unsigned();
        round_again(w, d * f32::from(level), 32, q);
    }
    put_q6(&q, out);
}

/// Writes the values of a q6_k block.
pub(super) fn put_q6(q: &[u8; LEN], out: &mut [u8; 210]) {
    for (half, q) in q.chunks(128).enumerate() {
        for (l, low) in out[half * 64..][..64].iter_mut().enumerate() {
            *low = q[l] & 15 | (q[l + 64] & 15) << 4;
        }
    }
    put_pairs(&q.map(|q| q >> 4), &mut out[128..192]);
}

/// Rounds the weights of a sub-block to multiples of its rounded scale, offset by `half`. Without a scale, they keep
/// their levels.
fn round_again(w: &[f32; SUB], d: f32, half: u8, q: &mut [u8]) {
    let half = i32::from(half);
    if d != 0.0 {
        for (q, w) in q.iter_mut().zip(w) {
            *q = (nearest(w / d).clamp(-half, half - 1) + half) as u8;
        }
    }
}

/// The signed scales of a q3_k block.
#[inline(always)]
pub fn scales_q3(bytes: &[u8]) -> [i8; SUB] {
    let mut scales = [0; SUB];
    for (j, scale) in scales.iter_mut().enumerate() {
        let low = bytes[j % 8] >> (j / 8 * 4) & 15;
        let upper = bytes[8 + j % 4] >> (j / 4 * 2) & 3;
        *scale = (low | upper << 4).cast_signed() - 32;
    }
    scales
}

/// Writes the scales of a q3_k block, each with 32 added.
fn put_scales_q3(levels: &[u8; SUB], bytes: &mut [u8]) {
    bytes.fill(0);
    for (j, level) in levels.iter().enumerate() {
        bytes[j % 8] |= (level & 15) << (j / 8 * 4);
        bytes[8 + j % 4] |= level >> 4 << (j / 4 * 2);
    }
}
