//! Gated groups of columns added to the last columns of a tensor.

use burn_flex::{Flex, FlexTensor};

use super::buffer::{all_filled, dense, elements, elements_mut, width};
use crate::GatedGradients;
use crate::cpu::gated_columns::{self, Sizes};

fn sizes(wide: &FlexTensor, gates: &FlexTensor, added: &FlexTensor) -> Sizes {
    Sizes {
        width: width(wide),
        columns: width(added),
        groups: width(gates),
    }
}

/// In place where nobody else holds `x`.
pub(super) fn add_gated_columns(x: FlexTensor, gates: FlexTensor, added: FlexTensor) -> FlexTensor {
    let [mut x, gates, added] = [x, gates, added].map(dense);
    let sizes = sizes(&x, &gates, &added);
    let out = elements_mut(&mut x);
    gated_columns::add_gated_columns(sizes, out, elements(&gates), elements(&added));
    x
}

pub(super) fn add_gated_columns_backward(
    gates: FlexTensor,
    added: FlexTensor,
    grad: FlexTensor,
) -> GatedGradients<Flex> {
    let [gates, added, grad] = [gates, added, grad].map(dense);
    let sizes = sizes(&grad, &gates, &added);
    let shapes = [&gates, &added].map(|of| of.layout().shape().clone());
    let [gate, up] = all_filled(shapes, |filled| {
        let inputs = [&gates, &added, &grad].map(elements);
        gated_columns::add_gated_columns_backward(sizes, inputs, filled);
    });
    GatedGradients { gate, up }
}
