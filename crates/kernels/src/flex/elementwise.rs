//! Activations, normalization, rotary embeddings and token embeddings.

use burn_flex::FlexTensor;

use super::attention::strides;
use super::buffer::{all_filled, dense, dims, elements, elements_mut, filled, integers, width};
use crate::cpu::norm::Residual;
use crate::cpu::{activation, embedding, norm, rotary};
use crate::{Activation, GatedGradients, NormGradients, Normalization, RotaryLayout};

type Flex = burn_flex::Flex;

pub(super) fn activation(kind: Activation, x: FlexTensor) -> FlexTensor {
    let x = dense(x);
    filled(dims(&x), |out| {
        activation::activation(kind, elements(&x), out);
    })
}

/// Returns the activations and the slopes. The slopes overwrite `x` if it is not shared.
pub(super) fn activation_training(kind: Activation, x: FlexTensor) -> (FlexTensor, FlexTensor) {
    let mut x = dense(x);
    let out = filled(dims(&x), |out| {
        activation::activation_and_slope(kind, elements_mut(&mut x), out);
    });
    (out, x)
}

pub(super) fn activation_backward(slope: FlexTensor, grad: FlexTensor) -> FlexTensor {
    let (slope, mut grad) = (dense(slope), dense(grad));
    activation::multiply(elements_mut(&mut grad), elements(&slope));
    grad
}

pub(super) fn gated(kind: Activation, gate: FlexTensor, up: FlexTensor) -> FlexTensor {
    let (gate, up) = (dense(gate), dense(up));
    filled(dims(&gate), |out| {
        activation::gated(kind, elements(&gate), elements(&up), out);
    })
}

pub(super) fn gated_backward(
    kind: Activation,
    gate: FlexTensor,
    up: FlexTensor,
    grad: FlexTensor,
) -> GatedGradients<Flex> {
    let (gate, up, grad) = (dense(gate), dense(up), dense(grad));
    let shape = gate.layout().shape();
    let [gate, up] = all_filled([shape.clone(), shape.clone()], |[gate_out, up_out]| {
        let (gate, up, grad) = (elements(&gate), elements(&up), elements(&grad));
        activation::gated_backward(kind, gate, up, grad, gate_out, up_out);
    });
    GatedGradients { gate, up }
}

pub(super) fn normalize(
    kind: Normalization,
    x: FlexTensor,
    gain: Option<FlexTensor>,
    bias: Option<FlexTensor>,
) -> FlexTensor {
    let (x, gain, bias) = (dense(x), gain.map(dense), bias.map(dense));
    let [gain, bias] = [&gain, &bias].map(|row| row.as_ref().map(elements));
    filled(dims(&x), |out| {
        norm::normalize(kind, elements(&x), gain, bias, width(&x), out);
    })
}

pub(super) fn normalize_backward(
    kind: Normalization,
    x: FlexTensor,
    gain: Option<FlexTensor>,
    bias: bool,
    grad: FlexTensor,
    added: Option<FlexTensor>,
) -> NormGradients<Flex> {
    let (x, gain, grad) = (dense(x), gain.map(dense), dense(grad));
    let width = width(&x);
    let row = |wanted: bool| if wanted { vec![0.0; width] } else { Vec::new() };
    let (mut gain_grad, mut bias_grad) = (row(gain.is_some()), row(bias));
    let run =
        |residual: Residual<'_>, out: &mut [f32], gain_out: &mut [f32], bias_out: &mut [f32]| {
            let gradients = norm::NormGradients {
                x: out,
                gain: gain.is_some().then_some(gain_out),
                bias: bias.then_some(bias_out),
            };
            let gain = gain.as_ref().map(elements);
            norm::normalize_backward(
                kind,
                elements(&x),
                gain,
                elements(&grad),
                residual,
                width,
                gradients,
            );
        };
    let x_grad = match added.map(dense) {
        Some(mut sum) if sum.is_unique() => {
            run(
                Residual::InPlace,
                elements_mut(&mut sum),
                &mut gain_grad,
                &mut bias_grad,
            );
            sum
        }
        Some(added) => filled(dims(&x), |out| {
            run(
                Residual::From(elements(&added)),
                out,
                &mut gain_grad,
                &mut bias_grad,
            );
        }),
        None => filled(dims(&x), |out| {
            run(Residual::None, out, &mut gain_grad, &mut bias_grad);
        }),
    };
    let row = |wanted: bool, row: Vec<f32>| {
        wanted.then(|| filled([width], |out| out.copy_from_slice(&row)))
    };
    NormGradients {
        x: x_grad,
        gain: row(gain.is_some(), gain_grad),
        bias: row(bias, bias_grad),
    }
}

pub(super) fn rotary(
    layout: RotaryLayout,
    x: FlexTensor,
    cos: FlexTensor,
    sin: FlexTensor,
) -> FlexTensor {
    let (cos, sin) = (dense(cos), dense(sin));
    let (x, from_strides) = strides(x);
    let shape = [0, 1, 2, 3].map(|dim| x.layout().shape()[dim]);
    let from = x.layout().start_offset();
    filled(shape, |out| {
        let x = &x.storage()[from..];
        rotary::rotate(
            layout,
            x,
            from_strides,
            out,
            shape,
            elements(&cos),
            elements(&sin),
        );
    })
}

pub(super) fn embedding(table: FlexTensor, ids: FlexTensor) -> FlexTensor {
    let table = dense(table);
    let mut shape = dims(&ids);
    shape.push(width(&table));
    filled(shape, |out| {
        embedding::gather(elements(&table), &integers(&ids), width(&table), out);
    })
}

pub(super) fn embedding_backward(
    table: FlexTensor,
    ids: FlexTensor,
    grad: FlexTensor,
    added: Option<FlexTensor>,
) -> FlexTensor {
    let grad = dense(grad);
    let mut sum = match added {
        Some(added) => dense(added),
        None => FlexTensor::zeros(table.layout().shape().clone(), table.dtype()),
    };
    let width = width(&table);
    embedding::scatter_add(
        elements_mut(&mut sum),
        &integers(&ids),
        elements(&grad),
        width,
    );
    sum
}
