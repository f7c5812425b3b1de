//! Matrix products.
//!
//! A product on all threads is divided into tiles of C, each computed by one thread. The division depends only on
//! the shapes, and the order of summation within a tile only on k, so results are bit-identical for any number of
//! threads. [`affine`] adds a bias to each tile and applies an activation while the tile is in its core's cache.

use super::bf16::{self, Threads};
pub use super::matrix::Output;
use super::matrix::{Matrix, MatrixMut, assert_fit};
use super::parallel::{self, Start};
use super::{activation, inner_products, matvec, reduce};
use crate::{Activation, Precision};

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
    let precision = bf16::usable(precision);
    let (mut c, a, b) = rows_first(c, a, b);
    match Method::of(&c, a, b, precision) {
        Method::FewRows => matvec::product(c, a, b, output),
        Method::InnerProducts => inner_products::product(c, a, b, output),
        Method::Small => product_here(c, a, b, output, precision),
        Method::PackedOnce if bf16::product(&mut c, a, b, output, precision, Threads::All) => {}
        Method::PackedOnce | Method::Tiles => tiled(c, a, b, output, precision, Around::default()),
    }
}

/// Elementwise work around a product.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around<'a> {
    /// A row that is added to every row of the product, `[n]`.
    pub bias: Option<&'a [f32]>,
    /// The function of the sums.
    pub activation: Option<Activation>,
}

/// `C = f(A B + bias)` or `C = f(C + A B + bias)`, `[m, k] · [k, n]`, on all threads, with C in row-major order. The
/// results are those of separate passes for product, bias and activation.
///
/// The bias is added after the product: a product that accumulates onto rows of the bias is slower, since it reads C.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn affine(
    c: &mut [f32],
    a: Matrix<'_>,
    b: Matrix<'_>,
    output: Output,
    around: Around<'_>,
    precision: Precision,
) {
    let Around { bias, activation } = around;
    let precision = bf16::usable(precision);
    assert!(
        bias.is_none_or(|bias| bias.len() == b.columns),
        "the bias is not as long as a row"
    );
    let view = MatrixMut::row_major(c, a.rows, b.columns);
    assert_fit(&view, a, b);
    if Method::of(&view, a, b, precision) == Method::Tiles {
        return tiled(view, a, b, output, precision, around);
    }
    product(view, a, b, output, precision);
    if let Some(bias) = bias {
        reduce::add_row_in_place(c, bias);
    }
    if let Some(kind) = activation {
        activation::activate_in_place(kind, c);
    }
}

/// The method that computes a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// [`matvec`].
    FewRows,
    /// [`inner_products`].
    InnerProducts,
    /// On the calling thread.
    Small,
    /// Operands are packed once for all threads, if the CPU has the instructions of [`bf16`].
    PackedOnce,
    /// Tiles that pack their operands.
    Tiles,
}

impl Method {
    fn of(c: &MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>, precision: Precision) -> Self {
        let work = work(a, b);
        // If A's rows are not contiguous, packing it in each tile is slow; packing it once is 5 to 10 % faster.
        let shared = work > TILE * MOST_TILES && a.column_stride != 1;
        match () {
            () if matvec::fits(c, a, b) => Self::FewRows,
            () if inner_products::fits(a, b, precision) => Self::InnerProducts,
            () if work < SMALL => Self::Small,
            () if precision == Precision::Bf16 || shared => Self::PackedOnce,
            () => Self::Tiles,
        }
    }
}

/// The multiplications of a product.
fn work(a: Matrix<'_>, b: Matrix<'_>) -> usize {
    a.rows.saturating_mul(b.columns).saturating_mul(a.columns)
}

