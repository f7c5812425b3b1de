//! Products of x, rounded to 8 bits, with packed weights: in integers for a few rows.
//!
//! Each block of [`BLOCK`] elements of x is rounded to 8 bits, `x ≈ a p` with `a = max |x| / 127`, so an element's
//! error is at most `a / 2`. With the weights as levels, `w = s (q - o) - m` per sub-block of [`SUB`],
//!
//! ```text
//! y = Σ over sub-blocks of  s a Σ q p  -  (m + s o) a Σ p
//! ```
//!
//! The sums over `p` are exact integers, and do not depend on W. Levels are unpacked to bytes, a row of W at a time,
//! and multiplied with every row of x while they are in the L1 cache.

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
/// Levels that are multiplied at a time. Rows are padded to a multiple of it.
const STEP: usize = 64;
/// Sub-blocks per step.
const SUBS: usize = STEP / SUB;
/// The approximate minimum number of elements of W per task.
const TASK: usize = 1 << 16;

/// `y = x Wᵀ` or `y += x Wᵀ` for a format with levels, in a single pass over W on all threads. The caller,
/// [`super::packed::product`], checks the sizes.
pub(super) fn product(mut y: MatrixMut<'_>, x: Matrix<'_>, w: PackedView<'_>, output: Output) {
    let (m, [n, k]) = (x.rows, w.shape);
    let sums = Sums::new(&mut y, output);
    let rows: Vec<Rounded> = (0..m).map(|i| wide(Round { x: x.row(i) })).collect();
    let step = parallel::weight_rows_per_task([n, k], TASK);
    parallel::for_each(n.div_ceil(step), |task| {
        let task = Task {
            x: &rows,
            w,
            outputs: task * step..n.min((task + 1) * step),
            sums,
        };
        #[cfg(target_arch = "x86_64")]
        if vnni::supported() {
            // SAFETY: the instructions are supported.
            unsafe { vnni::run(task) };
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
        let scales = rounded.scales.as_flattened();
        let values = rounded.values.as_flattened().chunks_exact(SUB).zip(scales);
        for (row, (values, scale)) in row.chunks_mut(SUB).zip(values) {
            for (row, value) in row.iter_mut().zip(values) {
                *row = scale * f32::from(*value);
            }
        }
    });
    all
}

/// A row of x in 8 bits, padded with zeros.
struct Rounded {
    values: Vec<[i8; STEP]>,
    /// One per sub-block.
    scales: Vec<[f32; SUBS]>,
    /// The sums of the rounded elements of the sub-blocks.
    sums: Vec<[f32; SUBS]>,
}

/// Rounds a row of x.
struct Round<'a> {
    x: &'a [f32],
}

impl WithSimd for Round<'_> {
    type Output = Rounded;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Rounded {
        let steps = self.x.len().div_ceil(STEP);
        let mut rounded = Rounded {
            values: vec![[0; STEP]; steps],
            scales: vec![[0.0; SUBS]; steps],
            sums: vec![[0.0; SUBS]; steps],
        };
        // The length of rows is a multiple of the blocks of W, and so of these.
        let (x, _) = self.x.as_chunks::<BLOCK>();
        let (values, _) = rounded.values.as_flattened_mut().as_chunks_mut::<BLOCK>();
        let per_block = |subs: &mut [[f32; SUBS]], block: usize, sub: usize, value: f32| {
            let at = block * (BLOCK / SUB) + sub;
            subs[at / SUBS][at % SUBS] = value;
        };
        for (block, (x, values)) in x.iter().zip(values).enumerate() {
            // Sums of magnitudes that are not finite stay so, unlike maximums.
            let mut largest = 0.0f32;
            let mut finite = 0.0f32;
            for x in x {
                largest = if x.abs() > largest { x.abs() } else { largest };
                finite += x * 0.0;
            }
            let scale = largest / 127.0 + finite;
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            for (value, x) in values.iter_mut().zip(x) {
                *value = (x * inverse).round_ties_even() as i8;
            }
            for (sub, values) in values.chunks_exact(SUB).enumerate() {
                let sum: i32 = values.iter().map(|value| i32::from(*value)).sum();
                per_block(&mut rounded.scales, block, sub, scale);
                per_block(&mut rounded.sums, block, sub, scale * sum as f32);
            }
        }
        rounded
    }
}

