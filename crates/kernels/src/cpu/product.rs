//! Products of matrices.

use super::matrix::{Matrix, MatrixMut};
use crate::Precision;

/// What becomes of what the product's place holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Nothing: it need not even be initialised.
    Overwrite,
    /// The product is added to it.
    Accumulate,
}

/// `C = A B` or `C += A B`, `[m, k] · [k, n]`, on all threads.
///
/// # Panics
/// Where the sizes do not fit.
pub fn product(
    c: MatrixMut<'_>,
    a: Matrix<'_>,
    b: Matrix<'_>,
    output: Output,
    precision: Precision,
) {
    product_here(c, a, b, output, precision);
}

/// [`product`] on this thread alone: for tasks that are themselves spread over threads.
///
/// # Panics
/// Where the sizes do not fit.
pub fn product_here(
    mut c: MatrixMut<'_>,
    a: Matrix<'_>,
    b: Matrix<'_>,
    output: Output,
    _precision: Precision,
) {
    assert!(
        a.columns == b.rows && c.rows == a.rows && c.columns == b.columns,
        "the sizes do not fit"
    );
    let stride = |stride: usize| stride as isize;
    // SAFETY: each matrix's elements lie within memory that it borrows, `c`'s alone in it.
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
