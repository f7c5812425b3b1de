//! Packing: reorders an operand for the kernel.
//!
//! A panel holds several rows of A, or columns of B, for all k. A unit is a pair of bfloat16 for two adjacent k, the first
//! in the lower half, or one f32. Most panels are `[units, width]`: vectors of rows, one unit after the other. Those with
//! rows first are `[units / 16, width, 16]`: vectors of 16 units, one row after the other. Elements outside the matrix are
//! zero.

use std::arch::x86_64::*;

use super::element::Element;
use crate::cpu::matrix::Matrix;

/// The number of f32 in a vector.
const LANES: usize = 16;
/// The number of k between a load of contiguous rows and its prefetch, since hardware does not prefetch across strides.
const AHEAD: usize = 16;

/// An operand viewed as `[width, k]`: A unchanged, B transposed.
#[derive(Clone, Copy)]
pub struct Factor<E> {
    /// The address of the first element.
    pub start: *const E,
    /// The number of rows of A or columns of B.
    pub width: usize,
    /// The stride of those rows or columns.
    pub stride: usize,
    /// The length of the k dimension.
    pub depth: usize,
    /// The stride of the k dimension.
    pub depth_stride: usize,
}

impl<E: Copy> Factor<E> {
    /// All elements of `[width, k]`.
    pub fn of(matrix: Matrix<'_, E>) -> Self {
        Self {
            start: matrix.as_ptr(),
            width: matrix.rows,
            stride: matrix.row_stride,
            depth: matrix.columns,
            depth_stride: matrix.column_stride,
        }
    }
}

/// The place of packed units in panels.
#[derive(Clone, Copy)]
pub struct Place {
    /// The address of the first unit in the first panel.
    pub start: *mut u32,
    /// The number of elements of a panel.
    pub panel: usize,
    /// The number of units per panel: at least `⌈depth / K⌉`. The others become zero.
    pub units: usize,
}

/// Packs an operand into panels of width `W`. The vectors of a panel hold 16 units of a row if `ROWS_FIRST` is true, and
/// 16 rows of a unit otherwise.
///
/// # Safety
/// The CPU supports the instructions, the operand's elements are readable, `to` has space for all panels, and its units
/// are a multiple of 16 if `ROWS_FIRST` is true.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub unsafe fn pack<E: Element, const K: usize, const W: usize, const ROWS_FIRST: bool>(
    from: Factor<E>,
    to: Place,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (from.depth_stride == 1, ROWS_FIRST) {
            (true, true) => row_by_row::<E, K, W>(from, to),
            (false, false) => unit_by_unit::<E, K, W>(from, to),
            (true, false) => {
                for first in (0..from.width).step_by(W) {
                    for unit in (0..to.units).step_by(LANES) {
                        transposed_columns::<E, K, W>(from, first, unit, to);
                    }
                }
            }
            (false, true) => {
                for unit in (0..to.units).step_by(LANES) {
                    for first in (0..from.width).step_by(W) {
                        transposed_rows::<E, K, W>(from, first, unit, to);
                    }
                }
            }
        }
    }
}

impl Place {
    /// The address of `unit` in the panel of width `W` whose first row is `first`.
    fn at<const W: usize>(self, first: usize, unit: usize) -> *mut u32 {
        self.start.wrapping_add(first / W * self.panel + unit * W)
    }
}

/// The number of rows from `first` on, at most a vector, in a panel of width `W` that begins `lane` rows before.
#[inline(always)]
fn count<E, const W: usize>(from: Factor<E>, first: usize, lane: usize) -> usize {
    let rest = from.width.saturating_sub(first + lane);
    rest.min(LANES.min(W - lane))
}

/// Packs an operand with contiguous k into vectors of units.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn row_by_row<E: Element, const K: usize, const W: usize>(from: Factor<E>, to: Place) {
    for row in 0..from.width.next_multiple_of(W) {
        let first = row / W * W;
        for unit in (0..to.units).step_by(LANES) {
            // SAFETY: guaranteed by the caller of `pack`: all writes are within the panels and all reads within the
            // operand. Here and below, this also holds for the other layouts.
            unsafe {
                let units = match row < from.width {
                    true => along::<E, K>(from, row, unit),
                    false => _mm512_setzero_si512(),
                };
                let to = to.at::<W>(first, unit).add((row - first) * LANES);
                _mm512_storeu_si512(to.cast(), units);
            }
        }
    }
}

