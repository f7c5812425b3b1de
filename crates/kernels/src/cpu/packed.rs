//! Row-wise packing, unpacking and products of packed weights on slices.

use pulp::{Simd, WithSimd};

use super::bf16::{self, Element, Threads};
use super::blocks::{self, levels};
use super::few_rows::{self, FEW};
use super::float16::{Bf16, F16};
use super::inner_products;
use super::int8::Int8;
use super::integer;
use super::matrix::{Matrix, MatrixMut};
use super::parallel::{self, Shared, Start};
use super::product::{Output, product_here};
use super::vector::wide;
use crate::{PackedError, PackedFormat, Precision};

/// The number of rows of W that are unpacked to f32 at a time.
const BLOCK: usize = 96;
/// The number of rows of x from which reordering W pays in f32.
const MANY: usize = 16;

/// A packed matrix `[rows, columns]`, `[out, in]` for a weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedMatrix {
    pub(crate) format: PackedFormat,
    pub(crate) bytes: Vec<u8>,
    pub(crate) shape: [usize; 2],
}

impl PackedMatrix {
    /// Creates a matrix from the bytes of its rows, [`PackedFormat::row_bytes`] each, as they are in a file.
    ///
    /// # Errors
    /// The row length is not a multiple of the format's block length, or the number of bytes is wrong.
    pub fn new(
        format: PackedFormat,
        shape: [usize; 2],
        bytes: Vec<u8>,
    ) -> Result<Self, PackedError> {
        PackedView::new(format, shape, &bytes)?;
        Ok(Self {
            format,
            bytes,
            shape,
        })
    }

    /// The storage format.
    pub const fn format(&self) -> PackedFormat {
        self.format
    }

    /// The shape of the unpacked matrix, `[rows, columns]`.
    pub const fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// The bytes of all rows, with the format of a view.
    pub(super) const fn parts_mut(&mut self) -> (PackedFormat, [usize; 2], &mut Vec<u8>) {
        (self.format, self.shape, &mut self.bytes)
    }

    /// The bytes of all rows.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of all rows.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A borrowed view.
    pub fn view(&self) -> PackedView<'_> {
        PackedView {
            format: self.format,
            bytes: &self.bytes,
            shape: self.shape,
        }
    }
}

/// A view of a [`PackedMatrix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedView<'a> {
    pub(crate) format: PackedFormat,
    pub(crate) bytes: &'a [u8],
    pub(crate) shape: [usize; 2],
}

impl<'a> PackedView<'a> {
    /// A view of the bytes of a matrix's rows, [`PackedFormat::row_bytes`] each, as they are in a file.
    ///
    /// # Errors
    /// The row length is not a multiple of the format's block length, or the number of bytes is wrong.
    pub fn new(
        format: PackedFormat,
        shape: [usize; 2],
        bytes: &'a [u8],
    ) -> Result<Self, PackedError> {
        let [rows, columns] = shape;
        format.check_columns(columns)?;
        let expected = format.bytes(shape);
        match bytes.len() == expected {
            true => Ok(Self {
                format,
                bytes,
                shape,
            }),
            false => Err(PackedError::ByteCount {
                format: format.name(),
                rows,
                columns,
                expected,
                found: bytes.len(),
            }),
        }
    }

    /// The bytes of row `row`.
    ///
    /// # Panics
    /// Panics if the matrix does not have the row.
    #[inline(always)]
    pub fn row(&self, row: usize) -> &'a [u8] {
        let bytes = self.format.row_bytes(self.shape[1]);
        &self.bytes[row * bytes..(row + 1) * bytes]
    }
}

/// Packs the rows of `w` on all threads. A block with a non-finite element unpacks to non-finite values only.
///
/// # Panics
/// Panics if [`PackedFormat::check_columns`] fails.
pub fn pack(format: PackedFormat, w: Matrix<'_>) -> PackedMatrix {
    pack_by_importance(format, w, None)
}

