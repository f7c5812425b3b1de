//! Strided views of f32 matrices in memory.

use std::marker::PhantomData;
use std::ops::Range;

/// A read-only matrix: element `(i, j)` is `data[i · row_stride + j · column_stride]`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T = f32> {
    data: &'a [T],
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// The number of elements from one row to the next.
    pub row_stride: usize,
    /// The number of elements from one column to the next.
    pub column_stride: usize,
}

impl<'a, T: Copy> Matrix<'a, T> {
    /// Creates a matrix over the beginning of `data`.
    ///
    /// # Panics
    /// Panics if the last element is outside `data`.
    pub fn new(
        data: &'a [T],
        [rows, columns]: [usize; 2],
        [row_stride, column_stride]: [usize; 2],
    ) -> Self {
        assert!(
            extent(rows, columns, row_stride, column_stride) <= data.len(),
            "the matrix leaves its memory"
        );
        Self {
            data,
            rows,
            columns,
            row_stride,
            column_stride,
        }
    }

    /// Creates a `[rows, columns]` matrix in row-major order.
    ///
    /// # Panics
    /// Panics if `data` is too short.
    pub fn row_major(data: &'a [T], rows: usize, columns: usize) -> Self {
        Self::new(data, [rows, columns], [columns, 1])
    }

    /// Returns the transpose, a view of the same memory.
    pub fn transposed(self) -> Self {
        Self {
            data: self.data,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// Returns true if the elements of a row are contiguous.
    #[inline(always)]
    pub fn has_contiguous_rows(self) -> bool {
        contiguous(self.columns, self.column_stride)
    }

    /// Returns a contiguous row.
    ///
    /// # Panics
    /// Panics if rows are not contiguous, or if there is no row `i`.
    #[inline(always)]
    pub fn row(self, i: usize) -> &'a [T] {
        assert!(
            i < self.rows && self.has_contiguous_rows(),
            "no such contiguous row"
        );
        let start = if self.columns == 0 {
            0
        } else {
            i * self.row_stride
        };
        &self.data[start..start + self.columns]
    }

    /// Returns a submatrix.
    ///
    /// # Panics
    /// Panics if a range is out of bounds.
    pub fn block(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        assert!(
            rows.end <= self.rows && columns.end <= self.columns,
            "the block leaves the matrix"
        );
        if rows.is_empty() || columns.is_empty() {
            return Self {
                rows: rows.len(),
                columns: columns.len(),
                ..self
            };
        }
        let start = rows.start * self.row_stride + columns.start * self.column_stride;
        Self::new(
            &self.data[start..],
            [rows.len(), columns.len()],
            [self.row_stride, self.column_stride],
        )
    }

    /// The address of element `(0, 0)`.
    pub fn as_ptr(&self) -> *const T {
        self.data.as_ptr()
    }
}

/// A writable matrix.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    start: *mut f32,
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// The number of elements from one row to the next.
    pub row_stride: usize,
    /// The number of elements from one column to the next.
    pub column_stride: usize,
    data: PhantomData<&'a mut [f32]>,
}

impl<'a> MatrixMut<'a> {
    /// Creates a matrix over the beginning of `data`.
    ///
    /// # Panics
    /// Panics if the last element is outside `data`.
    pub fn new(
        data: &'a mut [f32],
        [rows, columns]: [usize; 2],
        [row_stride, column_stride]: [usize; 2],
    ) -> Self {
        assert!(
            extent(rows, columns, row_stride, column_stride) <= data.len(),
            "the matrix leaves its memory"
        );
        Self {
            start: data.as_mut_ptr(),
            rows,
            columns,
            row_stride,
            column_stride,
            data: PhantomData,
        }
    }

    /// Creates a `[rows, columns]` matrix in row-major order.
    ///
    /// # Panics
    /// Panics if `data` is too short.
    pub fn row_major(data: &'a mut [f32], rows: usize, columns: usize) -> Self {
        Self::new(data, [rows, columns], [columns, 1])
    }

    /// Creates a matrix whose first element is at `start`.
    ///
    /// # Safety
    /// All elements are within one allocation that lives for `'a`, and nothing else reads or writes them during
    /// `'a`.
    pub unsafe fn from_raw(
        start: *mut f32,
        [rows, columns]: [usize; 2],
        [row_stride, column_stride]: [usize; 2],
    ) -> Self {
        Self {
            start,
            rows,
            columns,
            row_stride,
            column_stride,
            data: PhantomData,
        }
    }

    /// Returns true if the elements of a row are contiguous.
    pub fn has_contiguous_rows(&self) -> bool {
        contiguous(self.columns, self.column_stride)
    }

    /// Returns a contiguous row.
    ///
    /// # Panics
    /// Panics if rows are not contiguous, or if there is no row `i`.
    pub fn row_mut(&mut self, i: usize) -> &mut [f32] {
        assert!(
            i < self.rows && self.has_contiguous_rows(),
            "no such contiguous row"
        );
        // SAFETY: the row is within the matrix, which is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(i * self.row_stride), self.columns) }
    }

    /// The address of element `(0, 0)`.
    pub fn as_mut_ptr(&mut self) -> *mut f32 {
        self.start
    }
}

#[inline(always)]
fn contiguous(len: usize, stride: usize) -> bool {
    stride == 1 || len <= 1
}

/// Checks that `c` has the sizes of the product of `a` and `b`.
///
/// # Panics
/// Panics if it has others.
pub(super) fn assert_fit<T: Copy>(c: &MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_, T>) {
    assert!(
        a.columns == b.rows && c.rows == a.rows && c.columns == b.columns,
        "the sizes do not fit"
    );
}

/// The number of elements from the first to the last, inclusive.
fn extent(rows: usize, columns: usize, row_stride: usize, column_stride: usize) -> usize {
    if rows == 0 || columns == 0 {
        return 0;
    }
    (rows - 1) * row_stride + (columns - 1) * column_stride + 1
}

/// The treatment of the output's previous contents by a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Overwrites it. The output may be uninitialized.
    Overwrite,
    /// Adds the product to it.
    Accumulate,
}
