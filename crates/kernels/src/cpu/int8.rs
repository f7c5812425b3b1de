//! Weights of 8 bits: a matrix in a quarter of the memory, and so read in a quarter of the time.
//!
//! Symmetric, one scale for each output: `w[j, l] ≈ scale[j] q[j, l]` with `|q| ≤ 127`, off by half a scale at most. What is
//! multiplied with it, and sums, stay f32.

use super::inner_products;
use super::matrix::{Matrix, MatrixMut};
use super::parallel::{self, Shared, Start};
use super::product::{Output, product_here};
use super::vector::{dot, wide};
use crate::Precision;

/// Elements of W of a task, at least about.
const TASK: usize = 1 << 17;
/// About how many tasks share W.
const TASKS: usize = 32;
/// Rows of x up to which a row of W is read at a time.
const FEW: usize = 2;
/// Rows of W turned into f32 at a time, where there are more rows of x.
const BLOCK: usize = 96;

/// A matrix `[rows, columns]`, of outputs by inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Int8Matrix {
    /// Row after row.
    pub values: Vec<i8>,
    /// One for each row.
    pub scales: Vec<f32>,
    /// How many inputs.
    pub columns: usize,
}

impl Int8Matrix {
    /// It, to be read.
    pub fn view(&self) -> Int8View<'_> {
        Int8View {
            values: &self.values,
            scales: &self.scales,
            columns: self.columns,
        }
    }
}

/// An [`Int8Matrix`] in memory that is somebody else's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Int8View<'a> {
    /// Row after row.
    pub values: &'a [i8],
    /// One for each row.
    pub scales: &'a [f32],
    /// How many inputs.
    pub columns: usize,
}

/// `q[j, l] = round(w[j, l] / scale[j])`, `scale[j] = max |w[j, ·]| / 127`, for weights `[rows, columns]`. The scale of a row
/// that is not finite is not either, and nothing finite comes of it.
pub fn quantize(w: Matrix<'_>) -> Int8Matrix {
    let mut values = vec![0i8; w.rows * w.columns];
    let mut scales = vec![0.0f32; w.rows];
    let (all, scale) = (Shared::new(&mut values), Shared::new(&mut scales));
    parallel::for_each(w.rows, |j| {
        // SAFETY: an element of the matrix.
        let at = |l: usize| unsafe { *w.as_ptr().add(j * w.row_stride + l * w.column_stride) };
        // SAFETY: each task writes its own row.
        let (q, scale) = unsafe {
            let row = all.part(j * w.columns..(j + 1) * w.columns);
            (row, scale.part(j..j + 1))
        };
        // Once it is NaN it stays so.
        let larger = |largest: f32, x: f32| match x > largest || x.is_nan() {
            true => x,
            false => largest,
        };
        let largest = (0..w.columns).fold(0.0, |largest, l| larger(largest, at(l).abs()));
        scale[0] = largest / 127.0;
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        for (l, q) in q.iter_mut().enumerate() {
            *q = (at(l) * inverse).round().clamp(-127.0, 127.0) as i8;
        }
    });
    Int8Matrix {
        values,
        scales,
        columns: w.columns,
    }
}

/// `y = x Wᵀ` or `y += x Wᵀ`, `[m, k] · [n, k]ᵀ`, on all threads.
///
/// One or two rows of x take one pass over W. More take W block by block as f32.
///
/// # Panics
/// Where the sizes do not fit, or y's or x's columns are not contiguous.
pub fn matvec(mut y: MatrixMut<'_>, x: Matrix<'_>, w: Int8View<'_>, output: Output) {
    let [m, k, n] = [x.rows, w.columns, w.scales.len()];
    assert!(
        y.rows == m && y.columns == n && x.columns == k && w.values.len() == n * k,
        "the sizes do not fit"
    );
    assert!(
        y.has_contiguous_rows() && x.has_contiguous_rows(),
        "the columns are not contiguous"
    );
    let (start, stride) = (Start(y.as_mut_ptr()), y.row_stride);
    let rows: Vec<&[f32]> = (0..m).map(|i| x.row(i)).collect();
    if m > FEW {
        parallel::for_each(n.div_ceil(BLOCK), |task| {
            let block = task * BLOCK..n.min((task + 1) * BLOCK);
            let mut dense = vec![0.0f32; block.len() * k];
            for (dense, j) in dense.chunks_mut(k.max(1)).zip(block.clone()) {
                let (q, scale) = (&w.values[j * k..(j + 1) * k], w.scales[j]);
                wide(|| {
                    for (w, q) in dense.iter_mut().zip(q) {
                        *w = f32::from(*q) * scale;
                    }
                });
            }
            // SAFETY: columns of y, each task's own.
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
        return;
    }
    let step = (n * k).div_ceil(TASKS).max(TASK).div_ceil(k.max(1)).max(1);
    parallel::for_each(n.div_ceil(step), |task| {
        // A row of W for several rows of x, which stays in the first cache.
        let mut dense = vec![0.0f32; if m > 1 { k } else { 0 }];
        wide(
            #[inline(always)]
            || {
                for j in task * step..n.min((task + 1) * step) {
                    let q = &w.values[j * k..(j + 1) * k];
                    for (w, q) in dense.iter_mut().zip(q) {
                        *w = f32::from(*q);
                    }
                    for (i, x) in rows.iter().enumerate() {
                        let sum = if m > 1 {
                            dot(&dense, x, |w| w)
                        } else {
                            dot(q, x, f32::from)
                        };
                        let sum = sum * w.scales[j];
                        // SAFETY: an element of y, this task's own; it is read only where it holds a number.
                        unsafe {
                            let y = start.at(i * stride + j);
                            let old = if output == Output::Accumulate {
                                *y
                            } else {
                                0.0
                            };
                            *y = old + sum;
                        }
                    }
                }
            },
        );
    });
}
