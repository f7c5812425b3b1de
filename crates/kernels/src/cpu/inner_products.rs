//! Products of a moderate number of rows with the transpose of a large matrix, such as the hidden states of many
//! sequences with the head.
//!
//! `y[m, n] = x[m, k] Wᵀ` with contiguous rows of W `[n, k]`: each element of y is an inner product. A general
//! product packs W every time, which dominates its time if x has few rows. This kernel reads W once in its stored
//! layout, and multiplies each element in a register with several rows of x.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::matrix::{Matrix, MatrixMut, Output};
use super::matvec;
use super::parallel::{self, Start};
use super::prefetch::prefetch;
use super::vector::wide;
use crate::Precision;

/// The number of rows of x and of W per block of inner products: 16 sums and 4 rows of x fit 32 registers. CPUs
/// with fewer registers use half as many rows of W.
const BLOCK: usize = 4;
/// The maximum number of rows of x. With more rows, packing W is faster.
const MOST_ROWS: usize = 96;
/// The minimum row length per row of x, beyond the first few rows. With shorter rows, the partial sums cost more
/// than packing W.
const LENGTH_PER_ROW: usize = 12;
/// The approximate minimum number of multiplications per task.
const TASK: usize = 1 << 18;
/// The approximate number of tasks that share W.
const TASKS: usize = 32;

/// Returns true if [`product`] supports `x W` with W `[k, n]`: W is the transpose of a matrix with contiguous
/// rows, and x has few enough rows. Very few rows are accepted at any precision, since rounding does not make
/// reading W faster.
pub fn fits(x: Matrix<'_>, w: Matrix<'_>, precision: Precision) -> bool {
    let most = match precision {
        Precision::F32 => (w.rows / LENGTH_PER_ROW).clamp(matvec::MOST_ROWS, MOST_ROWS),
        _ => matvec::MOST_ROWS,
    };
    x.rows <= most && x.has_contiguous_rows() && w.transposed().has_contiguous_rows()
}

/// `y = x W` or `y += x W` in f32 on all threads, for products that [`fits`] accepts.
///
/// # Panics
/// Panics if the sizes do not fit, or rows are not contiguous where they must be.
pub fn product(y: MatrixMut<'_>, x: Matrix<'_>, w: Matrix<'_>, output: Output) {
    let products = Products::new(y, x, w, output);
    let [n, k] = [products.w.rows, products.w.columns];
    let row = (products.x.len() * k).max(1);
    let rows = n.div_ceil(TASKS).max(TASK.div_ceil(row));
    let rows = rows.next_multiple_of(BLOCK);
    parallel::for_each(n.div_ceil(rows), |task| {
        wide(Task {
            products: &products,
            rows: task * rows..n.min((task + 1) * rows),
        });
    });
}

/// [`product`] on the calling thread only.
///
/// # Panics
/// See [`product`].
pub fn product_here(y: MatrixMut<'_>, x: Matrix<'_>, w: Matrix<'_>, output: Output) {
    let products = Products::new(y, x, w, output);
    wide(Task {
        products: &products,
        rows: 0..products.w.rows,
    });
}

struct Products<'a> {
    /// The address of `y[0, 0]`, and the strides of its rows and columns.
    y: Start<f32>,
    strides: [usize; 2],
    x: Vec<&'a [f32]>,
    /// `[n, k]`.
    w: Matrix<'a>,
    output: Output,
}

impl<'a> Products<'a> {
    fn new(mut y: MatrixMut<'_>, x: Matrix<'a>, w: Matrix<'a>, output: Output) -> Self {
        assert!(
            fits(x, w, Precision::F32)
                && y.rows == x.rows
                && y.columns == w.columns
                && x.columns == w.rows,
            "the product is not one of some rows with a transpose"
        );
        Self {
            y: Start(y.as_mut_ptr()),
            strides: [y.row_stride, y.column_stride],
            x: (0..x.rows).map(|i| x.row(i)).collect(),
            w: w.transposed(),
            output,
        }
    }
}

/// The products with a range of W's rows, which are columns of y that no other task writes.
struct Task<'a, 'b> {
    products: &'b Products<'a>,
    rows: Range<usize>,
}

