//! Low-rank updates of rows with different factors, as of sequences with different adapters in one pass.

use std::ops::Range;

use super::matrix::{Matrix, Output};
use super::parallel::{self, Shared};
use super::product::{Around, affine};
use super::reduce::add_scaled;
use super::vector::{LANES, wide};
use crate::Precision;

/// An update of consecutive rows: `y += x A B`.
#[derive(Clone, Debug)]
pub struct RowsUpdate<'a> {
    /// The rows of x and y.
    pub rows: Range<usize>,
    /// A, `[in, rank]`.
    pub a: Matrix<'a>,
    /// B, `[rank, out]`.
    pub b: Matrix<'a>,
}

/// Multiplications up to which one thread computes an update.
const SMALL: usize = 200_000;
/// Multiplications up to which the calling thread computes all small updates.
const SINGLE_THREADED: usize = 1 << 16;
/// The number of columns of A that are multiplied at a time. Ranks are rarely much larger.
const WIDTH: usize = 8;
/// The number of rows of A whose products are summed separately.
const STREAMS: usize = 4;

impl RowsUpdate<'_> {
    /// The number of multiplications.
    fn work(&self) -> usize {
        let rank = self.a.columns;
        let factors = rank * (self.a.rows + self.b.columns);
        self.rows.len().saturating_mul(factors)
    }

    /// True if [`RowsUpdate::add_small`] computes the update.
    fn is_small(&self) -> bool {
        let rows = |matrix: Matrix<'_>| matrix.has_contiguous_rows();
        let a = rows(self.a) || rows(self.a.transposed());
        self.work() <= SMALL && a && rows(self.b)
    }

    /// Adds the update of each of the rows `y` on the calling thread.
    fn add_small(&self, y: &mut [f32], x: Matrix<'_>) {
        let mut down = vec![0.0; self.a.columns];
        let width = self.b.columns.max(1);
        for (y, row) in y.chunks_exact_mut(width).zip(self.rows.clone()) {
            let x = x.row(row);
            wide(
                #[inline(always)]
                || {
                    match self.a.has_contiguous_rows() {
                        true => add_rows(&mut down, x, self.a),
                        false => inner_products(&mut down, x, self.a.transposed()),
                    }
                    for (r, &scale) in down.iter().enumerate() {
                        add_scaled(y, self.b.row(r), scale);
                    }
                },
            );
        }
    }

    /// Adds the update of the rows `y` on all threads.
    fn add(&self, y: &mut [f32], x: Matrix<'_>, precision: Precision) {
        let rank = self.a.columns;
        let x = x.block(self.rows.clone(), 0..x.columns);
        let mut down = vec![0.0; self.rows.len() * rank];
        let (set, add, around) = (Output::Overwrite, Output::Accumulate, Around::default());
        affine(&mut down, x, self.a, set, around, precision);
        let down = Matrix::row_major(&down, self.rows.len(), rank);
        affine(y, down, self.b, add, around, precision);
    }
}

/// Adds updates to the rows of y, `[rows, out]`, for x `[rows, in]`. Small updates are computed by one thread each, in f32
/// at any precision.
///
/// # Panics
/// Panics if the sizes do not fit, or the rows of the updates overlap or are not in ascending order.
pub fn add(y: &mut [f32], x: Matrix<'_>, updates: &[RowsUpdate<'_>], precision: Precision) {
    let mut end = 0;
    for update in updates {
        let RowsUpdate { rows, a, b } = update;
        assert!(
            rows.start >= end && rows.start <= rows.end && rows.end <= x.rows,
            "the updates' rows are not in ascending order"
        );
        let width = b.columns;
        assert!(
            a.rows == x.columns && a.columns == b.rows && y.len() == x.rows * width,
            "the factors do not fit the rows"
        );
        end = rows.end;
    }
    let range = |update: &RowsUpdate<'_>| {
        let width = update.b.columns;
        update.rows.start * width..update.rows.end * width
    };
    let (small, large): (Vec<_>, Vec<_>) = updates.iter().partition(|update| update.is_small());
    for update in large {
        update.add(&mut y[range(update)], x, precision);
    }
    let work: usize = small.iter().map(|update| update.work()).sum();
    let y = Shared::new(y);
    let task = |task: usize| {
        let update = small[task];
        // SAFETY: the rows of the updates do not overlap, and each task has one update.
        let y = unsafe { y.part(range(update)) };
        update.add_small(y, x);
    };
    match work <= SINGLE_THREADED {
        true => (0..small.len()).for_each(task),
        false => parallel::for_each(small.len(), task),
    }
}

/// `down = x A`, for A with contiguous rows.
#[inline(always)]
fn add_rows(down: &mut [f32], x: &[f32], a: Matrix<'_>) {
    let (blocks, rest) = x.as_chunks::<STREAMS>();
    for (block, down) in down.chunks_mut(WIDTH).enumerate() {
        let columns = block * WIDTH..block * WIDTH + down.len();
        // Several sums, so that an addition does not wait for the previous one.
        let mut sums = [[0.0; WIDTH]; STREAMS];
        for (at, x) in blocks.iter().enumerate() {
            for stream in 0..STREAMS {
                let row = &a.row(at * STREAMS + stream)[columns.clone()];
                add_row(&mut sums[stream], row, x[stream]);
            }
        }
        for (at, &x) in rest.iter().enumerate() {
            let row = &a.row(blocks.len() * STREAMS + at)[columns.clone()];
            add_row(&mut sums[at], row, x);
        }
        let [p, q, r, s] = sums;
        for (lane, down) in down.iter_mut().enumerate() {
            *down = (p[lane] + q[lane]) + (r[lane] + s[lane]);
        }
    }
}

/// `sums += x row`, for a row of at most as many elements.
#[inline(always)]
fn add_row(sums: &mut [f32; WIDTH], row: &[f32], x: f32) {
    match <&[f32; WIDTH]>::try_from(row) {
        Ok(row) => {
            for lane in 0..WIDTH {
                sums[lane] += x * row[lane];
            }
        }
        Err(_) => {
            for (sum, a) in sums.iter_mut().zip(row) {
                *sum += x * a;
            }
        }
    }
}

/// `down = x A`, for the transpose of A with contiguous rows.
#[inline(always)]
fn inner_products(down: &mut [f32], x: &[f32], transposed: Matrix<'_>) {
    let (blocks, rest) = x.as_chunks::<LANES>();
    for (r, down) in down.iter_mut().enumerate() {
        let row = transposed.row(r);
        let (columns, row_rest) = row.as_chunks::<LANES>();
        let mut sums = [0.0; LANES];
        for (x, a) in blocks.iter().zip(columns) {
            for lane in 0..LANES {
                sums[lane] += x[lane] * a[lane];
            }
        }
        let products = rest.iter().zip(row_rest).map(|(x, a)| x * a);
        *down = sums.iter().sum::<f32>() + products.sum::<f32>();
    }
}