/// Packs an operand whose rows, rather than k, are contiguous, into vectors of rows.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn unit_by_unit<E: Element, const K: usize, const W: usize>(from: Factor<E>, to: Place) {
    for unit in 0..to.units {
        for first in (0..from.width).step_by(W) {
            for lane in (0..W).step_by(LANES) {
                let count = count::<E, W>(from, first, lane);
                // SAFETY: see `row_by_row`.
                unsafe {
                    let rows = across::<E, K>(from, first + lane, count, unit);
                    let to = to.at::<W>(first, unit).add(lane);
                    _mm512_mask_storeu_epi32(to.cast(), lanes(W - lane), rows);
                }
            }
        }
    }
}

/// Packs 16 units of a panel, from contiguous k to vectors of rows.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
unsafe fn transposed_columns<E: Element, const K: usize, const W: usize>(
    from: Factor<E>,
    first: usize,
    unit: usize,
    to: Place,
) {
    for lane in (0..W).step_by(LANES) {
        let mut square = [_mm512_setzero_si512(); LANES];
        let rows = square.iter_mut().take(count::<E, W>(from, first, lane));
        for (i, row) in rows.enumerate() {
            // SAFETY: see `row_by_row`.
            *row = unsafe { along::<E, K>(from, first + lane + i, unit) };
        }
        let columns = transposed(square);
        for (i, column) in columns.iter().enumerate().take(to.units - unit) {
            // SAFETY: see `row_by_row`.
            unsafe {
                let to = to.at::<W>(first, unit + i).add(lane);
                _mm512_mask_storeu_epi32(to.cast(), lanes(W - lane), *column);
            }
        }
    }
}

/// Packs 16 units of a panel, from contiguous rows to vectors of units.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
unsafe fn transposed_rows<E: Element, const K: usize, const W: usize>(
    from: Factor<E>,
    first: usize,
    unit: usize,
    to: Place,
) {
    for lane in (0..W).step_by(LANES) {
        let count = count::<E, W>(from, first, lane);
        let mut square = [_mm512_setzero_si512(); LANES];
        for (i, column) in square.iter_mut().enumerate() {
            // SAFETY: see `row_by_row`.
            *column = unsafe { across::<E, K>(from, first + lane, count, unit + i) };
        }
        for (i, row) in transposed(square).iter().enumerate() {
            // SAFETY: see `row_by_row`.
            unsafe {
                let to = to.at::<W>(first, unit).add((lane + i) * LANES);
                _mm512_storeu_si512(to.cast(), *row);
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

/// `count` adjacent rows at one unit.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
unsafe fn across<E: Element, const K: usize>(
    from: Factor<E>,
    first: usize,
    count: usize,
    unit: usize,
) -> __m512i {
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

/// Loads `count` adjacent rows at one k; zeros if there is no such k.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn across_k<E: Element>(from: Factor<E>, first: usize, count: usize, k: usize) -> __m512 {
    if count == 0 || k >= from.depth {
        return _mm512_setzero_ps();
    }
    // SAFETY: reads `count` elements of the operand.
    unsafe {
        let start = from.start.add(first * from.stride + k * from.depth_stride);
        if from.stride == 1 {
            _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(AHEAD * from.depth_stride).cast());
            return E::load(lanes(count), start);
        }
        let mut values = [0.0f32; LANES];
        for (i, value) in values.iter_mut().enumerate().take(count) {
            *value = start.add(i * from.stride).read().value();
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

/// 16 adjacent units of a row with contiguous k.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
unsafe fn along<E: Element, const K: usize>(from: Factor<E>, row: usize, unit: usize) -> __m512i {
    let k = unit * K;
    let rest = from.depth.saturating_sub(k);
    let start = from.start.wrapping_add(row * from.stride + k);
    // SAFETY: the loads are masked to the operand's elements.
    unsafe {
        let low = E::load(lanes(rest), start);
        match K {
            2 => {
                let mask = lanes(rest.saturating_sub(LANES));
                rounded(low, E::load(mask, start.wrapping_add(LANES)))
            }
            _ => _mm512_castps_si512(low),
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
