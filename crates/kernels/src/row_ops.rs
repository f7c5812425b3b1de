//! Operations on the rows and columns of matrices.

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::{FloatTensor, IntTensor};

use crate::{AddRowsGradients, GatedGradients, reference};

/// A Burn backend's additions of rows and columns, which it may compute in place.
pub trait RowOps: BurnBackend {
    /// `base` `[rows, width]` with `weights[i] · x[i]` added to its row `ids[i]`: `x` `[tokens, width]`, `weights` and `ids`
    /// `[tokens]`. The ids ascend, so that none occurs twice.
    fn add_rows(
        base: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        ids: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        reference::add_rows::<Self>(base, x, weights, ids)
    }

    /// The gradients of [`RowOps::add_rows`] by `x` and `weights` from its output's, which is also the gradient of `base`.
    fn add_rows_backward(
        x: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        ids: IntTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> AddRowsGradients<Self> {
        reference::add_rows_backward::<Self>(x, weights, ids, grad)
    }

    /// `x` `[…, width]`, to whose last columns are added the groups of columns of `added` `[…, columns]`, each times its gate:
    /// `gates` is `[…, groups]`.
    fn add_gated_columns(
        x: FloatTensor<Self>,
        gates: FloatTensor<Self>,
        added: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        reference::add_gated_columns::<Self>(x, gates, added)
    }

    /// The gradients of [`RowOps::add_gated_columns`] by `gates` and `added` (`up`) from its output's, which is also the gradient
    /// of `x`.
    fn add_gated_columns_backward(
        gates: FloatTensor<Self>,
        added: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> GatedGradients<Self> {
        reference::add_gated_columns_backward::<Self>(gates, added, grad)
    }
}
