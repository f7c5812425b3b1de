//! The int8 format: a matrix in a quarter of the memory, and so read in a quarter of the time.
//!
//! Symmetric, one scale for each output: `w[j, l] ≈ scale[j] q[j, l]` with `|q| ≤ 127`, off by half a scale at most. The other
//! factor and the sums stay f32.

use super::matrix::{Matrix, MatrixMut};
use super::packed::PackedView;
use super::parallel::{self, Start};
use super::product::Output;
use super::vector::{dot, wide};

/// Elements of W of a task, at least about.
const TASK: usize = 1 << 17;
/// About how many tasks share W.
const TASKS: usize = 32;

/// `q[l] = round(w[l] / scale)`, `scale = max |w| / 127`. The scale of a row that is not finite is not finite either.
pub(super) fn pack_row(w: &[f32], q: &mut [i8], scale: &mut [f32]) {
    // Once it is NaN it stays so.
    let larger = |largest: f32, x: f32| match x > largest || x.is_nan() {
        true => x,
        false => largest,
    };
    let largest = w.iter().fold(0.0, |largest, x| larger(largest, x.abs()));
    scale[0] = largest / 127.0;
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    for (q, w) in q.iter_mut().zip(w) {
        *q = (w * inverse).round().clamp(-127.0, 127.0) as i8;
    }
}

/// `w[l] = q[l] · scale`.
#[inline(always)]
pub(super) fn unpack_row(q: &[i8], scale: &[f32], w: &mut [f32]) {
    let scale = scale[0];
    for (w, q) in w.iter_mut().zip(q) {
        *w = f32::from(*q) * scale;
    }
}

/// `y = x Wᵀ` or `y += x Wᵀ` in one pass over W, for a few rows of x, on all threads. Sizes are those of
/// [`super::packed::product`], which checks them.
pub(super) fn matvec(mut y: MatrixMut<'_>, x: Matrix<'_>, w: PackedView<'_>, output: Output) {
    let [m, k, n] = [x.rows, w.columns, w.rows()];
    let (start, stride) = (Start(y.as_mut_ptr()), y.row_stride);
    let rows: Vec<&[f32]> = (0..m).map(|i| x.row(i)).collect();
    let step = (n * k).div_ceil(TASKS).max(TASK).div_ceil(k.max(1)).max(1);
    parallel::for_each(n.div_ceil(step), |task| {
        // A row of W for several rows of x, which stays in the first cache.
        let mut dense = vec![0.0f32; if m > 1 { k } else { 0 }];
        wide(
            #[inline(always)]
            || {
                for j in task * step..n.min((task + 1) * step) {
                    let q = &w.bytes[j * k..(j + 1) * k];
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
