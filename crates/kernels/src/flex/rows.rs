//! Weighted rows added to some rows of a tensor.

use burn_flex::{Flex, FlexTensor};

use super::buffer::{all_filled, dense, elements, elements_mut, integers, width};
use crate::AddRowsGradients;
use crate::cpu::rows;

/// In place where nobody else holds `base`.
pub(super) fn add_rows(
    base: FlexTensor,
    x: FlexTensor,
    weights: FlexTensor,
    ids: &FlexTensor,
) -> FlexTensor {
    let [mut base, x, weights] = [base, x, weights].map(dense);
    let width = width(&base);
    rows::add_weighted(
        elements_mut(&mut base),
        &integers(ids),
        elements(&x),
        elements(&weights),
        width,
    );
    base
}

pub(super) fn add_rows_backward(
    x: FlexTensor,
    weights: FlexTensor,
    ids: &FlexTensor,
    grad: FlexTensor,
) -> AddRowsGradients<Flex> {
    let [x, weights, grad] = [x, weights, grad].map(dense);
    let shapes = [&x, &weights].map(|of| of.layout().shape().clone());
    let [x, weights] = all_filled(shapes, |filled| {
        rows::add_weighted_backward(
            filled,
            &integers(ids),
            elements(&x),
            elements(&weights),
            elements(&grad),
            width(&x),
        );
    });
    AddRowsGradients { x, weights }
}
