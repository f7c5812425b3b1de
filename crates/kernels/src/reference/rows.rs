//! Weighted rows added to some rows of a tensor.

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Shape, TensorMetadata};

use crate::AddRowsGradients;

/// See [`crate::RowOps::add_rows`].
pub fn add_rows<B: Backend>(
    base: FloatTensor<B>,
    x: FloatTensor<B>,
    weights: FloatTensor<B>,
    ids: IntTensor<B>,
) -> FloatTensor<B> {
    let weighted = B::float_mul(x, column::<B>(weights));
    B::float_select_add(base, 0, ids, weighted)
}

/// See [`crate::RowOps::add_rows_backward`].
pub fn add_rows_backward<B: Backend>(
    x: FloatTensor<B>,
    weights: FloatTensor<B>,
    ids: IntTensor<B>,
    grad: FloatTensor<B>,
) -> AddRowsGradients<B> {
    let rows = B::float_select(grad, 0, ids); // [tokens, width]
    let products = B::float_sum_dim(B::float_mul(rows.clone(), x), 1); // [tokens, 1]
    AddRowsGradients {
        x: B::float_mul(rows, column::<B>(weights.clone())),
        weights: B::float_reshape(products, weights.shape()),
    }
}

/// `[tokens]` as `[tokens, 1]`.
fn column<B: Backend>(weights: FloatTensor<B>) -> FloatTensor<B> {
    let tokens = weights.shape().num_elements();
    B::float_reshape(weights, Shape::new([tokens, 1]))
}
