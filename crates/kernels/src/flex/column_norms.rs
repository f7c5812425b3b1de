//! Normalization of groups of columns.

use burn_flex::{Flex, FlexTensor};

use super::buffer::{all_filled, dense, dims, elements, filled, width};
use crate::cpu::column_norms::{self, Affine};
use crate::{ColumnNormGradients, ColumnNormInputs, ColumnNorms};

pub(super) fn normalize_columns(norms: ColumnNorms, inputs: ColumnNormInputs<Flex>) -> FlexTensor {
    let x = dense(inputs.x);
    let [gains, biases] = [inputs.gains, inputs.biases].map(all_dense);
    let affine = Affine {
        gains: slices(&gains),
        biases: slices(&biases),
    };
    filled(dims(&x), |out| {
        column_norms::normalize_columns(norms, elements(&x), affine, width(&x), out);
    })
}

pub(super) fn normalize_columns_backward(
    norms: ColumnNorms,
    inputs: ColumnNormInputs<Flex>,
    grad: FlexTensor,
) -> ColumnNormGradients<Flex> {
    let (x, grad) = (dense(inputs.x), dense(grad));
    let [gains, has_biases] = [inputs.gains, inputs.biases].map(all_dense);
    let widths = norms.sets.map(|groups| groups.width);
    let mut affine = vec![0.0; 2 * widths.iter().sum::<usize>()];
    let x_grad = filled(dims(&x), |out| {
        column_norms::normalize_columns_backward(
            norms,
            elements(&x),
            slices(&gains),
            elements(&grad),
            width(&x),
            out,
            &mut affine,
        );
    });
    let [first, second] = widths;
    let [gain1, bias1, gain2, bias2] = all_filled(
        [first, first, second, second].map(|width| [width].into()),
        |outs| {
            let mut rest = affine.as_slice();
            for out in outs {
                let (own, after) = rest.split_at(out.len());
                out.copy_from_slice(own);
                rest = after;
            }
        },
    );
    ColumnNormGradients {
        x: x_grad,
        gains: gains.map(|_| [gain1, gain2]),
        biases: has_biases.map(|_| [bias1, bias2]),
    }
}

fn all_dense(both: Option<[FlexTensor; 2]>) -> Option<[FlexTensor; 2]> {
    both.map(|both| both.map(dense))
}

fn slices(both: &Option<[FlexTensor; 2]>) -> Option<[&[f32]; 2]> {
    both.as_ref().map(|both| both.each_ref().map(elements))
}
