//! Products of a few rows of x with weights whose values are converted one by one, in a single pass over W.

use std::marker::PhantomData;
use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::matrix::{Matrix, MatrixMut};
use super::matvec::AHEAD;
use super::packed::{PackedView, Sums};
use super::parallel;
use super::product::Output;
use super::vector::{dot, wide};

/// The maximum number of rows of x.
pub(super) const FEW: usize = 2;
/// The approximate minimum number of bytes of W per task.
const TASK: usize = 1 << 15;

/// A format whose weights are `w = scale · value`, with one scale per row.
pub(super) trait Values {
    /// A stored value.
    type Stored: Copy;

    /// The scale and the values of a row.
    fn split(row: &[u8]) -> (f32, &[Self::Stored]);

    /// The f32 of a value. Exact.
    fn value(stored: Self::Stored) -> f32;
}

/// `y = x Wᵀ` or `y += x Wᵀ`, on all threads. The caller, [`super::packed::product`], checks the sizes.
pub(super) fn product<V: Values>(
    mut y: MatrixMut<'_>,
    x: Matrix<'_>,
    w: PackedView<'_>,
    output: Output,
) {
    let (m, [n, k]) = (x.rows, w.shape);
    let sums = Sums::new(&mut y, output);
    let rows: Vec<&[f32]> = (0..m).map(|i| x.row(i)).collect();
    let step = parallel::weight_rows_per_task([n, k], TASK / size_of::<V::Stored>());
    parallel::for_each(n.div_ceil(step), |task| {
        wide(Task {
            x: &rows,
            w,
            outputs: task * step..n.min((task + 1) * step),
            sums,
            values: PhantomData::<V>,
        });
    });
}

/// Some rows of W with all rows of x. A type and not a closure: the compiler does not inline the body of a large closure
/// into the function for the widest vectors, but compiles it for the baseline CPU.
struct Task<'a, V> {
    x: &'a [&'a [f32]],
    w: PackedView<'a>,
    /// The rows of W, each of which is a column of y.
    outputs: Range<usize>,
    sums: Sums,
    values: PhantomData<V>,
}

impl<V: Values> WithSimd for Task<'_, V> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        // A row of W, converted once for several rows of x; it stays in the L1 cache.
        let several = self.x.len() > 1;
        let mut dense = vec![0.0f32; if several { self.w.shape[1] } else { 0 }];
        for j in self.outputs {
            let (scale, values) = V::split(self.w.row(j));
            for (w, stored) in dense.iter_mut().zip(values) {
                *w = V::value(*stored);
            }
            for (i, x) in self.x.iter().enumerate() {
                let sum = match several {
                    true => dot::<0, f32>(&dense, x, |w| w),
                    false => dot::<AHEAD, _>(values, x, V::value),
                };
                // SAFETY: the element is within y, and only this task writes it.
                unsafe { self.sums.put(i, j, sum * scale) };
            }
        }
    }
}
