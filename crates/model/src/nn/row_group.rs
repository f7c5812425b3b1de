//! Rows of several texts of equal length in one pass.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// Consecutive rows of `count` texts with `len` tokens each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowGroup {
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) len: usize,
}

impl RowGroup {
    /// Selects the group's rows of `[1, rows, width]`, as `[count, len, width]`.
    pub(crate) fn of<B: Backend>(self, rows: &Tensor<B, 3>) -> Tensor<B, 3> {
        let [_, _, width] = rows.dims();
        let rows = rows.clone().narrow(1, self.first, self.count * self.len);
        rows.reshape([self.count, self.len, width])
    }
}
