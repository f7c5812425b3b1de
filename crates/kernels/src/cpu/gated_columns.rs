//! Gated groups of columns added to the last columns of a matrix, such as embeddings added to the values of an attention.

use super::parallel::{Tasks, rows_of, rows_per_task};
use super::reduce::inner_product;
use super::vector::wide;

/// The widths of the matrices.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Columns of the matrix.
    pub width: usize,
    /// Its last columns, to which others are added.
    pub columns: usize,
    /// Groups of the added columns, and gates of a row.
    pub groups: usize,
}

impl Sizes {
    /// The number of rows.
    ///
    /// # Panics
    /// Panics if the sizes do not fit.
    fn rows(self, matrix: &[f32], gates: &[f32], added: &[f32]) -> usize {
        let rows = rows_of(matrix.len(), self.width);
        assert!(
            self.columns <= self.width
                && self.columns.is_multiple_of(self.groups)
                && gates.len() == rows * self.groups
                && added.len() == rows * self.columns,
            "the sizes do not fit"
        );
        rows
    }
}

/// `out[r, width - columns + j] += gates[r, group of j] · added[r, j]`.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn add_gated_columns(sizes: Sizes, out: &mut [f32], gates: &[f32], added: &[f32]) {
    let Sizes {
        width,
        columns,
        groups,
    } = sizes;
    let block = rows_per_task(sizes.rows(out, gates, added), columns);
    out.chunks_mut(block * width)
        .zip(gates.chunks(block * groups))
        .zip(added.chunks(block * columns))
        .for_each_task(|((out, gates), added)| {
            wide(
                #[inline(always)]
                || {
                    let rows = gates.chunks_exact(groups).zip(added.chunks_exact(columns));
                    for (out, (gates, added)) in out.chunks_exact_mut(width).zip(rows) {
                        let out = out[width - columns..].chunks_exact_mut(columns / groups);
                        let added = added.chunks_exact(columns / groups);
                        for ((out, added), gate) in out.zip(added).zip(gates) {
                            for (out, added) in out.iter_mut().zip(added) {
                                *out += gate * added;
                            }
                        }
                    }
                },
            );
        });
}

/// The gradients of the gates and of the added columns, from `[gates, added, gradient of the output]`.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn add_gated_columns_backward(
    sizes: Sizes,
    [gates, added, grad]: [&[f32]; 3],
    [gates_grad, added_grad]: [&mut [f32]; 2],
) {
    let Sizes {
        width,
        columns,
        groups,
    } = sizes;
    let block = rows_per_task(sizes.rows(grad, gates, added), columns);
    let outputs = gates_grad
        .chunks_mut(block * groups)
        .zip(added_grad.chunks_mut(block * columns));
    let inputs = gates
        .chunks(block * groups)
        .zip(added.chunks(block * columns))
        .zip(grad.chunks(block * width));
    outputs
        .zip(inputs)
        .for_each_task(|((gates_grad, added_grad), ((gates, added), grad))| {
            wide(
                #[inline(always)]
                || {
                    let rows = gates_grad.chunks_exact_mut(groups);
                    let rows = rows.zip(added_grad.chunks_exact_mut(columns));
                    let given = gates.chunks_exact(groups).zip(added.chunks_exact(columns));
                    let given = given.zip(grad.chunks_exact(width));
                    for ((gates_grad, added_grad), ((gates, added), grad)) in rows.zip(given) {
                        let grad = &grad[width - columns..];
                        for group in 0..groups {
                            let own = group * columns / groups..(group + 1) * columns / groups;
                            let (grad, added) = (&grad[own.clone()], &added[own.clone()]);
                            for (out, grad) in added_grad[own].iter_mut().zip(grad) {
                                *out = gates[group] * grad;
                            }
                            gates_grad[group] = inner_product(grad, added);
                        }
                    }
                },
            );
        });
}
