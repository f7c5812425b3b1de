//! Low-rank updates of rows with different factors.

use burn_flex::{Flex, FlexTensor};

use super::buffer::dense;
use super::linear::{in_place_or_copied, matrix, rows, with_positive_strides};
use crate::cpu::low_rank::{self, RowsUpdate};
use crate::{LowRankUpdate, Precision};

/// In place where nobody else holds `y`.
pub(super) fn add_low_rank(
    y: FlexTensor,
    x: FlexTensor,
    updates: Vec<LowRankUpdate<Flex>>,
    precision: Precision,
) -> FlexTensor {
    let x = dense(x);
    let updates = updates.into_iter().map(|LowRankUpdate { rows, a, b }| {
        let [a, b] = [a, b].map(with_positive_strides);
        (rows, a, b)
    });
    let updates: Vec<_> = updates.collect();
    let updates = updates.iter().map(|(rows, a, b)| RowsUpdate {
        rows: rows.clone(),
        a: matrix(a),
        b: matrix(b),
    });
    let updates: Vec<_> = updates.collect();
    in_place_or_copied(dense(y), |y| {
        low_rank::add(y, rows(&x), &updates, precision);
    })
}
