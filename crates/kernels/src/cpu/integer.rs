//! Products of x, rounded to 8 bits, with packed weights, in integers.
//!
//! Each block of [`BLOCK`] elements of x is rounded to 8 bits, `x ≈ a p` with `a = max |x| / 127`, so an element's
//! error is at most `a / 2`. With the weights as levels, `w = s (q - o) - m` per sub-block of [`SUB`],
//!
//! ```text
//! y = Σ over sub-blocks of  s a Σ q p  -  (m + s o) a Σ p
//! ```
//!
//! The sums over `p` are exact integers, and do not depend on W. A few rows of x are multiplied with one row of W at a
//! time, and more rows with interleaved rows of W, in a panel. Each instruction set has a kernel for both; they add up
//! in the same order ([`layout`]), with fused multiply-adds, so that results have the same bits.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod chunk;
pub(super) mod instructions;
mod layout;
#[cfg(target_arch = "x86_64")]
mod load;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod offsets;
#[cfg(target_arch = "x86_64")]
mod panel;
mod portable;
#[cfg(target_arch = "x86_64")]
mod registers;
#[cfg(target_arch = "x86_64")]
mod subs;
#[cfg(target_arch = "x86_64")]
mod tiles;
#[cfg(target_arch = "x86_64")]
mod vnni;

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::blocks::levels::{self, SUB};
use super::matrix::{Matrix, MatrixMut};
use super::packed::{PackedView, Sums};
use super::parallel::{self, Shared};
use super::product::Output;
use super::vector::wide;
use instructions::Instructions;

/// Elements of x with a common scale.
const BLOCK: usize = 32;
/// Elements of x that are stored together. Rows are padded to a multiple of it.
const CHUNK: usize = 256;
/// Levels that are multiplied at a time.
const STEP: usize = 64;
/// The approximate minimum number of elements of W per task.
const TASK: usize = 1 << 14;
/// The maximum number of rows of x for passes over W row by row.
const FEW: usize = 4;

/// `y = x Wᵀ` or `y += x Wᵀ` for a format with levels, in a single pass over W on all threads. The caller,
/// [`super::packed::product`], checks the sizes.
pub(super) fn product(y: MatrixMut<'_>, x: Matrix<'_>, w: PackedView<'_>, output: Output) {
    // SAFETY: the CPU has the instructions.
    unsafe { product_by(Instructions::fastest(), y, x, w, output) };
}

/// [`product`] by an instruction set.
///
/// # Safety
/// The CPU has the instructions.
unsafe fn product_by(
    instructions: Instructions,
    mut y: MatrixMut<'_>,
    x: Matrix<'_>,
    w: PackedView<'_>,
    output: Output,
) {
    let [n, k] = w.shape;
    let sums = Sums::new(&mut y, output);
    let mut x = rounded_rows(x);
    instructions.prepare(&mut x, w.format);
    #[cfg(target_arch = "x86_64")]
    let tiles = instructions.tiles(&x, w);
    let step = parallel::weight_rows_per_task([n, k], TASK / x.len().max(1));
    let step = step.next_multiple_of(instructions.outputs(x.len()));
    parallel::for_each(n.div_ceil(step), |task| {
        let task = Task {
            x: &x,
            #[cfg(target_arch = "x86_64")]
            tiles: &tiles,
            w,
            outputs: task * step..n.min((task + 1) * step),
            sums,
        };
        // SAFETY: as the caller guarantees.
        unsafe { instructions.run(task) };
    });
}

/// The rows of x in 8 bits.
fn rounded_rows(x: Matrix<'_>) -> Vec<Rounded> {
    let mut all: Vec<_> = (0..x.rows).map(|_| Rounded::default()).collect();
    if x.rows <= FEW {
        for (i, row) in all.iter_mut().enumerate() {
            *row = wide(Round { x: x.row(i) });
        }
        return all;
    }
    let rows = Shared::new(&mut all);
    let step = parallel::rows_per_task(x.rows, x.columns);
    parallel::for_each(x.rows.div_ceil(step), |task| {
        let range = task * step..x.rows.min((task + 1) * step);
        // SAFETY: each task writes its own rows.
        let rows = unsafe { rows.part(range.clone()) };
        for (i, row) in range.zip(rows) {
            *row = wide(Round { x: x.row(i) });
        }
    });
    all
}

/// A row of x in 8 bits, padded with zeros.
#[derive(Default)]
struct Rounded {
    chunks: Vec<Chunk>,
    /// One per chunk, for the kernels that use them.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    offsets: Vec<offsets::Offsets>,
}

