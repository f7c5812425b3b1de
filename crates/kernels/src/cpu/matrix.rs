//! A matrix of f32 in memory, each of its dimensions with a stride.

use std::marker::PhantomData;
use std::ops::Range;

/// A matrix to read: element `(i, j)` is `data[i · row_stride + j · column_stride]`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    data: &'a [f32],
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// Elements from a row to the next.
    pub row_stride: usize,
    /// Elements from a column to the next.
    pub column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// A matrix over the beginning of `data`.
    ///
    /// # Panics
    /// Panics if its last element lies outside of `data`.
    pub fn new(
        data: &'a [f32],
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

    /// `[rows, columns]`, row after row.
    ///
    /// # Panics
    /// Panics if `data` is shorter.
    pub fn row_major(data: &'a [f32], rows: usize, columns: usize) -> Self {
        Self::new(data, [rows, columns], [columns, 1])
    }

    /// The same memory with rows and columns exchanged.
    pub fn transposed(self) -> Self {
        Self {
            data: self.data,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// Returns true if a row's elements lie one after the other.
    #[inline(always)]
    pub fn has_contiguous_rows(self) -> bool {
        contiguous(self.columns, self.column_stride)
    }

    /// A row, where rows are contiguous.
    ///
    /// # Panics
    /// Panics if they are not, or there is no such row.
    #[inline(always)]
    pub fn row(self, i: usize) -> &'a [f32] {
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

    /// A part of it.
    ///
    /// # Panics
    /// Panics if a range ends outside.
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
    pub fn as_ptr(&self) -> *const f32 {
        self.data.as_ptr()
    }
}

/// A matrix to write.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    start: *mut f32,
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// Elements from a row to the next.
    pub row_stride: usize,
    /// Elements from a column to the next.
    pub column_stride: usize,
    data: PhantomData<&'a mut [f32]>,
}

impl<'a> MatrixMut<'a> {
    /// A matrix over the beginning of `data`.
    ///
    /// # Panics
    /// Panics if its last element lies outside of `data`.
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

    /// `[rows, columns]`, row after row.
    ///
    /// # Panics
    /// Panics if `data` is shorter.
    pub fn row_major(data: &'a mut [f32], rows: usize, columns: usize) -> Self {
        Self::new(data, [rows, columns], [columns, 1])
    }

    /// A matrix whose first element is at `start`.
    ///
    /// # Safety
    /// All of its elements lie in one allocation that lives for `'a`, and while it lives nothing else reads or writes
    /// them.
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

    /// Returns true if a row's elements lie one after the other.
    pub fn has_contiguous_rows(&self) -> bool {
        contiguous(self.columns, self.column_stride)
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

/// Elements from the first to just after the last.
fn extent(rows: usize, columns: usize, row_stride: usize, column_stride: usize) -> usize {
    if rows == 0 || columns == 0 {
        return 0;
    }
    (rows - 1) * row_stride + (columns - 1) * column_stride + 1
}

/// The treatment of what the output's memory holds before a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// It is overwritten, and need not be initialised.
    Overwrite,
    /// The product is added to it.
    Accumulate,
}
