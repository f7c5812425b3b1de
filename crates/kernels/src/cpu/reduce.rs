//! Sums over rows, plain additions, and how passes over memory are cut for all threads.

use rayon::prelude::*;

use super::vector::wide;

/// Elements below which a pass stays on the calling thread: handing work to others costs some microseconds.
const ALONE: usize = 32 * 1024;

/// Elements of one task at least: enough to hide its start, few enough to stay in a core's own cache.
const TASK: usize = 16 * 1024;

/// Tasks of one pass at most: each holds its own partial sums.
const TASKS: usize = 128;

/// How many of `rows` rows of `width` elements one task takes, by the shape alone: at least one.
pub(super) fn rows_per_task(rows: usize, width: usize) -> usize {
    if rows.saturating_mul(width) < ALONE {
        return rows.max(1);
    }
    (TASK / width.max(1)).max(rows.div_ceil(TASKS)).max(1)
}

/// [`rows_per_task`] where each task holds sums as wide as a row: fewer tasks, since their sums are added up by one.
pub(super) fn rows_per_sum(rows: usize, width: usize) -> usize {
    rows_per_task(rows, width).max(rows.div_ceil(TASKS / 4))
}

/// How many of `len` elements one task takes: all of them, or a multiple of 4096.
pub(super) fn elements_per_task(len: usize) -> usize {
    if len < ALONE {
        return len.max(1);
    }
    TASK.max(len.div_ceil(TASKS).next_multiple_of(4096))
}

/// How many rows of `width` elements there are.
///
/// # Panics
/// Where they are not whole rows.
#[track_caller]
pub(super) fn rows_of(len: usize, width: usize) -> usize {
    assert!(
        width > 0 && len.is_multiple_of(width),
        "the elements are not whole rows"
    );
    len / width
}

/// The sums over the rows: `out[j] = Σ_r x[r, j]`, `x: [rows, width]`, `out: [width]`.
///
/// Each task sums its rows in order, and the tasks' sums are added in order.
///
/// # Panics
/// Where the sizes do not fit.
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
        .par_chunks_mut(width)
        .zip(x.par_chunks(block))
        .with_max_len(1)
        .for_each(|(out, x)| {
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

/// `out[j] = Σ_r x[r, j]`, row after row.
#[inline(always)]
pub(super) fn sum_rows(x: &[f32], width: usize, out: &mut [f32]) {
    // Four rows at once, so that the sums are read and written once for four rows of memory.
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

/// `out = x + y`.
///
/// # Panics
/// Where the sizes differ.
pub fn add(x: &[f32], y: &[f32], out: &mut [f32]) {
    assert!(
        x.len() == out.len() && y.len() == out.len(),
        "the sizes differ"
    );
    let step = elements_per_task(out.len());
    out.par_chunks_mut(step)
        .zip(x.par_chunks(step))
        .zip(y.par_chunks(step))
        .with_max_len(1)
        .for_each(|((out, x), y)| {
            wide(
                #[inline(always)]
                || {
                    for ((out, x), y) in out.iter_mut().zip(x).zip(y) {
                        *out = *x + *y;
                    }
                },
            );
        });
}

/// `x += y`.
///
/// # Panics
/// Where the sizes differ.
pub fn add_in_place(x: &mut [f32], y: &[f32]) {
    assert!(x.len() == y.len(), "the sizes differ");
    let step = elements_per_task(x.len());
    x.par_chunks_mut(step)
        .zip(y.par_chunks(step))
        .with_max_len(1)
        .for_each(|(x, y)| {
            wide(
                #[inline(always)]
                || {
                    for (x, y) in x.iter_mut().zip(y) {
                        *x += *y;
                    }
                },
            );
        });
}

/// `x *= factor`.
pub fn scale_in_place(x: &mut [f32], factor: f32) {
    let step = elements_per_task(x.len());
    x.par_chunks_mut(step).with_max_len(1).for_each(|x| {
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

/// `x[r] += row` for every row `r`, `x: [rows, width]`, `row: [width]`.
///
/// # Panics
/// Where `x` is not whole rows as wide as `row`.
pub fn add_row_in_place(x: &mut [f32], row: &[f32]) {
    let rows = rows_of(x.len(), row.len());
    let block = rows_per_task(rows, row.len()) * row.len();
    x.par_chunks_mut(block).with_max_len(1).for_each(|x| {
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
/// Where the sizes differ.
pub fn copy(x: &[f32], out: &mut [f32]) {
    assert!(x.len() == out.len(), "the sizes differ");
    let step = elements_per_task(out.len());
    out.par_chunks_mut(step)
        .zip(x.par_chunks(step))
        .with_max_len(1)
        .for_each(|(out, x)| out.copy_from_slice(x));
}

/// `out[r] = row` for every row `r`, `out: [rows, width]`, `row: [width]`.
///
/// # Panics
/// Where `out` is not whole rows as wide as `row`.
pub fn fill_rows(row: &[f32], out: &mut [f32]) {
    let rows = rows_of(out.len(), row.len());
    let block = rows_per_task(rows, row.len()) * row.len();
    out.par_chunks_mut(block).with_max_len(1).for_each(|out| {
        for out in out.chunks_exact_mut(row.len()) {
            out.copy_from_slice(row);
        }
    });
}

/// `Σ f(x, y, z)` over 128 partial sums.
///
/// As many as the compiler does not unroll: it makes SIMD of a loop over them, in the nearest cache, and of a few sums in
/// registers only as the code around them happens to be.
#[inline(always)]
pub(super) fn sum_by(x: &[f32], y: &[f32], z: &[f32], f: impl Fn(f32, f32, f32) -> f32) -> f32 {
    const SUMS: usize = 128;
    let mut sums = [0.0f32; SUMS];
    let chunks = x.chunks(SUMS).zip(y.chunks(SUMS)).zip(z.chunks(SUMS));
    for ((x, y), z) in chunks {
        for (((sum, x), y), z) in sums.iter_mut().zip(x).zip(y).zip(z) {
            *sum += f(*x, *y, *z);
        }
    }
    let mut lanes = [0.0f32; 16];
    for sums in sums.as_chunks::<16>().0 {
        for (lane, sum) in lanes.iter_mut().zip(sums) {
            *lane += *sum;
        }
    }
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = lanes;
    (((a + i) + (e + m)) + ((c + k) + (g + o))) + (((b + j) + (f + n)) + ((d + l) + (h + p)))
}