/// Consecutive elements of x in 8 bits.
#[derive(Clone)]
#[repr(align(64))]
struct Chunk {
    values: [[i8; STEP]; CHUNK / STEP],
    /// One per sub-block.
    scales: [f32; CHUNK / SUB],
    /// The sums of the rounded elements of the sub-blocks.
    sums: [f32; CHUNK / SUB],
}

impl Chunk {
    const ZERO: Self = Self {
        values: [[0; STEP]; CHUNK / STEP],
        scales: [0.0; CHUNK / SUB],
        sums: [0.0; CHUNK / SUB],
    };

    #[cfg(target_arch = "x86_64")]
    fn subs(&self) -> &[[i8; SUB]] {
        self.values.as_flattened().as_chunks().0
    }

    /// The bits of elements `4 at..4 at + 4`.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[inline(always)]
    fn four(&self, at: usize) -> i32 {
        let [a, b, c, d] = self.values.as_flattened().as_chunks().0[at];
        i32::from_le_bytes([a, b, c, d].map(i8::cast_unsigned))
    }
}

/// Rounds a row of x.
struct Round<'a> {
    x: &'a [f32],
}

impl WithSimd for Round<'_> {
    type Output = Rounded;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Rounded {
        let mut chunks = vec![Chunk::ZERO; self.x.len().div_ceil(CHUNK)];
        for (x, chunk) in self.x.chunks(CHUNK).zip(&mut chunks) {
            let (values, _) = chunk.values.as_flattened_mut().as_chunks_mut::<BLOCK>();
            // The length of rows is a multiple of the blocks of W, and so of these.
            let blocks = x.as_chunks::<BLOCK>().0.iter().zip(values);
            for (block, (x, values)) in blocks.enumerate() {
                let (scale, sums) = round(simd, x, values);
                for (sub, sum) in sums.iter().enumerate() {
                    let at = block * (BLOCK / SUB) + sub;
                    chunk.scales[at] = scale;
                    chunk.sums[at] = scale * *sum as f32;
                }
            }
        }
        Rounded {
            chunks,
            ..Rounded::default()
        }
    }
}

/// A number whose sum with one below 2²² in magnitude is rounded to an integer, to nearest with ties to even, which the
/// lowest bits hold. Conversions to integers that check their range are not vectorized.
const ROUNDER: f32 = 1.5 * (1 << 23) as f32;

/// Rounds a block, and returns its scale and the sums of the rounded elements of its sub-blocks.
#[inline(always)]
fn round<S: Simd>(
    simd: S,
    x: &[f32; BLOCK],
    values: &mut [i8; BLOCK],
) -> (f32, [i32; BLOCK / SUB]) {
    let zero = simd.splat_f32s(0.0);
    let (mut largest, mut finite) = (zero, zero);
    for x in S::as_simd_f32s(x).0 {
        largest = simd.max_f32s(largest, simd.abs_f32s(*x));
        // Not a number if x is not finite, unlike maximums.
        finite = simd.add_f32s(finite, simd.mul_f32s(*x, zero));
    }
    let (largest, finite) = (simd.reduce_max_f32s(largest), simd.reduce_sum_f32s(finite));
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    let mut rounded = [0; BLOCK];
    for (rounded, x) in rounded.iter_mut().zip(x) {
        // In ±127, or any number if x is not finite: then the scale is none.
        let sum = x * inverse + ROUNDER;
        *rounded = sum.to_bits().wrapping_sub(ROUNDER.to_bits()).cast_signed();
    }
    for (value, rounded) in values.iter_mut().zip(rounded) {
        *value = rounded as i8;
    }
    let (subs, _) = rounded.as_chunks::<SUB>();
    let mut sums = [0; BLOCK / SUB];
    for (sum, rounded) in sums.iter_mut().zip(subs) {
        *sum = rounded
            .iter()
            .fold(0i32, |sum, value| sum.wrapping_add(*value));
    }
    (largest / 127.0 + finite, sums)
}

/// Some rows of W with all rows of x.
struct Task<'a> {
    x: &'a [Rounded],
    /// Those of them that are multiplied by tile registers.
    #[cfg(target_arch = "x86_64")]
    tiles: &'a tiles::Tiles,
    w: PackedView<'a>,
    /// The rows of W, each of which is a column of y.
    outputs: Range<usize>,
    sums: Sums,
}

#[cfg(test)]
mod tests;
