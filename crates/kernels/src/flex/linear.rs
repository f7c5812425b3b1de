//! Linear layers.

use burn_flex::{Flex, FlexTensor};

use super::buffer::{dense, dims, elements, elements_mut, filled, width};
use crate::cpu::matrix::{Matrix, MatrixMut};
use crate::cpu::product::{Around, Output, affine, product};
use crate::cpu::reduce;
use crate::{Activation, LinearGradients, LinearInputs, Precision};

/// `f(residual + x W + b)`; without an activation, `f(x) = x`.
pub(super) fn linear(
    inputs: LinearInputs<Flex>,
    activation: Option<Activation>,
    precision: Precision,
) -> FlexTensor {
    let LinearInputs {
        x,
        weight,
        bias,
        residual,
    } = inputs;
    let x = dense(x);
    let weight = with_positive_strides(weight);
    let (w, out_width) = (matrix(&weight), weight.layout().shape()[1]);
    let x_rows = rows(&x);
    let bias = bias.map(dense);
    let around = Around {
        bias: bias.as_ref().map(elements),
        activation,
    };
    match residual.map(dense) {
        None => filled(out_shape(&x, out_width), |out| {
            affine(out, x_rows, w, Output::Overwrite, around, precision);
        }),
        Some(residual) => in_place_or_copied(residual, |out| {
            affine(out, x_rows, w, Output::Accumulate, around, precision);
        }),
    }
}

/// Returns `residual + bias + product`, where bias and residual are optional. `multiply` writes the product or
/// accumulates it.
pub(super) fn with_bias_and_residual(
    bias: Option<FlexTensor>,
    residual: Option<FlexTensor>,
    shape: impl FnOnce() -> Vec<usize>,
    multiply: impl Fn(&mut [f32], Output),
) -> FlexTensor {
    let bias = bias.map(dense);
    match (residual.map(dense), bias) {
        (None, None) => filled(shape(), |out| multiply(out, Output::Overwrite)),
        (None, Some(bias)) => filled(shape(), |out| {
            reduce::fill_rows(elements(&bias), out);
            multiply(out, Output::Accumulate);
        }),
        (Some(residual), bias) => {
            let add = |out: &mut [f32]| {
                if let Some(bias) = &bias {
                    reduce::add_row_in_place(out, elements(bias));
                }
                multiply(out, Output::Accumulate);
            };
            in_place_or_copied(residual, add)
        }
    }
}

pub(super) fn linear_backward(
    x: FlexTensor,
    weight: FlexTensor,
    grad: FlexTensor,
    added: Option<FlexTensor>,
    [input, weights, bias]: [bool; 3],
    precision: Precision,
) -> LinearGradients<Flex> {
    let (x, grad) = (dense(x), dense(grad));
    let weight = with_positive_strides(weight);
    let (x_rows, grad_rows) = (rows(&x), rows(&grad));
    let x_grad = input.then(|| {
        let multiply = |out: &mut [f32], output| {
            let out = MatrixMut::row_major(out, x_rows.rows, x_rows.columns);
            product(
                out,
                grad_rows,
                matrix(&weight).transposed(),
                output,
                precision,
            );
        };
        match added.map(dense) {
            Some(added) => in_place_or_copied(added, |out| multiply(out, Output::Accumulate)),
            None => filled(dims(&x), |out| multiply(out, Output::Overwrite)),
        }
    });
    let weight_grad = weights.then(|| {
        let shape = [x_rows.columns, grad_rows.columns];
        filled(shape, |out| {
            let out = MatrixMut::row_major(out, shape[0], shape[1]);
            product(
                out,
                x_rows.transposed(),
                grad_rows,
                Output::Overwrite,
                precision,
            );
        })
    });
    let bias_grad = bias.then(|| {
        filled([grad_rows.columns], |out| {
            reduce::column_sums(elements(&grad), grad_rows.columns, out);
        })
    });
    LinearGradients {
        x: x_grad,
        weight: weight_grad,
        bias: bias_grad,
    }
}

/// Adds to a dense tensor, in place if it is not shared.
pub(super) fn in_place_or_copied(
    mut tensor: FlexTensor,
    add: impl FnOnce(&mut [f32]),
) -> FlexTensor {
    if tensor.is_unique() {
        add(elements_mut(&mut tensor));
        return tensor;
    }
    filled(dims(&tensor), |out| {
        reduce::copy(elements(&tensor), out);
        add(out);
    })
}

/// A dense tensor as a matrix with the rows of its last dimension.
pub(super) fn rows(tensor: &FlexTensor) -> Matrix<'_> {
    let (all, width) = (elements(tensor), width(tensor));
    Matrix::row_major(all, all.len() / width.max(1), width)
}

/// Copies a weight with negative strides, which [`Matrix`] does not support. A transposed weight is not copied.
pub(super) fn with_positive_strides(weight: FlexTensor) -> FlexTensor {
    match weight.layout().has_positive_strides() {
        true => weight,
        false => weight.to_contiguous(),
    }
}

/// A matrix view of a tensor with two dimensions and positive strides.
pub(super) fn matrix(weight: &FlexTensor) -> Matrix<'_> {
    let layout = weight.layout();
    let [rows, columns] = [0, 1].map(|dim| layout.shape()[dim]);
    let strides = [0, 1].map(|dim| layout.strides()[dim].unsigned_abs());
    Matrix::new(
        &weight.storage()[layout.start_offset()..],
        [rows, columns],
        strides,
    )
}

/// The shape of `x` with its last dimension replaced by `width`.
pub(super) fn out_shape(x: &FlexTensor, width: usize) -> Vec<usize> {
    let mut shape = dims(x);
    if let Some(last) = shape.last_mut() {
        *last = width;
    }
    shape
}
