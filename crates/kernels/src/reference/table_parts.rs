//! A table `[vocab_size, d_model]` whose rows are in several tensors: which of them an id is in.

use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor};

/// The share of a table's part in some ids, `D` dimensions of them.
pub(crate) struct Own<B: Backend, const D: usize> {
    /// The ids' rows in the part; any row of it where an id is another part's.
    pub(crate) rows: Tensor<B, D, Int>,
    /// Which ids are the part's own; none for all of them.
    pub(crate) mine: Option<Tensor<B, D, Bool>>,
}

/// The share of each part in `ids`, by the number of rows of each. Nothing is computed where there is one part.
pub(crate) fn own<B: Backend, const D: usize>(
    ids: &Tensor<B, D, Int>,
    rows: &[usize],
) -> Vec<Own<B, D>> {
    let mut start = 0;
    let part = |&count: &usize| {
        if rows.len() == 1 {
            return Own {
                rows: ids.clone(),
                mine: None,
            };
        }
        // An id is below 2^31 on every backend, and so is a row.
        let shifted = ids.clone() - start as i64;
        start += count;
        let last = count.saturating_sub(1) as i64;
        let inside = shifted.clone().greater_equal_elem(0);
        let mine = inside.bool_and(shifted.clone().lower_equal_elem(last));
        Own {
            rows: shifted.clamp(0, last),
            mine: Some(mine),
        }
    };
    rows.iter().map(part).collect()
}

impl<B: Backend, const D: usize> Own<B, D> {
    /// `x`, a row for each id, where an id is the part's own, `others` elsewhere: chosen and not computed, so that what is not
    /// finite in one part stays there.
    pub(crate) fn chosen<const E: usize>(
        &self,
        others: Option<Tensor<B, E>>,
        x: Tensor<B, E>,
    ) -> Tensor<B, E> {
        match (others, &self.mine) {
            (Some(others), Some(mine)) => others.mask_where(spread(mine, &x), x),
            _ => x,
        }
    }

    /// `x`, a row for each id, where an id is the part's own, 0 elsewhere.
    pub(crate) fn or_zero<const E: usize>(&self, x: Tensor<B, E>) -> Tensor<B, E> {
        match &self.mine {
            Some(mine) => {
                let others = spread(&mine.clone().bool_not(), &x);
                x.mask_fill(others, 0.0)
            }
            None => x,
        }
    }
}

/// The value of each id over its row of `x`.
fn spread<B: Backend, const D: usize, const E: usize>(
    mask: &Tensor<B, D, Bool>,
    x: &Tensor<B, E>,
) -> Tensor<B, E, Bool> {
    mask.clone().unsqueeze_dim::<E>(D).expand(x.shape())
}
