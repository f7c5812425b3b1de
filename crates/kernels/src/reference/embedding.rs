//! The gradient of the embedding.

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};

/// See [`crate::Backend::embedding_backward`].
pub fn embedding_backward<B: Backend>(
    table: FloatTensor<B>,
    ids: IntTensor<B>,
    grad: FloatTensor<B>,
    added: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    let table_grad = B::embedding_backward(table, grad, ids);
    match added {
        Some(added) => B::float_add(added, table_grad),
        None => table_grad,
    }
}
