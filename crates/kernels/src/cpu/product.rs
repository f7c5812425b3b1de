//! Products of matrices.
//!
//! A product on all threads is cut into tiles of C, each a product on one thread. The cut follows from only the shapes,
//! and within a tile the terms are added in an order that depends only on k: the same bits on any number of threads.

use super::bf16::{self, Threads};
pub use super::matrix::Output;
use super::matrix::{Matrix, MatrixMut};
use super::parallel::{self, Start};
use super::{inner_products, matvec};
use crate::Precision;

/// Products with fewer multiplications than this are made at once: waking other threads takes as long.
const SMALL: usize = 200_000;
/// About how many multiplications a tile gets: a tenth of a millisecond or two.
const TILE: usize = 8 << 20;
/// The maximum number of tiles: each packs its parts of A and B.
const MOST_TILES: usize = 16;

/// `C = A B` or `C += A B`, `[m, k] · [k, n]`, on all threads.
///
/// A product of few rows takes the time of reading B, which rounding does not shorten: it is f32 at any precision
/// ([`matvec`], [`inner_products`]).
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn product(
    c: MatrixMut<'_>,
    a: Matrix<'_>,
    b: Matrix<'_>,
    output: Output,
    precision: Precision,
) {
    assert_fit(&c, a, b);
    let (mut c, a, b) = rows_first(c, a, b);
    if matvec::fits(&c, a, b) {
        return matvec::product(c, a, b, output);
    }
    if inner_products::fits(a, b, precision) {
        return inner_products::product(c, a, b, output);
    }
    let work = c.rows.saturating_mul(c.columns).saturating_mul(a.columns);
    if work < SMALL {
        return product_here(c, a, b, output, precision);
    }
    // Where A's rows are not contiguous, each tile would pack it slowly: packing it once gains 5 to 10 %.
    let shared = work > TILE * MOST_TILES && a.column_stride != 1;
    if (precision == Precision::Bf16 || shared)
        && bf16::product(&mut c, a, b, output, precision, Threads::All)
    {
        return;
    }
    let [rows, columns] = tile(a, b, work);
    let across = c.columns.div_ceil(columns);
    let strides = [c.row_stride, c.column_stride];
    let start = Start(c.as_mut_ptr());
    let k = a.columns;
    parallel::for_each(c.rows.div_ceil(rows) * across, |task| {
        let [i, j] = [task / across * rows, task % across * columns];
        let [end_i, end_j] = [c.rows.min(i + rows), c.columns.min(j + columns)];
        // SAFETY: the tile lies within C, which is borrowed for as long as the tasks run, and no two tiles overlap.
        let c = unsafe {
            let start = start.at(i * strides[0] + j * strides[1]);
            MatrixMut::from_raw(start, [end_i - i, end_j - j], strides)
        };
        product_here(
            c,
            a.block(i..end_i, 0..k),
            b.block(0..k, j..end_j),
            output,
            precision,
        );
    });
}

/// [`product`] on only this thread, at the requested precision: for tasks that are themselves spread over
/// threads.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn product_here(
    c: MatrixMut<'_>,
    a: Matrix<'_>,
    b: Matrix<'_>,
    output: Output,
    precision: Precision,
) {
    assert_fit(&c, a, b);
    let (mut c, a, b) = rows_first(c, a, b);
    if precision == Precision::Bf16 && bf16::product(&mut c, a, b, output, precision, Threads::This)
    {
        return;
    }
    let stride = |stride: usize| stride as isize;
    // SAFETY: each matrix's elements lie within memory that it borrows, `c`'s exclusively.
    unsafe {
        gemm::gemm(
            a.rows,
            b.columns,
            a.columns,
            c.as_mut_ptr(),
            stride(c.column_stride),
            stride(c.row_stride),
            output == Output::Accumulate,
            a.as_ptr(),
            stride(a.column_stride),
            stride(a.row_stride),
            b.as_ptr(),
            stride(b.column_stride),
            stride(b.row_stride),
            1.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

fn assert_fit(c: &MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>) {
    assert!(
        a.columns == b.rows && c.rows == a.rows && c.columns == b.columns,
        "the sizes do not fit"
    );
}

/// The product whose C has contiguous rows rather than columns: `Cᵀ = Bᵀ Aᵀ` is the same.
fn rows_first<'a, 'b>(
    mut c: MatrixMut<'a>,
    a: Matrix<'b>,
    b: Matrix<'b>,
) -> (MatrixMut<'a>, Matrix<'b>, Matrix<'b>) {
    if c.column_stride <= c.row_stride {
        return (c, a, b);
    }
    let (sizes, strides) = ([c.columns, c.rows], [c.column_stride, c.row_stride]);
    // SAFETY: the same elements, exchanged, and the matrix that borrowed them is given up.
    let c = unsafe { MatrixMut::from_raw(c.as_mut_ptr(), sizes, strides) };
    (c, b.transposed(), a.transposed())
}

/// Rows and columns of a tile: enough tiles to keep threads busy, of the form whose packing costs least.
///
/// A tile of r × s packs r rows of A and s columns of B, which takes, relative to its r s k multiplications, a time of
/// `across / s + down / r`. The costs are measured: packing against the direction in memory is many times dearer.
fn tile(a: Matrix<'_>, b: Matrix<'_>, work: usize) -> [usize; 2] {
    let along = if a.column_stride == 1 { 3.0 } else { 24.0 };
    let down = if b.column_stride == 1 { 7.0 } else { 60.0 };
    let tiles = work.div_ceil(TILE).clamp(2, MOST_TILES);
    let mut best = (f64::INFINITY, [a.rows, b.columns]);
    for parts in 1..=tiles {
        let rows = whole_steps(a.rows, parts, 16);
        let columns = whole_steps(b.columns, tiles.div_ceil(parts), 48);
        let whole = |len: usize, step: usize| (len.div_ceil(step) * step) as f64 / len as f64;
        let uneven = whole(a.rows, rows) * whole(b.columns, columns);
        let cost = (1.0 + along / columns as f64 + down / rows as f64) * uneven;
        if cost < best.0 {
            best = (cost, [rows, columns]);
        }
    }
    best.1
}

/// A `parts`-th of `len`, in whole steps of the kernel's registers.
fn whole_steps(len: usize, parts: usize, step: usize) -> usize {
    len.div_ceil(parts).next_multiple_of(step)
}
