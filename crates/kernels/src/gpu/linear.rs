//! Linear layers of a few rows, as in decoding, in one kernel with bias, residual and activation.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::ops::reshape;
use burn_cubecl::tensor::CubeTensor;

use super::columns::column_sums;
use super::matmul::{Epilogue, MOST_ROWS, launch_few_rows};
use super::queue::{Queued, queue};
use crate::base_ops::usable;
use crate::{Activation, Backend, LinearGradients, LinearInputs, Precision, reference};

/// See [`crate::Backend::linear`] and [`crate::Backend::linear_activation`].
pub fn linear<B, R: CubeRuntime>(
    activation: Option<Activation>,
    inputs: LinearInputs<B>,
    precision: Precision,
) -> Queued<R>
where
    B: Backend<FloatTensorPrimitive = Queued<R>>,
{
    if let Some(output) = of_few_rows(activation, &inputs, precision) {
        return output;
    }
    let precision = usable::<B>(precision, &inputs.x);
    let output = reference::linear::<B>(inputs, precision);
    match activation {
        Some(kind) => B::activation(kind, output),
        None => output,
    }
}

/// See [`crate::Backend::linear_backward`]. The kernel that sums the gradient of the bias also rounds the gradient for the
/// products.
pub fn linear_backward<B, R: CubeRuntime>(
    x: Queued<R>,
    weight: Queued<R>,
    grad: Queued<R>,
    added: Option<Queued<R>>,
    [input, weights, bias]: [bool; 3],
    precision: Precision,
) -> LinearGradients<B>
where
    B: Backend<FloatTensorPrimitive = Queued<R>>,
{
    let precision = usable::<B>(precision, &x);
    let narrow = match precision {
        Precision::F32 => None,
        Precision::Bf16 => Some(DType::BF16),
        Precision::F16 => Some(DType::F16),
    };
    let (bias, grad) = match bias {
        true => {
            let (sums, grad) = column_sums(grad, narrow);
            (Some(sums), grad)
        }
        false => (None, grad),
    };
    let wanted = [input, weights, false];
    let products = reference::linear_backward::<B>(x, weight, grad, added, wanted, precision);
    LinearGradients { bias, ..products }
}

/// `f(residual + x W + b)` with `x` `[…, in]` and `W` `[in, out]`, if `x` has few rows and products are in f32; else `None`.
fn of_few_rows<B, R: CubeRuntime>(
    activation: Option<Activation>,
    inputs: &LinearInputs<B>,
    precision: Precision,
) -> Option<Queued<R>>
where
    B: Backend<FloatTensorPrimitive = Queued<R>>,
{
    let LinearInputs {
        x,
        weight,
        bias,
        residual,
    } = inputs;
    let (bias, residual) = (bias.as_ref(), residual.as_ref());
    let (inputs, outputs) = (
        *x.shape.iter().next_back()?,
        *weight.shape.iter().next_back()?,
    );
    let rows = x.shape.num_elements() / inputs.max(1);
    let wide = [x, weight].into_iter().chain(bias).chain(residual);
    let is_f32 = precision == Precision::F32 && wide.into_iter().all(|of| of.dtype == DType::F32);
    if !(1..=MOST_ROWS).contains(&rows) || inputs == 0 || outputs == 0 || !is_f32 {
        return None;
    }
    let mut shape = x.shape.clone();
    let last = shape.num_dims() - 1;
    shape[last] = outputs;
    let of_output = [(shape.clone(), DType::F32)];
    let run = move |x: CubeTensor<R>, weight, bias: Option<_>, residual: Option<_>| {
        let x = reshape(into_contiguous(x), [rows, inputs].into());
        let output = empty_device_contiguous_dtype(
            x.client.clone(),
            x.device.clone(),
            [rows, outputs].into(),
            DType::F32,
        );
        super::meter::record_product(&x, &output);
        let epilogue = Epilogue {
            bias: bias.map(into_contiguous),
            residual: residual.map(into_contiguous),
            activation,
        };
        let weight = rows_of(weight);
        let launched = launch_few_rows(x, weight, output.clone(), epilogue);
        debug_assert!(launched.is_ok(), "the sizes and layouts are supported");
        reshape(output, shape.clone())
    };
    let [x, weight] = [x, weight].map(Clone::clone);
    let [output] = match (bias.cloned(), residual.cloned()) {
        (Some(bias), Some(residual)) => queue(
            "linear",
            [x, weight, bias, residual],
            of_output,
            move |[x, weight, bias, residual]| [run(x, weight, Some(bias), Some(residual))],
        ),
        (Some(bias), None) => queue(
            "linear",
            [x, weight, bias],
            of_output,
            move |[x, weight, bias]| [run(x, weight, Some(bias), None)],
        ),
        (None, Some(residual)) => queue(
            "linear",
            [x, weight, residual],
            of_output,
            move |[x, weight, residual]| [run(x, weight, None, Some(residual))],
        ),
        (None, None) => queue("linear", [x, weight], of_output, move |[x, weight]| {
            [run(x, weight, None, None)]
        }),
    };
    Some(output)
}

/// The weight, whose rows the kernel reads one number after the other.
fn rows_of<R: CubeRuntime>(weight: CubeTensor<R>) -> CubeTensor<R> {
    let [_, column] = [0, 1].map(|dim| weight.meta.strides()[dim]);
    match column {
        1 => weight,
        _ => into_contiguous(weight),
    }
}
