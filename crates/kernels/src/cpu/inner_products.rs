//! Products of some rows with the transpose of a large matrix, as of the states of many sequences with a head.
//!
//! `y[m, n] = x[m, k] Wᵀ`, where the rows of W `[n, k]` are contiguous: each element of y is an inner product. A general
//! product packs W each time, which is most of its time while rows of x are few; here W is read once in its stored layout, and each of
//! its elements in a register meets several rows of x.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::matrix::{Matrix, MatrixMut, Output};
use super::matvec;
use super::parallel::{self, Start};
use super::prefetch::prefetch;
use super::vector::wide;
use crate::Precision;

/// Rows of x and of W whose inner products are made at once: 16 sums and 4 rows of x fit 32 registers; with fewer of
/// them half as many rows of W are taken.
const BLOCK: usize = 4;
/// Most rows of x: with more of them packing W pays.
const MOST_ROWS: usize = 96;
/// The minimum row length per row beyond the first few: with shorter rows packing W pays, since their partial sums cost more.
const LENGTH_PER_ROW: usize = 12;
/// Multiplications of a task, at least about.
const TASK: usize = 1 << 18;
/// About how many tasks share W.
const TASKS: usize = 32;

/// Returns true if a product `x W`, where W is `[k, n]`, is one of some rows with a transpose that [`product`] takes. Few rows
/// are taken at any precision, since rounding does not shorten the reading of W.
pub fn fits(x: Matrix<'_>, w: Matrix<'_>, precision: Precision) -> bool {
    let most = match precision {
        Precision::F32 => (w.rows / LENGTH_PER_ROW).clamp(matvec::MOST_ROWS, MOST_ROWS),
        _ => matvec::MOST_ROWS,
    };
    x.rows <= most && x.has_contiguous_rows() && w.transposed().has_contiguous_rows()
}

/// `y = x W` or `y += x W` on all threads, in f32, where it [`fits`].
///
/// # Panics
/// Panics if the sizes do not fit, or a stride that must be 1 is not.
pub fn product(y: MatrixMut<'_>, x: Matrix<'_>, w: Matrix<'_>, output: Output) {
    let products = Products::new(y, x, w, output);
    let [n, k] = [products.w.rows, products.w.columns];
    let row = (products.x.len() * k).max(1);
    let rows = n.div_ceil(TASKS).max(TASK.div_ceil(row));
    let rows = rows.next_multiple_of(BLOCK);
    parallel::for_each(n.div_ceil(rows), |task| {
        wide(Task {
            of: &products,
            rows: task * rows..n.min((task + 1) * rows),
        });
    });
}

/// [`product`] on only this thread.
///
/// # Panics
/// As [`product`].
pub fn product_here(y: MatrixMut<'_>, x: Matrix<'_>, w: Matrix<'_>, output: Output) {
    let products = Products::new(y, x, w, output);
    wide(Task {
        of: &products,
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

/// The products with some of W's rows: columns of y, which no other task has.
struct Task<'a, 'b> {
    of: &'b Products<'a>,
    rows: Range<usize>,
}

impl WithSimd for Task<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // What so few rows take is the time of memory, which is quickest front to back.
        if self.of.x.len() <= BLOCK {
            self.blocks::<S, 1>(simd);
        } else if S::REGISTER_COUNT >= 32 {
            self.blocks::<S, BLOCK>(simd);
        } else {
            self.blocks::<S, { BLOCK / 2 }>(simd);
        }
    }
}

impl Task<'_, '_> {
    /// Its rows of W, `J` at a time.
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

    /// `J` rows of W from the `j`-th on with each row of x.
    #[inline(always)]
    fn block<S: Simd, const J: usize>(&self, simd: S, j: usize) {
        let mut w: [&[f32]; J] = [&[]; J];
        for (s, w) in w.iter_mut().enumerate() {
            *w = self.of.w.row(j + s);
        }
        let (blocks, rest) = self.of.x.as_chunks::<BLOCK>();
        for (block, x) in blocks.iter().enumerate() {
            let i = block * BLOCK;
            self.put(i, j, inner_products(simd, w, *x, i == 0));
        }
        let i = blocks.len() * BLOCK;
        match *rest {
            [x, y, z] => self.put(i, j, inner_products(simd, w, [x, y, z], i == 0)),
            [x, y] => self.put(i, j, inner_products(simd, w, [x, y], i == 0)),
            [x] => self.put(i, j, inner_products(simd, w, [x], i == 0)),
            _ => {}
        }
    }

    /// Sums into y's rows from the `i`-th and columns from the `j`-th on.
    #[inline(always)]
    fn put<const I: usize, const J: usize>(&self, i: usize, j: usize, sums: [[f32; J]; I]) {
        let [down, across] = self.of.strides;
        for (row, sums) in sums.iter().enumerate() {
            for (column, sum) in sums.iter().enumerate() {
                // SAFETY: an element of y, which is borrowed while the tasks run, in a column of this task's own; it is
                // read only where it holds a number.
                unsafe {
                    let y = self.of.y.at((i + row) * down + (j + column) * across);
                    *y = match self.of.output {
                        Output::Overwrite => *sum,
                        Output::Accumulate => *y + *sum,
                    };
                }
            }
        }
    }
}

/// `Σ_l x_il w_jl`, over as many partial sums as a register holds. When rows of W are read first, the elements after
/// them are prefetched as well.
#[inline(always)]
fn inner_products<S: Simd, const I: usize, const J: usize>(
    simd: S,
    w: [&[f32]; J],
    x: [&[f32]; I],
    first: bool,
) -> [[f32; J]; I] {
    let k = w[0].len();
    let whole = k - k % S::F32_LANES;
    // Only loops: a closure may be compiled for the baseline CPU.
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
