//! Rows of some tokens added to all tokens' rows, each with a weight: how a mixture of experts puts its results together.

use super::parallel::{Tasks, rows_of, rows_per_task};
use super::reduce::inner_product;
use super::vector::wide;

/// `base[ids[i]] += weights[i] · x[i]`, `base: [rows, width]`, `x: [tokens, width]`.
///
/// # Panics
/// Panics if the sizes do not fit, an id is no row of `base`, or the ids do not ascend.
pub fn add_weighted(base: &mut [f32], ids: &[i32], x: &[f32], weights: &[f32], width: usize) {
    assert_ascending(ids, rows_of(base.len(), width));
    assert!(
        rows_of(x.len(), width) == ids.len() && weights.len() == ids.len(),
        "there is not a row and a weight for each id"
    );
    let step = rows_per_task(ids.len(), width);
    let mut parts = vec![];
    let mut rest = Rows {
        base,
        first: 0,
        ids,
        x,
        weights,
    };
    while rest.ids.len() > step {
        let (part, after) = rest.split(step, width);
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts.into_iter().for_each_task(|part| part.add(width));
}

/// Rows to be added, and the part of the result that holds all of their places.
struct Rows<'a> {
    base: &'a mut [f32],
    /// The number of the first row of `base`.
    first: usize,
    ids: &'a [i32],
    x: &'a [f32],
    weights: &'a [f32],
}

impl<'a> Rows<'a> {
    /// The first `count` rows, and the others. As the ids ascend, their places are apart.
    fn split(self, count: usize, width: usize) -> (Self, Self) {
        let row = self.ids[count] as usize;
        let (base, base_after) = self.base.split_at_mut((row - self.first) * width);
        let (ids, ids_after) = self.ids.split_at(count);
        let (x, x_after) = self.x.split_at(count * width);
        let (weights, weights_after) = self.weights.split_at(count);
        let part = Rows {
            base,
            first: self.first,
            ids,
            x,
            weights,
        };
        let after = Rows {
            base: base_after,
            first: row,
            ids: ids_after,
            x: x_after,
            weights: weights_after,
        };
        (part, after)
    }

    fn add(self, width: usize) {
        let (base, first) = (self.base, self.first);
        let rows = self.ids.iter().zip(self.x.chunks_exact(width));
        wide(
            #[inline(always)]
            || {
                for ((id, x), &weight) in rows.zip(self.weights) {
                    let start = (*id as usize - first) * width;
                    for (base, x) in base[start..start + width].iter_mut().zip(x) {
                        *base += weight * *x;
                    }
                }
            },
        );
    }
}

/// The gradients of [`add_weighted`] from its output's, `grad`: `x_grad[i] = weights[i] · grad[ids[i]]` and
/// `weights_grad[i] = x[i] · grad[ids[i]]`.
///
/// # Panics
/// Panics if the sizes do not fit, or an id is no row of `grad`.
pub fn add_weighted_backward(
    [x_grad, weights_grad]: [&mut [f32]; 2],
    ids: &[i32],
    x: &[f32],
    weights: &[f32],
    grad: &[f32],
    width: usize,
) {
    let rows = rows_of(x.len(), width);
    assert!(
        [ids.len(), weights.len(), weights_grad.len()] == [rows; 3] && x_grad.len() == x.len(),
        "there is not a row and a weight for each id"
    );
    let step = rows_per_task(rows, width);
    x_grad
        .chunks_mut(step * width)
        .zip(weights_grad.chunks_mut(step))
        .zip(ids.chunks(step))
        .zip(x.chunks(step * width))
        .zip(weights.chunks(step))
        .for_each_task(|((((x_grad, weights_grad), ids), x), weights)| {
            let rows = x_grad.chunks_exact_mut(width).zip(x.chunks_exact(width));
            let numbers = weights_grad.iter_mut().zip(weights).zip(ids);
            for ((x_grad, x), ((weight_grad, &weight), id)) in rows.zip(numbers) {
                let start = *id as usize * width;
                let grad = &grad[start..start + width];
                *weight_grad = wide(
                    #[inline(always)]
                    || {
                        for (x_grad, grad) in x_grad.iter_mut().zip(grad) {
                            *x_grad = weight * *grad;
                        }
                        inner_product(x, grad)
                    },
                );
            }
        });
}

#[track_caller]
fn assert_ascending(ids: &[i32], rows: usize) {
    assert!(
        ids.is_sorted_by(|a, b| a < b),
        "the ids of the rows do not ascend"
    );
    let inside = |id: &i32| usize::try_from(*id).is_ok_and(|id| id < rows);
    // As they ascend, those between are inside too.
    assert!(
        ids.first().is_none_or(inside) && ids.last().is_none_or(inside),
        "an id is no row of the result"
    );
}
