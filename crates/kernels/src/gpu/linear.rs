//! Linear layers of a few rows, as in decoding, in one kernel with bias, residual and activation.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::reshape;

use super::activation::gated;
use super::columns::column_sums;
use super::launch::{empty, input_or, rows_of, with_contiguous_rows};
use super::matmul::{Epilogue, MOST_ROWS, launch_few_rows};
use super::meter;
use super::queue::{OnRuntime, Queued, queue};
use crate::base_ops::usable;
use crate::{Activation, Backend, LinearGradients, LinearInputs, Precision, reference};

/// See [`crate::Backend::linear`] and [`crate::Backend::linear_activation`].
pub fn linear<B, R>(
    activation: Option<Activation>,
    inputs: LinearInputs<B>,
    precision: Precision,
) -> Queued<R>
where
    B: Backend + OnRuntime<R>,
    R: CubeRuntime,
{
    if let Some(output) = of_few_rows(activation, &inputs, None, precision) {
        return output;
    }
    let precision = usable::<B>(precision, &inputs.x);
    let output = reference::linear::<B>(inputs, precision);
    match activation {
        Some(kind) => <B as Backend>::activation(kind, output),
        None => output,
    }
}

/// See [`crate::Backend::gated_linear`].
pub fn gated_linear<B, R>(
    kind: Activation,
    gate: LinearInputs<B>,
    up: LinearInputs<B>,
    precision: Precision,
) -> Queued<R>
where
    B: Backend + OnRuntime<R>,
    R: CubeRuntime,
{
    if let Some(output) = of_few_rows(Some(kind), &up, Some(&gate), precision) {
        return output;
    }
    let [gate, up] = [gate, up].map(|of| linear(None, of, precision));
    gated(kind, gate, up)
}

/// See [`crate::Backend::linear_training`]. The rounded input and weight serve the backward pass, too.
pub fn linear_training<B: OnRuntime<R>, R: CubeRuntime>(
    inputs: LinearInputs<B>,
    precision: Precision,
) -> (Queued<R>, [Queued<R>; 2]) {
    if let Some(output) = of_few_rows(None, &inputs, None, precision) {
        return (output, [inputs.x, inputs.weight]);
    }
    let precision = usable::<B>(precision, &inputs.x);
    reference::linear_training::<B>(inputs, precision)
}

/// See [`crate::Backend::linear_backward`]. The kernel that sums the gradient of the bias also rounds the gradient for the
/// products.
pub fn linear_backward<B: OnRuntime<R>, R: CubeRuntime>(
    x: Queued<R>,
    weight: Queued<R>,
    grad: Queued<R>,
    added: Option<Queued<R>>,
    [input, weights, bias]: [bool; 3],
    precision: Precision,
) -> LinearGradients<B> {
    let precision = usable::<B>(precision, &x);
    let wide = grad.dtype;
    let (bias, grad) = match bias {
        true => {
            let narrow = (precision != Precision::F32).then(|| precision.kind());
            let (sums, grad) = column_sums(grad, narrow);
            (Some(sums), grad)
        }
        false => (None, grad),
    };
    let wanted = [input, weights];
    let products =
        reference::gradient_products::<B>(x, weight, grad, added, wanted, precision, wide);
    LinearGradients { bias, ..products }
}

/// `f(residual + x W + b)` with `x` `[…, in]` and `W` `[in, out]`, or `f` of the gate times the rest, if `x` has few rows and
/// products are in f32; else `None`.
fn of_few_rows<B: OnRuntime<R>, R: CubeRuntime>(
    activation: Option<Activation>,
    inputs: &LinearInputs<B>,
    gate: Option<&LinearInputs<B>>,
    precision: Precision,
) -> Option<Queued<R>> {
    let LinearInputs {
        x,
        weight,
        bias,
        residual,
    } = inputs;
    let [rows, width] = rows_of(&x.shape);
    let [_, outputs] = rows_of(&weight.shape);
    let gates = gate
        .iter()
        .flat_map(|gate| [&gate.weight].into_iter().chain(&gate.bias));
    let mut all = [x, weight]
        .into_iter()
        .chain(bias)
        .chain(residual)
        .chain(gates);
    let is_f32 = precision == Precision::F32 && all.all(|of| of.dtype == DType::F32);
    if !(1..=MOST_ROWS).contains(&rows) || width == 0 || outputs == 0 || !is_f32 {
        return None;
    }
    let has_gate = gate.map(|gate| gate.bias.is_some());
    let (gate, gate_bias) = match gate {
        Some(gate) => (Some(gate.weight.clone()), gate.bias.clone()),
        None => (None, None),
    };
    let mut shape = x.shape.clone();
    *shape.last_mut()? = outputs;
    let of_output = [(shape.clone(), DType::F32)];
    let has = [bias.is_some(), residual.is_some()];
    let inputs = [
        x.clone(),
        weight.clone(),
        input_or(bias.clone(), x),
        input_or(residual.clone(), x),
        input_or(gate, x),
        input_or(gate_bias, x),
    ];
    let [output] = queue(
        "linear",
        inputs,
        of_output,
        move |[x, weight, bias, residual, gate, gate_bias]| {
            let x = reshape(into_contiguous(x), [rows, width].into());
            let output = empty(&x, [rows, outputs].into(), DType::F32);
            meter::record_product(&x, &output);
            let epilogue = Epilogue {
                bias: has[0].then(|| into_contiguous(bias)),
                residual: has[1].then(|| into_contiguous(residual)),
                activation,
                gate: has_gate.map(|bias| {
                    let bias = bias.then(|| into_contiguous(gate_bias));
                    (into_contiguous(gate), bias)
                }),
            };
            // The kernel reads the rows of a weight one number after the other.
            let weight = match has_gate {
                Some(_) => into_contiguous(weight),
                None => with_contiguous_rows(weight),
            };
            let launched = launch_few_rows(x, weight, output.clone(), epilogue);
            debug_assert!(launched.is_ok(), "the sizes and layouts are supported");
            [reshape(output, shape.clone())]
        },
    );
    Some(output)
}