/// [`pack`], with the importance of each column: the rounding errors of a block are minimized in the norm that it
/// weights. The importance of an input is the mean of its squares over a text. f16, bf16, int8 and q8_0 do not
/// depend on it.
///
/// # Panics
/// Panics if [`PackedFormat::check_columns`] fails, or the importance does not have an element per column.
pub fn pack_by_importance(
    format: PackedFormat,
    w: Matrix<'_>,
    importance: Option<&[f32]>,
) -> PackedMatrix {
    assert!(
        w.columns.is_multiple_of(format.block_len())
            && importance.is_none_or(|importance| importance.len() == w.columns),
        "the sizes do not fit"
    );
    let row_bytes = format.row_bytes(w.columns);
    let mut bytes = vec![0u8; w.rows * row_bytes];
    let all = Shared::new(&mut bytes);
    parallel::for_each(w.rows, |j| {
        let row: Vec<f32> = (0..w.columns)
            // SAFETY: the element is within the matrix.
            .map(|l| unsafe { *w.as_ptr().add(j * w.row_stride + l * w.column_stride) })
            .collect();
        // SAFETY: each task writes its own row.
        let bytes = unsafe { all.part(j * row_bytes..(j + 1) * row_bytes) };
        blocks::pack_row(format, &row, importance, bytes);
    });
    PackedMatrix {
        format,
        bytes,
        shape: [w.rows, w.columns],
    }
}

/// Unpacks `w` to `out` `[rows, columns]` on all threads.
///
/// # Panics
/// Panics if `out` has a different size.
pub fn unpack(w: PackedView<'_>, out: &mut [f32]) {
    let [rows, columns] = w.shape;
    assert_eq!(out.len(), rows * columns, "the sizes do not fit");
    let all = Shared::new(out);
    parallel::for_each(rows, |j| {
        // SAFETY: each task writes its own row.
        let row = unsafe { all.part(j * columns..(j + 1) * columns) };
        unpack_row(w, j, row);
    });
}

/// Unpacks the rows `ids` to `out` `[ids, columns]`.
///
/// # Panics
/// Panics if `out` has a different size, or an id is not a row of `w`.
pub fn gather(w: PackedView<'_>, ids: &[i32], out: &mut [f32]) {
    let columns = w.shape[1];
    assert_eq!(out.len(), ids.len() * columns, "the sizes do not fit");
    let all = Shared::new(out);
    parallel::for_each(ids.len(), |i| {
        // SAFETY: each task writes its own row.
        let row = unsafe { all.part(i * columns..(i + 1) * columns) };
        unpack_row(w, ids[i] as usize, row);
    });
}

/// The elements of y that the tasks of a product write concurrently: a task has some rows of W, which are columns of y.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    y: Start<f32>,
    /// The stride of the rows of y.
    stride: usize,
    output: Output,
}

impl Sums {
    pub(super) fn new(y: &mut MatrixMut<'_>, output: Output) -> Self {
        Self {
            y: Start(y.as_mut_ptr()),
            stride: y.row_stride,
            output,
        }
    }

    /// Writes the inner product of row `i` of x and row `j` of W to y, or adds it.
    ///
    /// # Safety
    /// y is borrowed while the tasks run and has the element, which only the calling task accesses. To be added to, it is
    /// initialized.
    #[inline(always)]
    pub(super) unsafe fn put(self, i: usize, j: usize, sum: f32) {
        // SAFETY: as the caller guarantees. The element is only read if it is initialized.
        unsafe {
            let y = self.y.at(i * self.stride + j);
            *y = match self.output {
                Output::Overwrite => sum,
                Output::Accumulate => *y + sum,
            };
        }
    }

    /// [`Self::put`] for the rows of W from row `j`.
    ///
    /// # Safety
    /// As for [`Self::put`], for each of the elements.
    #[inline(always)]
    pub(super) unsafe fn put_all(self, i: usize, j: usize, sums: &[f32]) {
        for (at, sum) in sums.iter().enumerate() {
            // SAFETY: as the caller guarantees.
            unsafe { self.put(i, j + at, *sum) };
        }
    }
}

