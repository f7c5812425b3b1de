//! Products of few rows with a large matrix, as in sampling. They are limited by memory bandwidth, so the matrix
//! is read only once.
//!
//! `y[m, n] = x[m, k] W`, where W's rows are contiguous: W is `[k, n]`, or `[n, k]` for `x Wᵀ`. Each task reads
//! its part of W once and sequentially for all rows of x.

use std::ops::Range;

use super::matrix::{Matrix, MatrixMut, Output};
use super::parallel::{self, Shared};
use super::prefetch::{LINE, prefetch_ahead};
use super::vector::{dot, wide};

/// The maximum number of rows of x.
pub const MOST_ROWS: usize = 8;
/// The prefetch distance in W in bytes: far enough to hide the memory latency, and near enough for the data to
/// still be in the cache when it is used. On an AMD EPYC (Zen 5), f32 came from memory with 43 GB/s, and with twice the distance
/// with 39 GB/s.
pub(super) const AHEAD: usize = 4096;
/// The prefetch distance of [`by_columns`] in bytes. On an Intel Xeon, its f32 came from memory with 29 GB/s, and with
/// 8 KiB with 26 GB/s.
const NEAR: usize = 2048;
/// The number of columns of W per task for a single row of x. The sums stay in the L2 cache while rows are added to them. Shorter
/// rows are processed whole, so memory is read sequentially: on an Intel Xeon, rows of 5,632 elements came from memory with 35
/// GB/s, and in two parts with 20 GB/s.
const LONG: usize = 32768;
/// The number of columns of W per task for several rows of x.
const TASK_COLUMNS: usize = 1024;
/// The number of columns of W that stay in the L1 cache while each row of x uses them.
const COLUMNS: usize = 512;
/// The number of rows of W that are added to the sums of several rows at a time, and thereby of concurrent memory
/// streams.
const STREAMS: usize = 8;
/// The minimum number of rows of W per task, since every task writes partial sums that are read again.
const DEEP: usize = 96;
/// The approximate minimum number of elements of W per task of [`by_rows`].
const SMALL_TASK: usize = 1 << 15;
/// The maximum number of tasks of [`by_rows`].
const PARTS: usize = 16;
/// The approximate minimum number of elements of W per task of [`by_columns`].
const TASK: usize = 1 << 14;

/// Returns true if [`product`] supports the product. Several rows of x require contiguous rows of W; otherwise
/// [`super::inner_products`] handles them.
pub fn fits(y: &MatrixMut<'_>, x: Matrix<'_>, w: Matrix<'_>) -> bool {
    let by_rows = w.has_contiguous_rows() && !is_column(w);
    y.rows <= MOST_ROWS
        && y.has_contiguous_rows()
        && (y.rows <= 1 || y.row_stride >= y.columns)
        && x.has_contiguous_rows()
        && (by_rows || (y.rows <= 1 && w.transposed().has_contiguous_rows()))
}

/// Returns true for a column with contiguous elements, which is faster as a single row of the transpose.
fn is_column(w: Matrix<'_>) -> bool {
    w.columns == 1 && w.row_stride == 1
}

/// `y = x W` or `y += x W` in f32 on all threads, for products that [`fits`] accepts.
///
/// # Panics
/// Panics if the sizes do not fit, or rows are not contiguous where they must be.
pub fn product(mut y: MatrixMut<'_>, x: Matrix<'_>, w: Matrix<'_>, output: Output) {
    assert!(
        fits(&y, x, w) && y.rows == x.rows && y.columns == w.columns && x.columns == w.rows,
        "the product is not one of few rows"
    );
    let [m, n] = [y.rows, y.columns];
    let x: Vec<&[f32]> = (0..m).map(|i| x.row(i)).collect();
    let mut out = Vec::with_capacity(m);
    for i in 0..m {
        // SAFETY: a row of y, which is borrowed exclusively; its columns are contiguous and its rows do not
        // overlap.
        let row =
            unsafe { std::slice::from_raw_parts_mut(y.as_mut_ptr().add(i * y.row_stride), n) };
        if output == Output::Overwrite {
            row.fill(0.0);
        }
        out.push(Shared::new(row));
    }
    if n == 0 || x.is_empty() || w.rows == 0 {
        return;
    }
    match (&out[..], &x[..]) {
        ([y], [x]) if is_column(w) || !w.has_contiguous_rows() => {
            by_columns(y, x, w.transposed());
        }
        _ => by_rows(&out, &x, w),
    }
}

