//! Packing: reorders an operand for the kernel.
//!
//! A panel holds several rows of A, or columns of B, for all k: `[units, width]`, one unit after the other. A
//! unit is a pair of bfloat16 for two adjacent k, the first in the lower half, or one f32. Elements outside the
//! matrix are zero.

use std::arch::x86_64::*;

/// The number of f32 in a vector.
const LANES: usize = 16;

/// An operand viewed as `[width, k]`: A unchanged, B transposed.
#[derive(Clone, Copy)]
pub struct Factor {
    /// The address of the first element.
    pub start: *const f32,
    /// The number of rows of A or columns of B.
    pub width: usize,
    /// The stride of those rows or columns.
    pub stride: usize,
    /// The length of the k dimension.
    pub depth: usize,
    /// The stride of the k dimension.
    pub depth_stride: usize,
}

/// Packs an operand into panels of width `W`, each of `⌈depth / K⌉` units.
///
/// # Safety
/// The CPU supports the instructions, the operand's elements are readable, and `to` has space for all panels.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub unsafe fn pack<const K: usize, const W: usize>(from: Factor, to: *mut u32) {
    let panel = from.depth.div_ceil(K) * W;
    let panels = from.width.div_ceil(W);
    // SAFETY: guaranteed by the caller: all writes are within the panels and all reads within the operand.
    unsafe {
        if from.depth_stride == 1 {
            for p in 0..panels {
                for lane in (0..W).step_by(LANES) {
                    along_k::<K, W>(from, p * W + lane, lane, to.add(p * panel));
                }
            }
            return;
        }
        for unit in 0..from.depth.div_ceil(K) {
            for p in 0..panels {
                for lane in (0..W).step_by(LANES) {
                    let first = p * W + lane;
                    let count = from.width.saturating_sub(first).min(LANES.min(W - lane));
                    let at = unit * K;
                    let low = across_k(from, first, count, at);
                    let units = if K == 2 {
                        let rest = at + 1 < from.depth;
                        interleaved(
                            low,
                            across_k(from, first, if rest { count } else { 0 }, at + 1),
                        )
                    } else {
                        _mm512_castps_si512(low)
                    };
                    let to = to.add(p * panel + unit * W + lane);
                    _mm512_mask_storeu_epi32(to.cast(), lanes(W - lane), units);
                }
            }
        }
    }
}

/// A mask of the lowest `count` lanes.
#[inline(always)]
fn lanes(count: usize) -> u16 {
    if count >= LANES {
        u16::MAX
    } else {
        (1 << count) - 1
    }
}

/// Loads up to 16 adjacent rows of A, or columns of B, at one k.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn across_k(from: Factor, first: usize, count: usize, k: usize) -> __m512 {
    if count == 0 {
        return _mm512_setzero_ps();
    }
    // SAFETY: reads `count` elements of the operand.
    unsafe {
        let start = from.start.add(first * from.stride + k * from.depth_stride);
        if from.stride == 1 {
            return _mm512_maskz_loadu_ps(lanes(count), start);
        }
        let mut values = [0.0f32; LANES];
        for (i, value) in values.iter_mut().enumerate().take(count) {
            *value = *start.add(i * from.stride);
        }
        _mm512_loadu_ps(values.as_ptr())
    }
}

/// Rounds 16 numbers at one k and 16 at the next, and interleaves them into pairs.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
fn interleaved(low: __m512, high: __m512) -> __m512i {
    #[rustfmt::skip]
    let order = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
        23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0,
    );
    _mm512_permutexvar_epi16(order, rounded(low, high))
}

/// Rounds 32 numbers, in order.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
fn rounded(low: __m512, high: __m512) -> __m512i {
    // SAFETY: both types have 512 bits.
    unsafe { std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low)) }
}

/// Packs 16 lanes of a panel from an operand with contiguous k, by transposing squares of 16 lanes by 16 units.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn along_k<const K: usize, const W: usize>(
    from: Factor,
    first: usize,
    lane: usize,
    panel: *mut u32,
) {
    let count = from.width.saturating_sub(first).min(LANES.min(W - lane));
    let units = from.depth.div_ceil(K);
    for unit in (0..units).step_by(LANES) {
        let k = unit * K;
        let mut square = [_mm512_setzero_si512(); LANES];
        // SAFETY: loads are masked to the operand's elements, stores to the panel's units and lanes.
        unsafe {
            for (i, row) in square.iter_mut().enumerate().take(count) {
                let start = from.start.add((first + i) * from.stride + k);
                let low = _mm512_maskz_loadu_ps(lanes(from.depth - k), start);
                *row = if K == 2 {
                    let rest = lanes(from.depth.saturating_sub(k + LANES));
                    rounded(low, _mm512_maskz_loadu_ps(rest, start.wrapping_add(LANES)))
                } else {
                    _mm512_castps_si512(low)
                };
            }
            let square = transposed(square);
            let to = panel.add(unit * W + lane);
            for (i, row) in square.iter().enumerate().take(units - unit) {
                _mm512_mask_storeu_epi32(to.add(i * W).cast(), lanes(W - lane), *row);
            }
        }
    }
}

/// Transposes a 16 × 16 square: pairs first, then fours, then the 4 × 4 blocks.
#[target_feature(enable = "avx512f")]
#[inline]
fn transposed(rows: [__m512i; LANES]) -> [__m512i; LANES] {
    let mut twos = rows;
    for i in 0..8 {
        twos[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        twos[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    let mut fours = twos;
    for i in 0..4 {
        fours[4 * i] = _mm512_unpacklo_epi64(twos[4 * i], twos[4 * i + 2]);
        fours[4 * i + 1] = _mm512_unpackhi_epi64(twos[4 * i], twos[4 * i + 2]);
        fours[4 * i + 2] = _mm512_unpacklo_epi64(twos[4 * i + 1], twos[4 * i + 3]);
        fours[4 * i + 3] = _mm512_unpackhi_epi64(twos[4 * i + 1], twos[4 * i + 3]);
    }
    let mut out = fours;
    for i in 0..4 {
        let upper = [
            _mm512_shuffle_i32x4::<0x88>(fours[i], fours[4 + i]),
            _mm512_shuffle_i32x4::<0xdd>(fours[i], fours[4 + i]),
        ];
        let lower = [
            _mm512_shuffle_i32x4::<0x88>(fours[8 + i], fours[12 + i]),
            _mm512_shuffle_i32x4::<0xdd>(fours[8 + i], fours[12 + i]),
        ];
        out[i] = _mm512_shuffle_i32x4::<0x88>(upper[0], lower[0]);
        out[4 + i] = _mm512_shuffle_i32x4::<0x88>(upper[1], lower[1]);
        out[8 + i] = _mm512_shuffle_i32x4::<0xdd>(upper[0], lower[0]);
        out[12 + i] = _mm512_shuffle_i32x4::<0xdd>(upper[1], lower[1]);
    }
    out
}
