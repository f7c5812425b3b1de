//! Matrix products.
//!
//! A product on all threads is divided into tiles of C, each computed by one thread. The division depends only on
//! the shapes, and the order of summation within a tile only on k, so results are bit-identical for any number of
//! threads.

use super::bf16::{self, Threads};
pub use super::matrix::Output;
use super::matrix::{Matrix, MatrixMut};
use super::parallel::{self, Start};
use super::{inner_products, matvec};
use crate::Precision;

/// Products with fewer multiplications stay on the calling thread, because starting other threads would take as
/// long.
const SMALL: usize = 200_000;
/// The approximate number of multiplications per tile, which take 0.1 to 0.2 ms.
const TILE: usize = 8 << 20;
/// The maximum number of tiles, since each packs its own parts of A and B.
const MOST_TILES: usize = 16;

/// `C = A B` or `C += A B`, `[m, k] · [k, n]`, on all threads.
///
/// Products of few rows ([`matvec`], [`inner_products`]) are limited by reading B, which rounding does not make
/// faster. They are computed in f32 at any precision.
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
    // If A's rows are not contiguous, packing it in each tile is slow; packing it once is 5 to 10 % faster.
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
        // SAFETY: the tile is within C, which is borrowed while the tasks run, and tiles do not overlap.
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

/// [`product`] on the calling thread only, and always at the requested precision. For use within parallel tasks.
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
    // SAFETY: the elements of each matrix are within the memory that it borrows, exclusively for `c`.
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

/// Transposes the product, `Cᵀ = Bᵀ Aᵀ`, if C has contiguous columns rather than rows.
fn rows_first<'a, 'b>(
    mut c: MatrixMut<'a>,
    a: Matrix<'b>,
    b: Matrix<'b>,
) -> (MatrixMut<'a>, Matrix<'b>, Matrix<'b>) {
    if c.column_stride <= c.row_stride {
        return (c, a, b);
    }
    let (sizes, strides) = ([c.columns, c.rows], [c.column_stride, c.row_stride]);
    // SAFETY: the transposed view has the same elements, and replaces the matrix that borrows them.
    let c = unsafe { MatrixMut::from_raw(c.as_mut_ptr(), sizes, strides) };
    (c, b.transposed(), a.transposed())
}

/// The number of rows and columns of a tile. There are enough tiles to keep the threads busy, in the shape with
/// the lowest packing cost.
///
/// A tile of `r` × `s` packs `r` rows of A and `s` columns of B. Relative to its `r s k` multiplications, that
/// costs `along / s + down / r`. The constants are measured; packing against the storage order is several times
/// more expensive.
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

/// `len` divided by `parts`, rounded up to a multiple of `step`, the size of the kernel's register tile.
fn whole_steps(len: usize, parts: usize, step: usize) -> usize {
    len.div_ceil(parts).next_multiple_of(step)
}