impl WithSimd for Task<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // Very few rows are limited by memory bandwidth, which is highest for sequential reads.
        if self.products.x.len() <= BLOCK {
            self.blocks::<S, 1>(simd);
        } else if S::REGISTER_COUNT >= 32 {
            self.blocks::<S, BLOCK>(simd);
        } else {
            self.blocks::<S, { BLOCK / 2 }>(simd);
        }
    }
}

impl Task<'_, '_> {
    /// Processes the task's rows of W, `J` at a time.
    #[inline(always)]
    fn blocks<S: Simd, const J: usize>(&self, simd: S) {
        let Range { start, end } = self.rows;
        let whole = end - (end - start) % J;
        for j in (start..whole).step_by(J) {
            self.block::<S, J>(simd, j);
        }
        for j in whole..end {
            self.block::<S, 1>(simd, j);
        }
    }

    /// Multiplies `J` rows of W, starting at row `j`, with each row of x.
    #[inline(always)]
    fn block<S: Simd, const J: usize>(&self, simd: S, j: usize) {
        let mut w: [&[f32]; J] = [&[]; J];
        for (s, w) in w.iter_mut().enumerate() {
            *w = self.products.w.row(j + s);
        }
        let (blocks, rest) = self.products.x.as_chunks::<BLOCK>();
        for (block, x) in blocks.iter().enumerate() {
            let i = block * BLOCK;
            self.write(i, j, inner_products(simd, w, *x, i == 0));
        }
        let i = blocks.len() * BLOCK;
        match *rest {
            [x, y, z] => self.write(i, j, inner_products(simd, w, [x, y, z], i == 0)),
            [x, y] => self.write(i, j, inner_products(simd, w, [x, y], i == 0)),
            [x] => self.write(i, j, inner_products(simd, w, [x], i == 0)),
            _ => {}
        }
    }

    /// Writes sums to y, starting at row `i` and column `j`.
    #[inline(always)]
    fn write<const I: usize, const J: usize>(&self, i: usize, j: usize, sums: [[f32; J]; I]) {
        let [down, across] = self.products.strides;
        for (row, sums) in sums.iter().enumerate() {
            for (column, sum) in sums.iter().enumerate() {
                // SAFETY: the element is within y, which is borrowed while the tasks run, in a column that only
                // this task writes. It is only read if it is initialized.
                unsafe {
                    let y = self.products.y.at((i + row) * down + (j + column) * across);
                    *y = match self.products.output {
                        Output::Overwrite => *sum,
                        Output::Accumulate => *y + *sum,
                    };
                }
            }
        }
    }
}

/// `Σ_l x_il w_jl`, with as many partial sums as a register holds. `first` is true if the rows of W are read for
/// the first time; then the elements after them are prefetched.
#[inline(always)]
fn inner_products<S: Simd, const I: usize, const J: usize>(
    simd: S,
    w: [&[f32]; J],
    x: [&[f32]; I],
    first: bool,
) -> [[f32; J]; I] {
    let k = w[0].len();
    let whole = k - k % S::F32_LANES;
    // Loops only: a closure could be compiled for the baseline CPU.
    let mut w_vectors: [&[S::f32s]; J] = [&[]; J];
    for (vectors, w) in w_vectors.iter_mut().zip(w) {
        *vectors = S::as_simd_f32s(&w[..whole]).0;
    }
    let mut x_vectors: [&[S::f32s]; I] = [&[]; I];
    for (vectors, x) in x_vectors.iter_mut().zip(x) {
        *vectors = S::as_simd_f32s(&x[..whole]).0;
    }
    let mut sums = [[simd.splat_f32s(0.0); J]; I];
    for l in 0..whole / S::F32_LANES {
        let mut of_x = [simd.splat_f32s(0.0); I];
        for i in 0..I {
            of_x[i] = x_vectors[i][l];
        }
        for j in 0..J {
            if first {
                prefetch(w[j].as_ptr().wrapping_add(l * S::F32_LANES + J * k));
            }
            let of_w = w_vectors[j][l];
            for i in 0..I {
                sums[i][j] = simd.mul_add_e_f32s(of_w, of_x[i], sums[i][j]);
            }
        }
    }
    let mut all = [[0.0f32; J]; I];
    for i in 0..I {
        for j in 0..J {
            all[i][j] = simd.reduce_sum_f32s(sums[i][j]);
            for (w, x) in w[j][whole..].iter().zip(&x[i][whole..]) {
                all[i][j] += w * x;
            }
        }
    }
    all
}
