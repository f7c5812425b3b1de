//! Gated groups of columns added to the last columns of a tensor, and their gradients.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};

use super::{primitive, rows, typed};
use crate::GatedGradients;

/// See [`crate::RowOps::add_gated_columns`].
pub fn add_gated_columns<B: Backend>(
    x: FloatTensor<B>,
    gates: FloatTensor<B>,
    added: FloatTensor<B>,
) -> FloatTensor<B> {
    let (x, shape) = rows::<B>(x); // [rows, width]
    let (gates, added) = by_group::<B>(gates, added);
    let [rows, width] = x.dims();
    let added = (added * gates).reshape([rows as i64, -1]); // [rows, columns]
    let before = width - added.dims()[1];
    let sum = x.clone().narrow(1, before, width - before) + added;
    let sum = Tensor::cat(vec![x.narrow(1, 0, before), sum], 1);
    B::float_reshape(primitive(sum), shape)
}

/// See [`crate::RowOps::add_gated_columns_backward`].
pub fn add_gated_columns_backward<B: Backend>(
    gates: FloatTensor<B>,
    added: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> GatedGradients<B> {
    let shapes = (gates.shape(), added.shape());
    let (grad, _) = rows::<B>(grad); // [rows, width]
    let (gates, added) = by_group::<B>(gates, added);
    let [groups, group] = added.dims();
    let [rows, width] = grad.dims();
    let columns = groups * group / rows.max(1);
    let grad = grad.narrow(1, width - columns, columns);
    let grad = grad.reshape([groups, group]);
    GatedGradients {
        gate: B::float_reshape(primitive((grad.clone() * added).sum_dim(1)), shapes.0),
        up: B::float_reshape(primitive(grad * gates), shapes.1),
    }
}

/// A row per group: backends multiply matrices faster than tensors of more dimensions.
fn by_group<B: Backend>(
    gates: FloatTensor<B>,
    added: FloatTensor<B>,
) -> (Tensor<B, 2>, Tensor<B, 2>) {
    let (gates, _) = rows::<B>(gates);
    let groups = gates.shape().num_elements();
    let group = added.shape().num_elements() / groups.max(1);
    let added = typed::<B, 2>(B::float_reshape(added, [groups, group].into()));
    (gates.reshape([groups, 1]), added)
}
