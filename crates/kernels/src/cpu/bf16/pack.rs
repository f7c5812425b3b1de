//! Packing: reorders an operand for the kernel.
//!
//! A panel holds several rows of A, or columns of B, for all k. A unit is a pair of bfloat16 for two adjacent k, the first
//! in the lower half, or one f32. Most panels are `[units, width]`: vectors of rows, one unit after the other. Those with
//! rows first are `[units / 16, width, 16]`: vectors of 16 units, one row after the other. Elements outside the matrix are
//! zero.

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

/// Packs an operand into panels of width `W` with `units` units. The vectors of a panel hold 16 units of a row if
/// `ROWS_FIRST` is true, and 16 rows of a unit otherwise.
///
/// # Safety
/// The CPU supports the instructions, the operand's elements are readable, `to` has space for all panels, and `units`
/// is at least `⌈depth / K⌉`, and a multiple of 16 if `ROWS_FIRST` is true.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub unsafe fn pack<const K: usize, const W: usize, const ROWS_FIRST: bool>(
    from: Factor,
    units: usize,
    to: *mut u32,
) {
    // SAFETY: guaranteed by the caller: all writes are within the panels and all reads within the operand.
    unsafe {
        if from.depth_stride != 1 && !ROWS_FIRST {
            return unit_by_unit::<K, W>(from, units, to);
        }
        for first in (0..from.width).step_by(W) {
            let panel = to.add(first * units);
            for unit in (0..units).step_by(LANES) {
                for lane in (0..W).step_by(LANES) {
                    let count = from.width.saturating_sub(first + lane);
                    let count = count.min(LANES.min(W - lane));
                    let along_k = from.depth_stride == 1;
                    let mut square = match along_k {
                        true => rows::<K>(from, first + lane, count, unit),
                        false => columns::<K>(from, first + lane, count, unit),
                    };
                    if along_k != ROWS_FIRST {
                        square = transposed(square);
                    }
                    if ROWS_FIRST {
                        let to = panel.add(unit * W + lane * LANES);
                        for (i, row) in square.iter().enumerate() {
                            _mm512_store_si512(to.add(i * LANES).cast(), *row);
                        }
                    } else {
                        let to = panel.add(unit * W + lane);
                        for (i, column) in square.iter().enumerate().take(units - unit) {
                            _mm512_mask_storeu_epi32(
                                to.add(i * W).cast(),
                                lanes(W - lane),
                                *column,
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Packs an operand whose rows, rather than k, are contiguous, into panels of vectors of rows. It reads whole rows.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn unit_by_unit<const K: usize, const W: usize>(from: Factor, units: usize, to: *mut u32) {
    for unit in 0..units {
        for first in (0..from.width).step_by(W) {
            for lane in (0..W).step_by(LANES) {
                let count = from.width.saturating_sub(first + lane);
                let count = count.min(LANES.min(W - lane));
                // SAFETY: guaranteed by the caller of `pack`.
                unsafe {
                    let column = column::<K>(from, first + lane, count, unit);
                    let to = to.add(first * units + unit * W + lane);
                    _mm512_mask_storeu_epi32(to.cast(), lanes(W - lane), column);
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

/// Packs `count` adjacent rows of A, or columns of B, at one unit.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
unsafe fn column<const K: usize>(from: Factor, first: usize, count: usize, unit: usize) -> __m512i {
    let k = unit * K;
    // SAFETY: guaranteed by the caller of `pack`.
    unsafe {
        let low = across_k(from, first, count, k);
        match K {
            2 => interleaved(low, across_k(from, first, count, k + 1)),
            _ => _mm512_castps_si512(low),
        }
    }
}

/// [`column`] of 16 adjacent units.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
unsafe fn columns<const K: usize>(
    from: Factor,
    first: usize,
    count: usize,
    unit: usize,
) -> [__m512i; LANES] {
    let mut square = [_mm512_setzero_si512(); LANES];
    for (i, vector) in square.iter_mut().enumerate() {
        // SAFETY: guaranteed by the caller of `pack`.
        *vector = unsafe { column::<K>(from, first, count, unit + i) };
    }
    square
}

/// Loads `count` adjacent rows of A, or columns of B, at one k; zeros if there is no such k.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn across_k(from: Factor, first: usize, count: usize, k: usize) -> __m512 {
    if count == 0 || k >= from.depth {
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

/// Packs 16 adjacent units of `count` rows of A, or columns of B, whose k are contiguous.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
unsafe fn rows<const K: usize>(
    from: Factor,
    first: usize,
    count: usize,
    unit: usize,
) -> [__m512i; LANES] {
    let mut square = [_mm512_setzero_si512(); LANES];
    let rest = from.depth.saturating_sub(unit * K);
    let [mask, next] = [lanes(rest), lanes(rest.saturating_sub(LANES))];
    for (i, row) in square.iter_mut().enumerate().take(count) {
        let start = from
            .start
            .wrapping_add((first + i) * from.stride + unit * K);
        // SAFETY: the loads are masked to the operand's elements.
        unsafe {
            let low = _mm512_maskz_loadu_ps(mask, start);
            *row = match K {
                2 => rounded(low, _mm512_maskz_loadu_ps(next, start.wrapping_add(LANES))),
                _ => _mm512_castps_si512(low),
            };
        }
    }
    square
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
