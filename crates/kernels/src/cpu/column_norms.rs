//! Normalization of groups of columns, such as the heads of queries and keys, and its gradients.

use super::norm::{Row, add_to, normalize_row};
use super::parallel::{Tasks, rows_of, rows_per_sum, rows_per_task};
use super::reduce::sum_rows;
use super::vector::wide;
use crate::ColumnNorms;

/// The gain and the bias of each set of groups, `[width of a group]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Affine<'a> {
    /// The gains.
    pub gains: Option<[&'a [f32]; 2]>,
    /// The biases.
    pub biases: Option<[&'a [f32]; 2]>,
}

/// Normalizes the groups of columns of `x`, `[rows, width]`, and copies the other columns.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn normalize_columns(
    norms: ColumnNorms,
    x: &[f32],
    affine: Affine<'_>,
    width: usize,
    out: &mut [f32],
) {
    let rows = rows_of(x.len(), width);
    assert_eq!(out.len(), x.len(), "the sizes do not fit");
    let block = rows_per_task(rows, width) * width;
    out.chunks_mut(block)
        .zip(x.chunks(block))
        .for_each_task(|(out, x)| {
            wide(
                #[inline(always)]
                || {
                    for (out, x) in out.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
                        let mut first = 0;
                        for (set, groups) in norms.sets.iter().enumerate() {
                            let gain = affine.gains.map(|gains| gains[set]);
                            let bias = affine.biases.map(|biases| biases[set]);
                            for _ in 0..groups.count {
                                let columns = first..first + groups.width;
                                let out = &mut out[columns.clone()];
                                normalize_row(norms.kind, &x[columns], gain, bias, out);
                                first += groups.width;
                            }
                        }
                        out[first..].copy_from_slice(&x[first..]);
                    }
                },
            );
        });
}

/// The gradients of [`normalize_columns`]. Each task sums those of the gains and biases over its rows in order, then the sums
/// of the tasks are added in order: `affine_grad` receives the gains' and the biases' of the first set, then those of the
/// second, `[2 · (width + width)]`.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn normalize_columns_backward(
    norms: ColumnNorms,
    x: &[f32],
    gains: Option<[&[f32]; 2]>,
    grad: &[f32],
    width: usize,
    x_grad: &mut [f32],
    affine_grad: &mut [f32],
) {
    let rows = rows_of(x.len(), width);
    let sums = 2 * norms.sets.iter().map(|groups| groups.width).sum::<usize>();
    assert!(
        grad.len() == x.len() && x_grad.len() == x.len() && affine_grad.len() == sums,
        "the sizes do not fit"
    );
    let block = rows_per_sum(rows, width) * width;
    let mut partials = vec![0.0f32; x.len().div_ceil(block) * sums];
    partials
        .chunks_mut(sums)
        .zip(x_grad.chunks_mut(block))
        .zip(x.chunks(block).zip(grad.chunks(block)))
        .for_each_task(|((partial, x_grad), (x, grad))| {
            wide(
                #[inline(always)]
                || {
                    let rows = x.chunks_exact(width).zip(grad.chunks_exact(width));
                    for ((x, grad), x_grad) in rows.zip(x_grad.chunks_exact_mut(width)) {
                        row_backward(norms, x, gains, grad, x_grad, partial);
                    }
                },
            );
        });
    wide(
        #[inline(always)]
        || sum_rows(&partials, sums, affine_grad),
    );
}

#[inline(always)]
fn row_backward(
    norms: ColumnNorms,
    x: &[f32],
    gains: Option<[&[f32]; 2]>,
    grad: &[f32],
    x_grad: &mut [f32],
    partial: &mut [f32],
) {
    let (mut first, mut rest) = (0, partial);
    for (set, groups) in norms.sets.iter().enumerate() {
        let (own, after) = rest.split_at_mut(2 * groups.width);
        let (gain_sum, bias_sum) = own.split_at_mut(groups.width);
        for _ in 0..groups.count {
            let columns = first..first + groups.width;
            let (x, grad) = (&x[columns.clone()], &grad[columns.clone()]);
            let x_grad = &mut x_grad[columns];
            let row = match gains.map(|gains| gains[set]) {
                Some(gain) => {
                    let row = Row::of::<true>(norms.kind, x, grad, gain);
                    row.write::<true, false, false>(x, grad, gain, grad, x_grad);
                    row
                }
                None => {
                    let row = Row::of::<false>(norms.kind, x, grad, grad);
                    row.write::<false, false, false>(x, grad, grad, grad, x_grad);
                    row
                }
            };
            row.add_gain(x, grad, gain_sum);
            add_to(bias_sum, grad);
            first += groups.width;
        }
        rest = after;
    }
    x_grad[first..].copy_from_slice(&grad[first..]);
}