/// `y += x W` for W `[k, n]`: sums rows of W times elements of x.
fn by_rows(y: &[Shared<'_, f32>], x: &[&[f32]], w: Matrix<'_>) {
    let [k, n] = [w.rows, w.columns];
    let width = if x.len() == 1 { LONG } else { TASK_COLUMNS };
    let across = n.div_ceil(width);
    let most = (k / DEEP).min(k * n.min(width) / SMALL_TASK);
    let parts = most.clamp(1, PARTS.div_ceil(across));
    let deep = k.div_ceil(parts).next_multiple_of(STREAMS);
    let parts = k.div_ceil(deep);
    let mut partial = vec![0.0f32; parts * x.len() * n];
    let sums = Shared::new(&mut partial);
    parallel::for_each(parts * across, |task| {
        let (part, first) = (task / across, task % across * width);
        let columns = first..n.min(first + width);
        let depth = part * deep..k.min((part + 1) * deep);
        let sums_of = |i: usize, columns: &Range<usize>| {
            let at = (part * x.len() + i) * n;
            // SAFETY: no other task writes these columns of the part, and this task borrows them for one row of x
            // at a time.
            unsafe { sums.part(at + columns.start..at + columns.end) }
        };
        wide(
            #[inline(always)]
            || match x {
                [x] => {
                    let sums = sums_of(0, &columns);
                    for l in depth {
                        add_row(sums, &w.row(l)[columns.clone()], x[l]);
                    }
                }
                _ => add_block(sums_of, x, w, depth, columns),
            },
        );
    });
    let tasks = n.div_ceil(TASK_COLUMNS);
    let add = |task: usize| {
        let columns = task * TASK_COLUMNS..n.min((task + 1) * TASK_COLUMNS);
        for (i, y) in y.iter().enumerate() {
            // SAFETY: each task writes its own columns.
            let y = unsafe { y.part(columns.clone()) };
            for part in 0..parts {
                let at = (part * x.len() + i) * n;
                // SAFETY: the tasks that wrote the sums have finished.
                let sums = unsafe { sums.part(at + columns.start..at + columns.end) };
                wide(|| {
                    for (y, sum) in y.iter_mut().zip(sums.iter()) {
                        *y += *sum;
                    }
                });
            }
        }
    };
    if sums.len() < TASK {
        (0..tasks).for_each(add);
    } else {
        parallel::for_each(tasks, add);
    }
}

/// `sums += x row`, for a row that is read from memory.
#[inline(always)]
fn add_row(sums: &mut [f32], row: &[f32], x: f32) {
    let (sums, rest_sums) = sums.as_chunks_mut::<LINE>();
    let (row, rest_row) = row.as_chunks::<LINE>();
    let row = &row[..sums.len()];
    for (at, sums) in sums.iter_mut().enumerate() {
        let mut products = [0.0f32; LINE];
        for lane in 0..LINE {
            products[lane] = x * row[at][lane];
        }
        prefetch_ahead::<AHEAD, f32>(&row[at]);
        for lane in 0..LINE {
            sums[lane] += products[lane];
        }
    }
    for (sum, row) in rest_sums.iter_mut().zip(rest_row) {
        *sum += x * *row;
    }
}

/// `sums_i += Σ_l x_il row_l` for the rows and columns of one task, several rows at a time.
#[inline(always)]
fn add_block<'a>(
    sums_of: impl Fn(usize, &Range<usize>) -> &'a mut [f32],
    x: &[&[f32]],
    w: Matrix<'_>,
    depth: Range<usize>,
    columns: Range<usize>,
) {
    for start in columns.clone().step_by(COLUMNS) {
        let columns = start..columns.end.min(start + COLUMNS);
        for l in depth.clone().step_by(STREAMS) {
            let count = STREAMS.min(depth.end - l);
            for (i, x) in x.iter().enumerate() {
                let sums = sums_of(i, &columns);
                if count == STREAMS {
                    let rows = std::array::from_fn(|s| &w.row(l + s)[columns.clone()]);
                    add_rows::<STREAMS>(sums, rows, &x[l..l + STREAMS]);
                } else {
                    for l in l..l + count {
                        add_rows::<1>(sums, [&w.row(l)[columns.clone()]], &x[l..=l]);
                    }
                }
            }
        }
    }
}

/// `y += Σ x_s row_s`.
#[inline(always)]
fn add_rows<const S: usize>(y: &mut [f32], rows: [&[f32]; S], x: &[f32]) {
    let rows = rows.map(|row| &row[..y.len()]);
    let x: [f32; S] = std::array::from_fn(|s| x[s]);
    for (j, y) in y.iter_mut().enumerate() {
        let mut sum = x[0] * rows[0][j];
        for s in 1..S {
            sum += x[s] * rows[s][j];
        }
        *y += sum;
    }
}

/// `y += x Wᵀ` for W `[n, k]` and one row of x: inner products with rows of W. [`super::inner_products`] would
/// compute a single row as one chain of dependent additions; with it, GPT-2 decoded 10 to 25% slower.
fn by_columns(y: &Shared<'_, f32>, x: &[f32], w: Matrix<'_>) {
    let [n, k] = [w.rows, w.columns];
    let rows = parallel::weight_rows_per_task([n, k], TASK);
    parallel::for_each(n.div_ceil(rows), |task| {
        wide(
            #[inline(always)]
            || {
                let rows = task * rows..n.min((task + 1) * rows);
                // SAFETY: each task writes its own columns.
                let y = unsafe { y.part(rows.clone()) };
                for (y, j) in y.iter_mut().zip(rows) {
                    *y += dot::<NEAR, f32>(w.row(j), x, |w| w);
                }
            },
        );
    });
}