/// The size of the scale at the beginning of an int8 row in bytes.
pub const INT8_SCALE: usize = size_of::<f32>();

/// Splits an int8 row into its scale and values.
#[inline(always)]
pub fn split_int8(row: &[u8]) -> (f32, &[u8]) {
    match row.split_first_chunk::<INT8_SCALE>() {
        Some((scale, values)) => (f32::from_le_bytes(*scale), values),
        None => (0.0, &[]),
    }
}

/// Unpacks row `row`.
///
/// # Panics
/// Panics if the matrix does not have the row.
pub fn unpack_row(w: PackedView<'_>, row: usize, out: &mut [f32]) {
    wide(UnpackRow {
        format: w.format,
        bytes: w.row(row),
        out,
    });
}

/// A row to unpack. A type and not a closure, so that its body is compiled for the widest vectors.
struct UnpackRow<'a> {
    format: PackedFormat,
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl WithSimd for UnpackRow<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        blocks::unpack_row(self.format, self.bytes, self.out);
    }
}

/// `y = x Wᵀ` or `y += x Wᵀ`, `[m, k] · [n, k]ᵀ`, on all threads.
///
/// With formats of integers in blocks, x is rounded to 8 bits per 32 elements, for any number of rows. For a few rows, a
/// kernel makes a single pass over the packed W. For more rows with f16 and bf16, the factors are rounded to `precision`; other
/// formats are unpacked to f32 block by block.
///
/// # Panics
/// Panics if the sizes do not fit, or the rows of y or x are not contiguous.
pub fn product(
    y: MatrixMut<'_>,
    x: Matrix<'_>,
    w: PackedView<'_>,
    output: Output,
    precision: Precision,
) {
    let (m, [n, k]) = (x.rows, w.shape);
    assert!(
        y.rows == m && y.columns == n && x.columns == k && w.bytes.len() == w.format.bytes([n, k]),
        "the sizes do not fit"
    );
    assert!(
        y.has_contiguous_rows() && x.has_contiguous_rows(),
        "the columns are not contiguous"
    );
    match w.format {
        PackedFormat::Int8 if m <= FEW => few_rows::product::<Int8>(y, x, w, output),
        PackedFormat::F16 if m <= FEW => few_rows::product::<F16>(y, x, w, output),
        PackedFormat::Bf16 if m <= FEW => few_rows::product::<Bf16>(y, x, w, output),
        PackedFormat::F16 => product_of(F16::of_bytes, y, x, w, output, precision),
        PackedFormat::Bf16 => product_of(Bf16::of_bytes, y, x, w, output, precision),
        format if levels::offset(format).is_some() => integer::product(y, x, w, output),
        _ => product_unpacked(y, x, w, output),
    }
}

/// A product with elements of 16 bits, which the kernel of [`bf16`] converts as it reorders them, if the CPU has its
/// instructions. Few rows in f32 do not repay the reordering.
fn product_of<E: Element>(
    elements: impl Fn(&[u8]) -> &[E],
    mut y: MatrixMut<'_>,
    x: Matrix<'_>,
    w: PackedView<'_>,
    output: Output,
    precision: Precision,
) {
    let [n, k] = w.shape;
    let elements = Matrix::row_major(elements(w.bytes), n, k).transposed();
    let precision = bf16::usable(precision);
    let pays = precision != Precision::F32 || x.rows >= MANY;
    if !(pays && bf16::product(&mut y, x, elements, output, precision, Threads::All)) {
        product_unpacked(y, x, w, output);
    }
}

/// Unpacks W to f32 in blocks of rows and multiplies each block, for any number of rows of x.
fn product_unpacked(mut y: MatrixMut<'_>, x: Matrix<'_>, w: PackedView<'_>, output: Output) {
    let (m, [n, k]) = (x.rows, w.shape);
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
