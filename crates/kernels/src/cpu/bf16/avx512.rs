//! The kernel for AVX-512: accumulates a tile of C in vector registers.

use std::arch::x86_64::*;

use super::element::Element;
use super::kernel::{Kernel, Tile};
use super::pack::{self, Factor, Place};

/// The number of rows of a tile and of a panel of A. With two vectors per row, the sums use 24 of the 32
/// registers.
const ROWS: usize = 12;
/// The number of columns of a tile and of a panel of B: two vectors.
const COLUMNS: usize = 32;
/// The number of f32 in a vector.
const LANES: usize = 16;

/// The kernel with vectors of 512 bits. `K` is 2 for bfloat16 with AVX512-BF16, and 1 for f32.
///
/// In bfloat16, an instruction adds two products to each sum: that of the odd k first, then that of the even k, each
/// with one rounding to nearest, ties to even. Subnormal operands, products and sums become zero. A sum runs over the
/// k of a step; the sums of the steps are added to C in order.
pub struct Avx512<const K: usize>;

impl<const K: usize> Kernel for Avx512<K> {
    type Prepared = ();

    const K: usize = K;
    const ROWS: usize = ROWS;
    const COLUMNS: usize = COLUMNS;
    const UNITS: usize = 1;
    const KEEPS_A: bool = false;
    const TASK: [usize; 2] = [192, 256];
    const SMALL_TASK: [usize; 2] = [96, 128];

    unsafe fn prepare() {}

    unsafe fn pack_a(from: Factor<f32>, to: Place) {
        // SAFETY: guaranteed by the caller.
        unsafe { pack::pack::<_, K, ROWS, false>(from, to) };
    }

    unsafe fn pack_b<E: Element>(from: Factor<E>, to: Place) {
        // SAFETY: guaranteed by the caller.
        unsafe { pack::pack::<_, K, COLUMNS, false>(from, to) };
    }

    unsafe fn multiply(units: usize, a: *const u32, b: *const u32, c: Tile) {
        // SAFETY: guaranteed by the caller.
        unsafe { multiply::<K>(units, a, b, c) };
    }
}

/// `C (+)= A B` for one panel of A, `[units, ROWS]`, and one panel of B, `[units, COLUMNS]`. A unit is a pair of
/// bfloat16 for two adjacent k if `K` is 2, and one f32 if it is 1.
///
/// # Safety
/// See [`Kernel::multiply`].
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn multiply<const K: usize>(units: usize, a: *const u32, b: *const u32, c: Tile) {
    if c.column_stride == 1 {
        // SAFETY: guaranteed by the caller.
        return unsafe { rows::<K>(units, a, b, c) };
    }
    let mut dense = [0.0f32; ROWS * COLUMNS];
    let tile = Tile {
        start: dense.as_mut_ptr(),
        row_stride: COLUMNS,
        column_stride: 1,
        accumulate: false,
        ..c
    };
    // SAFETY: guaranteed by the caller; the tile is `dense`.
    unsafe { rows::<K>(units, a, b, tile) };
    for i in 0..c.rows {
        for j in 0..c.columns {
            // SAFETY: the element is within the tile.
            unsafe {
                let c_ij = c.start.add(i * c.row_stride + j * c.column_stride);
                let old = if c.accumulate { *c_ij } else { 0.0 };
                *c_ij = old + dense[i * COLUMNS + j];
            }
        }
    }
}

/// Dispatches [`multiply`] on the number of rows.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn rows<const K: usize>(units: usize, a: *const u32, b: *const u32, c: Tile) {
    // SAFETY: guaranteed by the caller of `multiply`.
    unsafe {
        match c.rows {
            1 => vectors::<K, 1>(units, a, b, c),
            2 => vectors::<K, 2>(units, a, b, c),
            3 => vectors::<K, 3>(units, a, b, c),
            4 => vectors::<K, 4>(units, a, b, c),
            5 => vectors::<K, 5>(units, a, b, c),
            6 => vectors::<K, 6>(units, a, b, c),
            7 => vectors::<K, 7>(units, a, b, c),
            8 => vectors::<K, 8>(units, a, b, c),
            9 => vectors::<K, 9>(units, a, b, c),
            10 => vectors::<K, 10>(units, a, b, c),
            11 => vectors::<K, 11>(units, a, b, c),
            _ => vectors::<K, 12>(units, a, b, c),
        }
    }
}

/// Dispatches [`rows`] on the number of vectors per row.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn vectors<const K: usize, const R: usize>(
    units: usize,
    a: *const u32,
    b: *const u32,
    c: Tile,
) {
    // SAFETY: guaranteed by the caller of `multiply`.
    unsafe {
        if c.columns <= LANES {
            registers::<K, R, 1>(units, a, b, c);
        } else {
            registers::<K, R, 2>(units, a, b, c);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn registers<const K: usize, const R: usize, const V: usize>(
    units: usize,
    a: *const u32,
    b: *const u32,
    c: Tile,
) {
    // The columns of the last vector.
    let mask = u16::MAX >> (V * LANES - c.columns);
    let mut sums = [[_mm512_setzero_ps(); V]; R];
    // SAFETY: all accesses are within the panels, and within the tile's rows and columns.
    unsafe {
        for i in 0..R {
            _mm_prefetch::<_MM_HINT_T0>(c.start.add(i * c.row_stride).cast());
            _mm_prefetch::<_MM_HINT_T0>(c.start.add(i * c.row_stride + c.columns - 1).cast());
        }
        for unit in 0..units {
            let (a, b) = (a.add(unit * ROWS), b.add(unit * COLUMNS));
            let mut columns = [_mm512_setzero_si512(); V];
            for (v, column) in columns.iter_mut().enumerate() {
                *column = _mm512_load_si512(b.add(v * LANES).cast());
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let row = _mm512_set1_epi32(a.add(i).read().cast_signed());
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = if K == 2 {
                        _mm512_dpbf16_ps(*sum, pairs(row), pairs(column))
                    } else {
                        _mm512_fmadd_ps(_mm512_castsi512_ps(row), _mm512_castsi512_ps(column), *sum)
                    };
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                let c_iv = c.start.add(i * c.row_stride + v * LANES);
                let mask = if v + 1 == V { mask } else { u16::MAX };
                let sum = if c.accumulate {
                    _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c_iv), *sum)
                } else {
                    *sum
                };
                _mm512_mask_storeu_ps(c_iv, mask, sum);
            }
        }
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn pairs(x: __m512i) -> __m512bh {
    // SAFETY: both types have 512 bits.
    unsafe { std::mem::transmute(x) }
}
