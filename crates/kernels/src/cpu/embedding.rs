//! Table lookups by row index, and their gradient.

use std::ops::Range;

use super::parallel::{self, Shared, Tasks, rows_of, rows_per_task};
use super::vector::wide;

/// `out[i] = table[ids[i]]`, `table: [rows, width]`, `out: [tokens, width]`.
///
/// # Panics
/// Panics if the sizes do not fit, or an id is not a row of the table.
pub fn gather(table: &[f32], ids: &[i32], width: usize, out: &mut [f32]) {
    assert_rows(ids, rows_of(table.len(), width));
    assert!(
        rows_of(out.len(), width) == ids.len(),
        "the output has not a row for each id"
    );
    let step = rows_per_task(ids.len(), width);
    out.chunks_mut(step * width)
        .zip(ids.chunks(step))
        .for_each_task(|(out, ids)| {
            for (out, id) in out.chunks_exact_mut(width).zip(ids) {
                let start = *id as usize * width;
                out.copy_from_slice(&table[start..start + width]);
            }
        });
}

/// `table_grad[ids[i]] += grad[i]`, `table_grad: [rows, width]`, `grad: [tokens, width]`. Rows without an id are
/// not accessed.
///
/// The gradients of each id are first summed in token order, and the sum is then added to the table's row. The
/// result is bit-identical to adding a whole table of such sums. Each task processes a range of columns for all
/// tokens.
///
/// # Panics
/// Panics if the sizes do not fit, or an id is not a row of the table.
pub fn scatter_add(table_grad: &mut [f32], ids: &[i32], grad: &[f32], width: usize) {
    assert_rows(ids, rows_of(table_grad.len(), width));
    assert!(
        rows_of(grad.len(), width) == ids.len(),
        "the gradient has not a row for each id"
    );
    let mut tokens: Vec<usize> = (0..ids.len()).collect();
    tokens.sort_by_key(|&token| ids[token]); // stable: of one id in their order
    let of_one_id: Vec<&[usize]> = tokens.chunk_by(|&a, &b| ids[a] == ids[b]).collect();
    let table = Shared::new(table_grad);
    let add = |columns: Range<usize>| {
        let mut sum = vec![0.0f32; columns.len()];
        let row = |token: usize| &grad[token * width..][columns.clone()];
        wide(
            #[inline(always)]
            || {
                for tokens in &of_one_id {
                    sum.copy_from_slice(row(tokens[0]));
                    for &token in &tokens[1..] {
                        for (sum, grad) in sum.iter_mut().zip(row(token)) {
                            *sum += *grad;
                        }
                    }
                    let start = ids[tokens[0]] as usize * width;
                    // SAFETY: each task has its own columns, and holds one row of them at a time.
                    let row = unsafe { table.part(start + columns.start..start + columns.end) };
                    for (row, sum) in row.iter_mut().zip(&sum) {
                        *row += *sum;
                    }
                }
            },
        );
    };
    let step = if rows_per_task(ids.len(), width) >= ids.len() {
        width
    } else {
        COLUMNS
    };
    let ranges: Vec<_> = parallel::ranges(width, step).collect();
    parallel::for_each(ranges.len(), |task| add(ranges[task].clone()));
}

/// The number of columns per task: whole cache lines, and enough of them for hardware prefetching.
const COLUMNS: usize = 64;

#[track_caller]
fn assert_rows(ids: &[i32], rows: usize) {
    let valid = wide(
        #[inline(always)]
        || {
            ids.iter()
                .fold(true, |valid, id| valid & ((*id as u32 as usize) < rows))
        },
    );
    assert!(valid, "an id is no row of the table");
}
