//! Row-wise packing, unpacking and products of packed weights on slices.

use super::inner_products;
use super::int8;
use super::matrix::{Matrix, MatrixMut};
use super::parallel::{self, Shared, Start};
use super::product::{Output, product_here};
use super::vector::wide;
use crate::{PackedFormat, Precision};

/// The maximum number of rows of x for the format's own kernel.
const FEW: usize = 2;
/// The number of rows of W that are unpacked to f32 at a time for larger x.
const BLOCK: usize = 96;

/// A packed matrix `[rows, columns]`, `[out, in]` for a weight.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedMatrix {
    /// The storage format.
    pub format: PackedFormat,
    /// The bytes of all rows, [`PackedFormat::row_bytes`] each.
    pub bytes: Vec<i8>,
    /// The scales of all rows, [`PackedFormat::row_scales`] each.
    pub scales: Vec<f32>,
    /// The number of weights per row.
    pub columns: usize,
}

impl PackedMatrix {
    /// The shape of the unpacked matrix, `[rows, columns]`.
    pub fn shape(&self) -> [usize; 2] {
        [self.view().rows(), self.columns]
    }

    /// A borrowed view.
    pub fn view(&self) -> PackedView<'_> {
        PackedView {
            format: self.format,
            bytes: &self.bytes,
            scales: &self.scales,
            columns: self.columns,
        }
    }
}

/// A view of a [`PackedMatrix`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackedView<'a> {
    /// The storage format.
    pub format: PackedFormat,
    /// The bytes of all rows, [`PackedFormat::row_bytes`] each.
    pub bytes: &'a [i8],
    /// The scales of all rows, [`PackedFormat::row_scales`] each.
    pub scales: &'a [f32],
    /// The number of weights per row.
    pub columns: usize,
}

impl<'a> PackedView<'a> {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.scales.len() / self.format.row_scales(self.columns)
    }

    /// The bytes and scales of row `row`.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> (&'a [i8], &'a [f32]) {
        let bytes = self.format.row_bytes(self.columns);
        let scales = self.format.row_scales(self.columns);
        (
            &self.bytes[row * bytes..(row + 1) * bytes],
            &self.scales[row * scales..(row + 1) * scales],
        )
    }
}

/// Packs the rows of `w` on all threads. A block with a non-finite element unpacks to non-finite values only.
pub fn pack(format: PackedFormat, w: Matrix<'_>) -> PackedMatrix {
    let [row_bytes, row_scales] = [format.row_bytes(w.columns), format.row_scales(w.columns)];
    let mut bytes = vec![0i8; w.rows * row_bytes];
    let mut scales = vec![0.0f32; w.rows * row_scales];
    let (all_bytes, all_scales) = (Shared::new(&mut bytes), Shared::new(&mut scales));
    parallel::for_each(w.rows, |j| {
        let row: Vec<f32> = (0..w.columns)
            // SAFETY: the element is within the matrix.
            .map(|l| unsafe { *w.as_ptr().add(j * w.row_stride + l * w.column_stride) })
            .collect();
        // SAFETY: each task writes its own row.
        let (bytes, scales) = unsafe {
            let bytes = all_bytes.part(j * row_bytes..(j + 1) * row_bytes);
            (bytes, all_scales.part(j * row_scales..(j + 1) * row_scales))
        };
        match format {
            PackedFormat::Int8 => int8::pack_row(&row, bytes, scales),
        }
    });
    PackedMatrix {
        format,
        bytes,
        scales,
        columns: w.columns,
    }
}

/// Unpacks `w` to `out` `[rows, columns]` on all threads.
///
/// # Panics
/// Panics if `out` has a different size.
pub fn unpack(w: PackedView<'_>, out: &mut [f32]) {
    assert_eq!(out.len(), w.rows() * w.columns, "the sizes do not fit");
    let all = Shared::new(out);
    parallel::for_each(w.rows(), |j| {
        // SAFETY: each task writes its own row.
        let row = unsafe { all.part(j * w.columns..(j + 1) * w.columns) };
        unpack_row(w, j, row);
    });
}

/// Unpacks row `row`.
fn unpack_row(w: PackedView<'_>, row: usize, out: &mut [f32]) {
    let (bytes, scales) = w.row(row);
    match w.format {
        PackedFormat::Int8 => wide(
            #[inline(always)]
            || int8::unpack_row(bytes, scales, out),
        ),
    }
}

/// `y = x Wᵀ` or `y += x Wᵀ`, `[m, k] · [n, k]ᵀ`, on all threads.
///
/// For one or two rows of x, the format's kernel makes a single pass over the packed W. For more rows, W is
/// unpacked to f32 block by block.
///
/// # Panics
/// Panics if the sizes do not fit, or the rows of y or x are not contiguous.
pub fn product(mut y: MatrixMut<'_>, x: Matrix<'_>, w: PackedView<'_>, output: Output) {
    let [m, k, n] = [x.rows, w.columns, w.rows()];
    assert!(
        y.rows == m
            && y.columns == n
            && x.columns == k
            && w.bytes.len() == n * w.format.row_bytes(k)
            && w.scales.len() == n * w.format.row_scales(k),
        "the sizes do not fit"
    );
    assert!(
        y.has_contiguous_rows() && x.has_contiguous_rows(),
        "the columns are not contiguous"
    );
    if m <= FEW {
        return match w.format {
            PackedFormat::Int8 => int8::matvec(y, x, w, output),
        };
    }
    let (start, stride) = (Start(y.as_mut_ptr()), y.row_stride);
    parallel::for_each(n.div_ceil(BLOCK), |task| {
        let block = task * BLOCK..n.min((task + 1) * BLOCK);
        let mut dense = vec![0.0f32; block.len() * k];
        for (dense, j) in dense.chunks_mut(k.max(1)).zip(block.clone()) {
            unpack_row(w, j, dense);
        }
        // SAFETY: the columns are within y, and no other task writes them.
        let y = unsafe {
            let strides = [stride, 1];
            MatrixMut::from_raw(start.at(block.start), [m, block.len()], strides)
        };
        let dense = Matrix::row_major(&dense, block.len(), k).transposed();
        if inner_products::fits(x, dense, Precision::F32) {
            inner_products::product_here(y, x, dense, output);
        } else {
            product_here(y, x, dense, output, Precision::F32);
        }
    });
}
