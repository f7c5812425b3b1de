//! Lookups in a table `[vocab_size, d_model]` whose rows are split into several tensors.

use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor};

/// The rows of some ids in one part of a table, for ids with `D` dimensions.
pub(crate) struct PartRows<B: Backend, const D: usize> {
    /// The row of each id in this part, or an arbitrary row if the id is in another part.
    pub(crate) rows: Tensor<B, D, Int>,
    /// True for ids in this part; `None` if all are.
    pub(crate) in_part: Option<Tensor<B, D, Bool>>,
}

/// Locates `ids` in each part, given the number of rows of each. With a single part it computes nothing.
pub(crate) fn part_rows<B: Backend, const D: usize>(
    ids: &Tensor<B, D, Int>,
    rows: &[usize],
) -> Vec<PartRows<B, D>> {
    let mut start = 0;
    let part = |&count: &usize| {
        if rows.len() == 1 {
            return PartRows {
                rows: ids.clone(),
                in_part: None,
            };
        }
        // Ids and rows are below 2^31 on every backend.
        let shifted = ids.clone() - start as i64;
        start += count;
        let last = count.saturating_sub(1) as i64;
        let inside = shifted.clone().greater_equal_elem(0);
        let in_part = inside.bool_and(shifted.clone().lower_equal_elem(last));
        PartRows {
            rows: shifted.clamp(0, last),
            in_part: Some(in_part),
        }
    };
    rows.iter().map(part).collect()
}

impl<B: Backend, const D: usize> PartRows<B, D> {
    /// Selects `x`, which has one row per id, for ids in this part and `others` elsewhere. It selects instead of
    /// multiplying by a mask, so non-finite values do not spread between parts.
    pub(crate) fn select_or<const E: usize>(
        &self,
        others: Option<Tensor<B, E>>,
        x: Tensor<B, E>,
    ) -> Tensor<B, E> {
        match (others, &self.in_part) {
            (Some(others), Some(in_part)) => others.mask_where(spread(in_part, &x), x),
            _ => x,
        }
    }

    /// Selects `x`, which has one row per id, for ids in this part and 0 elsewhere.
    pub(crate) fn or_zero<const E: usize>(&self, x: Tensor<B, E>) -> Tensor<B, E> {
        match &self.in_part {
            Some(in_part) => {
                let others = spread(&in_part.clone().bool_not(), &x);
                x.mask_fill(others, 0.0)
            }
            None => x,
        }
    }
}

/// Expands a mask over ids to the rows of `x`.
fn spread<B: Backend, const D: usize, const E: usize>(
    mask: &Tensor<B, D, Bool>,
    x: &Tensor<B, E>,
) -> Tensor<B, E, Bool> {
    mask.clone().unsqueeze_dim::<E>(D).expand(x.shape())
}