/// A product in tiles, with the elementwise work around it. With such work, the rows of C are contiguous.
fn tiled(
    mut c: MatrixMut<'_>,
    a: Matrix<'_>,
    b: Matrix<'_>,
    output: Output,
    precision: Precision,
    around: Around<'_>,
) {
    let [rows, columns] = tile(a, b, work(a, b));
    let across = c.columns.div_ceil(columns);
    let strides = [c.row_stride, c.column_stride];
    let start = Start(c.as_mut_ptr());
    let k = a.columns;
    parallel::for_each(c.rows.div_ceil(rows) * across, |task| {
        let [i, j] = [task / across * rows, task % across * columns];
        let [end_i, end_j] = [c.rows.min(i + rows), c.columns.min(j + columns)];
        // SAFETY: the tile is within C, which is borrowed while the tasks run, and tiles do not overlap. Only one view
        // of the tile is in use at a time.
        let tile = || unsafe {
            let start = start.at(i * strides[0] + j * strides[1]);
            MatrixMut::from_raw(start, [end_i - i, end_j - j], strides)
        };
        product_here(
            tile(),
            a.block(i..end_i, 0..k),
            b.block(0..k, j..end_j),
            output,
            precision,
        );
        around.apply(tile(), j);
    });
}

impl Around<'_> {
    /// Adds the bias to a tile that begins at column `first`, and applies the activation.
    fn apply(self, mut tile: MatrixMut<'_>, first: usize) {
        let bias = self.bias.map(|bias| &bias[first..first + tile.columns]);
        if bias.is_none() && self.activation.is_none() {
            return;
        }
        for row in 0..tile.rows {
            let row = tile.row_mut(row);
            if let Some(bias) = bias {
                reduce::add_row(row, bias);
            }
            if let Some(kind) = self.activation {
                activation::activate_row(kind, row);
            }
        }
    }
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
/// the lowest cost.
///
/// A tile of `r` × `s` packs `r` rows of A and `s` columns of B. Relative to its `r s k` multiplications, that
/// costs `along / s + down / r`. The constants are measured; packing against the storage order is several times
/// more expensive. With an odd number of tiles, one of two threads waits for the last.
fn tile(a: Matrix<'_>, b: Matrix<'_>, work: usize) -> [usize; 2] {
    let along = if a.column_stride == 1 { 3.0 } else { 16.0 };
    let down = if b.column_stride == 1 { 7.0 } else { 60.0 };
    let tiles = work.div_ceil(TILE).clamp(2, MOST_TILES);
    let whole = |len: usize, step: usize| (len.div_ceil(step) * step) as f64 / len as f64;
    let shape = |parts: usize, across: usize| {
        let rows = whole_steps(a.rows, parts, 12);
        let columns = whole_steps(b.columns, across, 64);
        let count = a.rows.div_ceil(rows) * b.columns.div_ceil(columns);
        let waste = whole(a.rows, rows) * whole(b.columns, columns) * whole(count, 2);
        let cost = (1.0 + along / columns as f64 + down / rows as f64) * waste;
        (cost, [rows, columns])
    };
    let shapes = (1..=tiles).flat_map(|parts| {
        let across = tiles.div_ceil(parts);
        [shape(parts, across), shape(parts, across + 1)]
    });
    let best = shapes.min_by(|(one, _), (other, _)| one.total_cmp(other));
    best.map_or([a.rows, b.columns], |(_, shape)| shape)
}

/// `len` divided by `parts`, rounded up to a multiple of `step`, the size of the kernel's register tile.
fn whole_steps(len: usize, parts: usize, step: usize) -> usize {
    len.div_ceil(parts).next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads finish a product at the same time, if its sizes permit that.
    #[test]
    fn tiles_are_even_in_number() {
        for [m, k, n] in [
            [2048, 64, 64],
            [2048, 192, 64],
            [768, 128, 384],
            [128, 768, 384],
            [256, 1024, 256],
        ] {
            let (a, b) = (vec![0.0; m * k], vec![0.0; k * n]);
            for [a_strides, b_strides] in [[[k, 1], [n, 1]], [[k, 1], [1, k]], [[1, m], [n, 1]]] {
                let a = Matrix::new(&a, [m, k], a_strides);
                let b = Matrix::new(&b, [k, n], b_strides);
                let [rows, columns] = tile(a, b, work(a, b));
                let tiles = m.div_ceil(rows) * n.div_ceil(columns);
                assert!(tiles.is_multiple_of(2), "{tiles} tiles of {m}x{k}x{n}");
            }
        }
    }
}
