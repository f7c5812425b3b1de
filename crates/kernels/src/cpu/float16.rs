//! Products of a few rows of x with weights of 16 bits.
//!
//! Weights are converted to f32, which is exact, and multiplied in f32, in a single pass over W.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::blocks::float::{bf16_to_f32, f16_to_f32};
use super::matrix::{Matrix, MatrixMut};
use super::packed::{PackedView, Sums};
use super::parallel;
use super::product::Output;
use super::vector::{dot, wide};
use crate::PackedFormat;

/// The maximum number of rows of x.
pub(super) const FEW: usize = 2;
/// The approximate minimum number of elements of W per task.
const TASK: usize = 1 << 16;

/// `y = x Wᵀ` or `y += x Wᵀ` for f16 or bf16, on all threads. The caller, [`super::packed::product`], checks the sizes.
pub(super) fn matvec(mut y: MatrixMut<'_>, x: Matrix<'_>, w: PackedView<'_>, output: Output) {
    let (m, [n, k]) = (x.rows, w.shape);
    let sums = Sums::new(&mut y, output);
    let rows: Vec<&[f32]> = (0..m).map(|i| x.row(i)).collect();
    let step = parallel::weight_rows_per_task([n, k], TASK);
    parallel::for_each(n.div_ceil(step), |task| {
        wide(Task {
            x: &rows,
            w,
            outputs: task * step..n.min((task + 1) * step),
            sums,
        });
    });
}

/// Some rows of W with all rows of x.
struct Task<'a> {
    x: &'a [&'a [f32]],
    w: PackedView<'a>,
    /// The rows of W, each of which is a column of y.
    outputs: Range<usize>,
    sums: Sums,
}

impl WithSimd for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for j in self.outputs {
            let (w, _) = self.w.row(j).as_chunks::<2>();
            for (i, x) in self.x.iter().enumerate() {
                let sum = match self.w.format {
                    PackedFormat::Bf16 => dot(w, x, |w| bf16_to_f32(u16::from_le_bytes(w))),
                    _ => dot(w, x, |w| f16_to_f32(u16::from_le_bytes(w))),
                };
                // SAFETY: the element is within y, and only this task writes it.
                unsafe { self.sums.put(i, j, sum) };
            }
        }
    }
}
