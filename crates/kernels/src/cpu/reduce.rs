//! Sums over rows, and simple elementwise passes.

use super::parallel::{Tasks, elements_per_task, rows_of, rows_per_sum, rows_per_task};
use super::vector::wide;

/// Sums over the rows: `out[j] = Σ_r x[r, j]`, `x: [rows, width]`, `out: [width]`.
///
/// Each task sums its rows in order, and the sums of the tasks are added in order.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn column_sums(x: &[f32], width: usize, out: &mut [f32]) {
    let rows = rows_of(x.len(), width);
    assert!(out.len() == width, "the sums are not as wide as the rows");
    let block = rows_per_sum(rows, width) * width;
    if x.len() <= block {
        wide(
            #[inline(always)]
            || sum_rows(x, width, out),
        );
        return;
    }
    let mut partials = vec![0.0; x.len().div_ceil(block) * width];
    partials
        .chunks_mut(width)
        .zip(x.chunks(block))
        .for_each_task(|(out, x)| {
            wide(
                #[inline(always)]
                || sum_rows(x, width, out),
            )
        });
    wide(
        #[inline(always)]
        || sum_rows(&partials, width, out),
    );
}

/// `out[j] = Σ_r x[r, j]`, row by row.
#[inline(always)]
pub(super) fn sum_rows(x: &[f32], width: usize, out: &mut [f32]) {
    // Four rows at a time, so the sums are read and written once per four rows.
    let mut blocks = x.chunks_exact(4 * width);
    out.fill(0.0);
    for block in blocks.by_ref() {
        let (a, rest) = block.split_at(width);
        let (b, rest) = rest.split_at(width);
        let (c, d) = rest.split_at(width);
        for ((((out, a), b), c), d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *out = *out + *a + *b + *c + *d;
        }
    }
    for row in blocks.remainder().chunks_exact(width) {
        for (out, x) in out.iter_mut().zip(row) {
            *out += *x;
        }
    }
}

/// `y += factor · x`, within a task.
#[inline(always)]
pub(super) fn add_scaled(y: &mut [f32], x: &[f32], factor: f32) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += factor * x;
    }
}

/// `x *= factor`.
pub fn scale_in_place(x: &mut [f32], factor: f32) {
    let step = elements_per_task(x.len());
    x.chunks_mut(step).for_each_task(|x| {
        wide(
            #[inline(always)]
            || {
                for x in x.iter_mut() {
                    *x *= factor;
                }
            },
        );
    });
}

/// `x += row`, on the calling thread only.
pub(super) fn add_row(x: &mut [f32], row: &[f32]) {
    wide(
        #[inline(always)]
        || {
            for (x, y) in x.iter_mut().zip(row) {
                *x += *y;
            }
        },
    );
}

/// `x[r] += row` for every row `r`, `x: [rows, width]`, `row: [width]`.
///
/// # Panics
/// Panics if `x` does not consist of whole rows of the length of `row`.
pub fn add_row_in_place(x: &mut [f32], row: &[f32]) {
    let rows = rows_of(x.len(), row.len());
    let block = rows_per_task(rows, row.len()) * row.len();
    x.chunks_mut(block).for_each_task(|x| {
        wide(
            #[inline(always)]
            || {
                for x in x.chunks_exact_mut(row.len()) {
                    for (x, y) in x.iter_mut().zip(row) {
                        *x += *y;
                    }
                }
            },
        );
    });
}

/// `out = x`.
///
/// # Panics
/// Panics if the sizes differ.
pub fn copy(x: &[f32], out: &mut [f32]) {
    assert!(x.len() == out.len(), "the sizes differ");
    let step = elements_per_task(out.len());
    out.chunks_mut(step)
        .zip(x.chunks(step))
        .for_each_task(|(out, x)| out.copy_from_slice(x));
}

/// `out[r] = row` for every row `r`, `out: [rows, width]`, `row: [width]`.
///
/// # Panics
/// Panics if `out` does not consist of whole rows of the length of `row`.
pub fn fill_rows(row: &[f32], out: &mut [f32]) {
    let rows = rows_of(out.len(), row.len());
    let block = rows_per_task(rows, row.len()) * row.len();
    out.chunks_mut(block).for_each_task(|out| {
        for out in out.chunks_exact_mut(row.len()) {
            out.copy_from_slice(row);
        }
    });
}

/// Partial sums of an inner product that are kept side by side, so that they are one vector.
const LANES: usize = 16;

/// `Σ a b`.
#[inline(always)]
pub(super) fn inner_product(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}