/// A row of W as levels, padded with zeros.
struct Levels {
    values: Vec<[u8; STEP]>,
    scales: Vec<[f32; SUBS]>,
    minimums: Vec<[f32; SUBS]>,
    offset: Option<f32>,
}

impl Levels {
    fn new(format: PackedFormat, k: usize) -> Self {
        let steps = k.div_ceil(STEP);
        Self {
            values: vec![[0; STEP]; steps],
            scales: vec![[0.0; SUBS]; steps],
            minimums: vec![[0.0; SUBS]; steps],
            offset: levels::offset(format)
                .filter(|&offset| offset > 0)
                .map(f32::from),
        }
    }

    #[inline(always)]
    fn read(&mut self, w: PackedView<'_>, row: usize) {
        let subs = Subs {
            scales: self.scales.as_flattened_mut(),
            minimums: self.minimums.as_flattened_mut(),
        };
        let values = self.values.as_flattened_mut();
        levels::read(w.format, w.row(row), values, subs);
    }

    /// A factor and numbers whose product is `m + s o`: a format has minimums or an offset, not both.
    #[inline(always)]
    fn subtracted(&self) -> (f32, &[[f32; SUBS]]) {
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

impl Task<'_> {
    /// Computes the outputs by `dot` of a row of W and a row of x.
    #[inline(always)]
    fn run(self, dot: impl Fn(&Levels, &Rounded) -> f32) {
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

impl WithSimd for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.run(dot);
    }
}

/// The inner product on any CPU.
#[inline(always)]
fn dot(w: &Levels, x: &Rounded) -> f32 {
    let (factor, subtracted) = w.subtracted();
    let (mut sums, mut below) = ([0.0f32; SUB], [0.0f32; SUBS]);
    for (step, (q, p)) in w.values.iter().zip(&x.values).enumerate() {
        let (q, p) = (q.as_chunks::<SUB>().0, p.as_chunks::<SUB>().0);
        for sub in 0..SUBS {
            let scale = w.scales[step][sub] * x.scales[step][sub];
            for lane in 0..SUB {
                let product = i32::from(q[sub][lane]) * i32::from(p[sub][lane]);
                sums[lane] += scale * product as f32;
            }
            below[sub] += subtracted[step][sub] * x.sums[step][sub];
        }
    }
    sums.iter().sum::<f32>() - factor * below.iter().sum::<f32>()
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::cpu::packed::pack;

    #[test]
    fn instructions_of_any_cpu_agree() {
        if !vnni::supported() {
            return;
        }
        // Steps that are odd in number, and one that is not whole.
        for k in [32, 64, 256, 288, 736] {
            let numbers = |seed: usize| -> Vec<f32> {
                let number = |at: usize| ((at * 7919 + seed) % 1009) as f32 / 500.0 - 1.0;
                (0..k).map(number).collect()
            };
            let x = wide(Round { x: &numbers(3) });
            for format in PackedFormat::ALL {
                if levels::offset(format).is_none() || format.check_columns(k).is_err() {
                    continue;
                }
                let w = pack(format, Matrix::row_major(&numbers(11), 1, k));
                let mut levels = Levels::new(format, k);
                levels.read(w.view(), 0);
                // SAFETY: the instructions are supported.
                let (found, expected) = (unsafe { vnni::dot(&levels, &x) }, dot(&levels, &x));
                let error = (found - expected).abs();
                assert!(error < 1e-4, "{}: {k}: {found} {expected}", format.name());
            }
        }
    }
}
