//! Products of x, rounded to 8 bits, with packed weights, in integers.
//!
//! Each block of [`BLOCK`] elements of x is rounded to 8 bits, `x ≈ a p` with `a = max |x| / 127`, so an element's
//! error is at most `a / 2`. With the weights as levels, `w = s (q - o) - m` per sub-block of [`SUB`],
//!
//! ```text
//! y = Σ over sub-blocks of  s a Σ q p  -  (m + s o) a Σ p
//! ```
//!
//! The sums over `p` are exact integers, and do not depend on W. On CPUs with AVX512-VNNI, a few rows of x are multiplied
//! with the levels in registers ([`vnni`]), and more rows with interleaved rows of W ([`panel`]). On others, the levels
//! of a row of W are unpacked to bytes, for a few rows of x.

#[cfg(target_arch = "x86_64")]
mod chunk;
#[cfg(target_arch = "x86_64")]
mod load;
#[cfg(target_arch = "x86_64")]
mod panel;
#[cfg(target_arch = "x86_64")]
mod vnni;

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::blocks::levels::{self, SUB, Subs};
use super::matrix::{Matrix, MatrixMut};
use super::packed::{PackedView, Sums};
use super::parallel::{self, Shared};
use super::product::Output;
use super::vector::wide;
use crate::PackedFormat;

/// Elements of x with a common scale.
const BLOCK: usize = 32;
/// Elements of x that are stored together. Rows are padded to a multiple of it.
const CHUNK: usize = 256;
/// Levels that are multiplied at a time.
const STEP: usize = 64;
/// The approximate minimum number of elements of W per task.
const TASK: usize = 1 << 15;
/// The maximum number of rows of x for passes over W row by row.
const FEW: usize = 4;

/// Returns true if products of `rows` rows are faster in integers than with W unpacked to f32.
pub(super) fn fits(rows: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    if vnni::supported() {
        return true;
    }
    rows <= FEW
}

/// `y = x Wᵀ` or `y += x Wᵀ` for a format with levels, in a single pass over W on all threads. The caller,
/// [`super::packed::product`], checks the sizes.
pub(super) fn product(mut y: MatrixMut<'_>, x: Matrix<'_>, w: PackedView<'_>, output: Output) {
    let [n, k] = w.shape;
    let sums = Sums::new(&mut y, output);
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    let mut x = rounded_rows(x);
    #[cfg(target_arch = "x86_64")]
    if x.len() <= FEW && vnni::supported() {
        vnni::reorder(&mut x, w.format);
    }
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    let mut step = parallel::weight_rows_per_task([n, k], TASK / x.len().max(1));
    #[cfg(target_arch = "x86_64")]
    if x.len() > FEW {
        step = step.next_multiple_of(panel::ROWS);
    }
    parallel::for_each(n.div_ceil(step), |task| {
        let task = Task {
            x: &x,
            w,
            outputs: task * step..n.min((task + 1) * step),
            sums,
        };
        #[cfg(target_arch = "x86_64")]
        if vnni::supported() {
            // SAFETY: the instructions are supported.
            unsafe {
                match x.len() {
                    ..=FEW => vnni::run(&task),
                    _ => panel::run(&task),
                }
            }
            return;
        }
        wide(task);
    });
}

/// The elements of x, rounded to 8 bits.
pub(super) fn rounded(x: Matrix<'_>) -> Vec<f32> {
    let mut all = vec![0.0; x.rows * x.columns];
    let rows = Shared::new(&mut all);
    parallel::for_each(x.rows, |i| {
        // SAFETY: each task writes its own row.
        let row = unsafe { rows.part(i * x.columns..(i + 1) * x.columns) };
        let rounded = wide(Round { x: x.row(i) });
        for (row, chunk) in row.chunks_mut(CHUNK).zip(&rounded.chunks) {
            let values = chunk.subs().iter().zip(&chunk.scales);
            for (row, (values, scale)) in row.chunks_mut(SUB).zip(values) {
                for (row, value) in row.iter_mut().zip(values) {
                    *row = scale * f32::from(*value);
                }
            }
        }
    });
    all
}

