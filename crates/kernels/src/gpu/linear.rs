//! Linear layers of a few rows, as in decoding, in one kernel with bias, residual and activation.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::reshape;
use burn_cubecl::tensor::CubeTensor;

use super::activation::gated;
use super::columns::column_sums;
use super::launch::{empty, input_or, rows_of, with_contiguous_rows};
use super::matmul::{Epilogue, MOST_ROWS, launch_few_rows};
use super::meter;
use super::packed::{MOST_PACKED_ROWS, launch_product};
use super::queue::{OnRuntime, Queued, queue};
use crate::base_ops::usable;
use crate::reference::with_last;
use crate::{
    Activation, Backend, LinearGradients, LinearInputs, PackedWeight, Precision, reference,
};

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

/// `f(residual + x Wᵀ + b)`: see [`crate::Backend::linear_packed`]. For many rows, W is unpacked first.
pub fn linear_packed<B, R>(
    activation: Option<Activation>,
    x: Queued<R>,
    weight: PackedWeight<B>,
    bias: Option<Queued<R>>,
    residual: Option<Queued<R>>,
    precision: Precision,
) -> Queued<R>
where
    B: Backend + OnRuntime<R>,
    R: CubeRuntime,
{
    let (format, [outputs, _]) = (weight.format(), weight.shape());
    if let Some(words) = weight.bytes()
        && has_few_rows(&x, [&bias, &residual], outputs, MOST_PACKED_ROWS)
    {
        let launch = move |x, words, output, epilogue| {
            launch_product(x, words, output, epilogue, format);
        };
        return queue_few_rows(
            activation,
            [x, words],
            [bias, residual],
            None,
            outputs,
            launch,
        );
    }
    let inputs = LinearInputs::<B> {
        x,
        weight: B::float_swap_dims(B::unpack(weight), 0, 1), // [in, out]
        bias,
        residual,
    };
    linear(activation, inputs, precision)
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
    let [_, outputs] = rows_of(&weight.shape);
    let gate = gate.map(|gate| (gate.weight.clone(), gate.bias.clone()));
    let (of_gate, gate_bias) = gate.clone().unzip();
    let gate_bias = gate_bias.flatten();
    let others = [bias, residual, &of_gate, &gate_bias];
    let fits = precision == Precision::F32
        && weight.dtype == DType::F32
        && has_few_rows(x, others, outputs, MOST_ROWS);
    fits.then(|| {
        let launch = |x, weight, output, epilogue: Epilogue<R>| {
            // The kernel reads the rows of a weight one number after the other, and those of a gate at the same places.
            let weight = match epilogue.gate {
                Some(_) => into_contiguous(weight),
                None => with_contiguous_rows(weight),
            };
            let launched = launch_few_rows(x, weight, output, epilogue);
            debug_assert!(launched.is_ok(), "the sizes and layouts are supported");
        };
        let inputs = [x.clone(), weight.clone()];
        let addends = [bias.clone(), residual.clone()];
        queue_few_rows(activation, inputs, addends, gate, outputs, launch)
    })
}

/// True if `x` has 1 to `most` rows, the output is not empty, and all these tensors are in f32.
fn has_few_rows<R: CubeRuntime, const N: usize>(
    x: &Queued<R>,
    others: [&Option<Queued<R>>; N],
    outputs: usize,
    most: usize,
) -> bool {
    let [rows, width] = rows_of(&x.shape);
    let mut all = [x].into_iter().chain(others.into_iter().flatten());
    (1..=most).contains(&rows) && width > 0 && outputs > 0 && all.all(|of| of.dtype == DType::F32)
}

/// Adds a linear layer of a few rows to the queue. `launch` receives the rows of `x` `[rows, in]`, the weight, the output
/// `[rows, outputs]` to write, and the operations on the product. A gate has a weight and maybe a bias.
fn queue_few_rows<R: CubeRuntime>(
    activation: Option<Activation>,
    [x, weight]: [Queued<R>; 2],
    [bias, residual]: [Option<Queued<R>>; 2],
    gate: Option<(Queued<R>, Option<Queued<R>>)>,
    outputs: usize,
    launch: impl Fn(CubeTensor<R>, CubeTensor<R>, CubeTensor<R>, Epilogue<R>) + Send + Sync + 'static,
) -> Queued<R> {
    let [rows, width] = rows_of(&x.shape);
    let shape = with_last(x.shape.clone(), outputs);
    let of_output = [(shape.clone(), DType::F32)];
    let has = [bias.is_some(), residual.is_some()];
    let has_gate = gate.as_ref().map(|(_, bias)| bias.is_some());
    let (gate, gate_bias) = gate.unzip();
    let others = [bias, residual, gate, gate_bias.flatten()];
    let [bias, residual, gate, gate_bias] = others.map(|of| input_or(of, &x));
    let inputs = [x, weight, bias, residual, gate, gate_bias];
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
            launch(x, weight, output.clone(), epilogue);
            [reshape(output, shape.clone())]
        },
    );
    output
}
