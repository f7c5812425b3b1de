//! The int8 format, which takes a quarter of the memory of f32, and a quarter of the time to read.
//!
//! Quantization is symmetric with one scale per output: `w[j, l] ≈ scale[j] q[j, l]` with `|q| ≤ 127`. The error
//! is at most half a scale. The other operand and the sums stay in f32. A row is its scale, an f32 in
//! little-endian order, and the values `q[j, ·]`.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::matrix::{Matrix, MatrixMut};
use super::packed::{INT8_SCALE, PackedView, Sums, split_int8};
use super::parallel;
use super::product::Output;
use super::vector::{dot, wide};

/// The approximate minimum number of elements of W per task.
const TASK: usize = 1 << 17;

/// Quantizes a row: `q[l] = round(w[l] / scale)`, `scale = max |w| / 127`. A row with non-finite weights gets a
/// non-finite scale.
pub(super) fn pack_row(w: &[f32], row: &mut [u8]) {
    // NaN is sticky.
    let larger = |largest: f32, x: f32| match x > largest || x.is_nan() {
        true => x,
        false => largest,
    };
    let largest = w.iter().fold(0.0, |largest, x| larger(largest, x.abs()));
    let (scale, q) = row.split_at_mut(INT8_SCALE);
    scale.copy_from_slice(&(largest / 127.0).to_le_bytes());
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    for (q, w) in q.iter_mut().zip(w) {
        *q = ((w * inverse).round().clamp(-127.0, 127.0) as i8).cast_unsigned();
    }
}

/// The f32 of a value.
#[inline(always)]
fn value(q: u8) -> f32 {
    f32::from(q.cast_signed())
}

/// `w[l] = q[l] · scale`.
#[inline(always)]
pub(super) fn unpack_row(row: &[u8], w: &mut [f32]) {
    let (scale, q) = split_int8(row);
    for (w, q) in w.iter_mut().zip(q) {
        *w = value(*q) * scale;
    }
}

/// `y = x Wᵀ` or `y += x Wᵀ` in a single pass over W, for a few rows of x, on all threads. The caller,
/// [`super::packed::product`], checks the sizes.
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

/// Some rows of W with all rows of x. A type and not a closure: the compiler does not inline the body of a large closure
/// into the function for the widest vectors, but compiles it for the baseline CPU.
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
        // A row of W, converted once for several rows of x; it stays in the L1 cache.
        let several = self.x.len() > 1;
        let mut dense = vec![0.0f32; if several { self.w.shape[1] } else { 0 }];
        for j in self.outputs {
            let (scale, q) = split_int8(self.w.row(j));
            for (w, q) in dense.iter_mut().zip(q) {
                *w = value(*q);
            }
            for (i, x) in self.x.iter().enumerate() {
                let sum = match several {
                    true => dot(&dense, x, |w| w),
                    false => dot(q, x, value),
                };
                // SAFETY: the element is within y, and only this task writes it.
                unsafe { self.sums.put(i, j, sum * scale) };
            }
        }
    }
}