/// The rows of x in 8 bits.
fn rounded_rows(x: Matrix<'_>) -> Vec<Rounded> {
    let mut all: Vec<_> = (0..x.rows)
        .map(|_| Rounded { chunks: Vec::new() })
        .collect();
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
struct Rounded {
    chunks: Vec<Chunk>,
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

    fn subs(&self) -> &[[i8; SUB]] {
        self.values.as_flattened().as_chunks().0
    }

    /// The bits of elements `4 at..4 at + 4`.
    #[cfg(target_arch = "x86_64")]
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
    fn with_simd<S: Simd>(self, _: S) -> Rounded {
        let mut chunks = vec![Chunk::ZERO; self.x.len().div_ceil(CHUNK)];
        for (x, chunk) in self.x.chunks(CHUNK).zip(&mut chunks) {
            let (values, _) = chunk.values.as_flattened_mut().as_chunks_mut::<BLOCK>();
            // The length of rows is a multiple of the blocks of W, and so of these.
            let blocks = x.as_chunks::<BLOCK>().0.iter().zip(values);
            for (block, (x, values)) in blocks.enumerate() {
                let (scale, sums) = round(x, values);
                for (sub, sum) in sums.iter().enumerate() {
                    let at = block * (BLOCK / SUB) + sub;
                    chunk.scales[at] = scale;
                    chunk.sums[at] = scale * *sum as f32;
                }
            }
        }
        Rounded { chunks }
    }
}

/// Rounds a block, and returns its scale and the sums of the rounded elements of its sub-blocks.
#[inline(always)]
fn round(x: &[f32; BLOCK], values: &mut [i8; BLOCK]) -> (f32, [i32; BLOCK / SUB]) {
    // Loops over local arrays are vectorized. Sums of magnitudes that are not finite stay so, unlike maximums.
    let (mut largest, mut finite) = ([0.0f32; SUB], [0.0f32; SUB]);
    let (subs, _) = x.as_chunks::<SUB>();
    for x in subs {
        for lane in 0..SUB {
            let x = x[lane];
            largest[lane] = if x.abs() > largest[lane] {
                x.abs()
            } else {
                largest[lane]
            };
            finite[lane] += x * 0.0;
        }
    }
    let mut half = SUB / 2;
    while half > 0 {
        for lane in 0..half {
            let other = largest[lane + half];
            largest[lane] = if other > largest[lane] {
                other
            } else {
                largest[lane]
            };
            finite[lane] += finite[lane + half];
        }
        half /= 2;
    }
    let (largest, finite) = (largest[0], finite[0]);
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    let mut sums = [0; BLOCK / SUB];
    let (out, _) = values.as_chunks_mut::<SUB>();
    for ((x, out), sum) in subs.iter().zip(out).zip(&mut sums) {
        let mut rounded = [0; SUB];
        for lane in 0..SUB {
            // In ±127, or not a number: then the scale is none, too.
            let nearest = (x[lane] * inverse).round_ties_even();
            rounded[lane] = nearest as i32;
        }
        for lane in 0..SUB {
            out[lane] = rounded[lane] as i8;
        }
        *sum = rounded
            .iter()
            .fold(0i32, |sum, value| sum.wrapping_add(*value));
    }
    (largest / 127.0 + finite, sums)
}

/// A row of W as levels.
struct Levels {
    values: Vec<u8>,
    scales: Vec<f32>,
    minimums: Vec<f32>,
    offset: Option<f32>,
}

impl Levels {
    fn new(format: PackedFormat, k: usize) -> Self {
        Self {
            values: vec![0; k],
            scales: vec![0.0; k / SUB],
            minimums: vec![0.0; k / SUB],
            offset: levels::offset(format)
                .filter(|&offset| offset > 0)
                .map(f32::from),
        }
    }

    #[inline(always)]
    fn read(&mut self, w: PackedView<'_>, row: usize) {
        let subs = Subs {
            scales: &mut self.scales,
            minimums: &mut self.minimums,
        };
        levels::read(w.format, w.row(row), &mut self.values, subs);
    }

    /// A factor and numbers whose product is `m + s o`: a format has minimums or an offset, not both.
    #[inline(always)]
    fn subtracted(&self) -> (f32, &[f32]) {
        match self.offset {
            Some(offset) => (offset, &self.scales),
            None => (1.0, &self.minimums),
        }
    }
}

/// Some rows of W with all rows of x.
struct Task<'a> {
    x: &'a [Rounded],
    w: PackedView<'a>,
    /// The rows of W, each of which is a column of y.
    outputs: Range<usize>,
    sums: Sums,
}

impl WithSimd for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let mut levels = Levels::new(self.w.format, self.w.shape[1]);
        for j in self.outputs {
            levels.read(self.w, j);
            for (i, x) in self.x.iter().enumerate() {
                let sum = dot(&levels, x);
                // SAFETY: the element is within y, and only this task writes it.
                unsafe { self.sums.put(i, j, sum) };
            }
        }
    }
}

/// The inner product on any CPU.
#[inline(always)]
fn dot(w: &Levels, x: &Rounded) -> f32 {
    const SUBS: usize = CHUNK / SUB;
    let (factor, subtracted) = w.subtracted();
    let (mut sums, mut below) = ([0.0f32; SUB], [0.0f32; SUBS]);
    let levels = w.values.chunks(CHUNK).zip(w.scales.chunks(SUBS));
    for ((x, (q, scales)), subtracted) in x.chunks.iter().zip(levels).zip(subtracted.chunks(SUBS)) {
        let values = q.as_chunks::<SUB>().0.iter().zip(x.subs());
        for ((q, p), (s, a)) in values.zip(scales.iter().zip(&x.scales)) {
            let scale = s * a;
            for lane in 0..SUB {
                let product = i32::from(q[lane]) * i32::from(p[lane]);
                sums[lane] += scale * product as f32;
            }
        }
        for ((below, subtracted), sum) in below.iter_mut().zip(subtracted).zip(&x.sums) {
            *below += subtracted * sum;
        }
    }
    sums.iter().sum::<f32>() - factor * below.iter().sum::<f32>()
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
