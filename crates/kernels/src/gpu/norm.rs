//! Normalization over the last dimension and its gradients.

#![allow(unsafe_code)]

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::columns::{sum_ranges, sum_ranges_of_pair};
use super::launch::{
    address_type, cubes, empty, input_or, memory_of_sums, operand, rows_of, sum_over_cube,
    units_for,
};
use super::queue::{Queued, queue};
use crate::Normalization;

/// The most ranges of rows whose gradients of gain and bias are summed by a cube each. They keep a large GPU busy, and
/// their sums are still few.
const RANGES: usize = 512;

/// A normalization as the kernels compute it: `(x - m) / d`, with `m` the mean of the row if it is centred and 0
/// otherwise. `d` is `√(s + ε)` if ε is inside the root and `√s + ε` otherwise, with `s` the mean of `(x - m)²`.
#[derive(Clone, Copy)]
struct Variant {
    centred: bool,
    inside: bool,
    epsilon: f32,
}

impl From<Normalization> for Variant {
    fn from(kind: Normalization) -> Self {
        let (centred, inside, epsilon) = match kind {
            Normalization::Layer { epsilon } => (true, true, epsilon),
            Normalization::Rms { epsilon } => (false, true, epsilon),
            Normalization::UnitRms { epsilon } => (false, false, epsilon),
        };
        Self {
            centred,
            inside,
            epsilon: epsilon as f32,
        }
    }
}

/// See [`crate::Backend::normalize`]: one launch.
pub fn normalize<R: CubeRuntime>(
    kind: Normalization,
    x: Queued<R>,
    gain: Option<Queued<R>>,
    bias: Option<Queued<R>>,
) -> Queued<R> {
    let output = (x.shape.clone(), x.dtype);
    let present = [gain.is_some(), bias.is_some()];
    let (gain, bias) = (input_or(gain, &x), input_or(bias, &x));
    let [y] = queue(
        "normalize",
        [x, gain, bias],
        [output],
        move |[x, gain, bias]| {
            let gain = present[0].then_some(gain);
            let bias = present[1].then_some(bias);
            [forward(kind.into(), x, gain, bias)]
        },
    );
    y
}

fn forward<R: CubeRuntime>(
    variant: Variant,
    x: CubeTensor<R>,
    gain: Option<CubeTensor<R>>,
    bias: Option<CubeTensor<R>>,
) -> CubeTensor<R> {
    let x = into_contiguous(x);
    let (gain, bias) = (gain.map(into_contiguous), bias.map(into_contiguous));
    let output = empty(&x, x.meta.shape().clone(), x.dtype);
    let [rows, width] = rows_of(x.meta.shape());
    let client = x.client.clone();
    let units = units_for(&client, width);
    let (address, kind) = (address_type(&[&x]), x.dtype.into());
    // SAFETY: the tensors are contiguous, `x` and `output` of `rows × width` elements, `gain` and `bias` of `width`. The
    // kernel skips rows and columns beyond.
    unsafe {
        normalize_kernel::launch_unchecked::<R>(
            &client,
            cubes(rows),
            CubeDim::new_1d(units as u32),
            address,
            x.into_array_arg(),
            operand(gain),
            operand(bias),
            output.clone().into_array_arg(),
            rows,
            width,
            variant.epsilon,
            variant.centred,
            variant.inside,
            units,
            kind,
        );
    }
    output
}

/// See [`crate::Backend::normalize_backward`]: the gradients of `x`, the gain and the bias. Without a gain or a bias its
/// gradient has one unspecified element. Two launches, one without gain and bias.
pub fn normalize_backward<R: CubeRuntime>(
    kind: Normalization,
    x: Queued<R>,
    gain: Option<Queued<R>>,
    bias: bool,
    grad: Queued<R>,
    added: Option<Queued<R>>,
) -> (Queued<R>, Option<Queued<R>>, Option<Queued<R>>) {
    let [_, width] = rows_of(&x.shape);
    let present = [gain.is_some(), added.is_some()];
    // The place of a gradient that is not computed.
    let sums = |wanted| (Shape::new([if wanted { width } else { 1 }]), x.dtype);
    let outputs = [(x.shape.clone(), x.dtype), sums(present[0]), sums(bias)];
    let (gain, added) = (input_or(gain, &x), input_or(added, &grad));
    let [x, gain, bias_grad] = queue(
        "normalize_backward",
        [x, gain, grad, added],
        outputs,
        move |[x, gain, grad, added]| {
            let gain = present[0].then_some(gain);
            let added = present[1].then_some(added);
            backward(kind.into(), x, gain, bias, grad, added)
        },
    );
    (x, present[0].then_some(gain), bias.then_some(bias_grad))
}

fn backward<R: CubeRuntime>(
    variant: Variant,
    x: CubeTensor<R>,
    gain: Option<CubeTensor<R>>,
    bias: bool,
    grad: CubeTensor<R>,
    added: Option<CubeTensor<R>>,
) -> [CubeTensor<R>; 3] {
    let (x, grad) = (into_contiguous(x), into_contiguous(grad));
    let (gain, added) = (gain.map(into_contiguous), added.map(into_contiguous));
    let output = empty(&x, x.meta.shape().clone(), x.dtype);
    let [rows, width] = rows_of(x.meta.shape());
    let client = x.client.clone();
    let units = units_for(&client, width);
    let sums = usize::from(gain.is_some()) + usize::from(bias);
    let most = if sums == 0 { 1 << 15 } else { RANGES };
    let ranges = rows.clamp(1, most);
    let partial = (sums > 0).then(|| empty(&x, Shape::new([ranges, sums * width]), DType::F32));
    let (address, kind) = (address_type(&[&x]), x.dtype);
    let with_gain = gain.is_some();
    // SAFETY: the tensors are contiguous: `x`, `grad`, `added` and `output` of `rows × width` elements, `gain` of `width`,
    // and `partial` of `ranges × sums × width`. There are `ranges` cubes, and the kernel skips rows and columns beyond.
    unsafe {
        normalize_backward_kernel::launch_unchecked::<R>(
            &client,
            CubeCount::Static(ranges as u32, 1, 1),
            CubeDim::new_1d(units as u32),
            address,
            x.clone().into_array_arg(),
            grad.into_array_arg(),
            operand(gain),
            operand(added),
            output.clone().into_array_arg(),
            operand(partial.clone()),
            rows,
            width,
            variant.epsilon,
            variant.centred,
            variant.inside,
            with_gain,
            bias,
            width.div_ceil(units),
            units,
            kind.into(),
        );
    }
    let missing = || empty(&x, Shape::new([1]), kind);
    let [gain, bias] = match (partial, with_gain, bias) {
        (Some(partial), true, true) => sum_ranges_of_pair(partial, [ranges, width], kind),
        (Some(partial), true, false) => [sum_ranges(partial, [ranges, width], kind), missing()],
        (Some(partial), false, _) => [missing(), sum_ranges(partial, [ranges, width], kind)],
        (None, ..) => [missing(), missing()],
    };
    [output, gain, bias]
}

/// The mean of a row that starts at `first`.
#[cube]
fn row_mean<T: Float>(
    x: &Array<T>,
    first: usize,
    width: usize,
    memory: &mut SharedMemory<f32>,
    #[comptime] units: usize,
) -> f32 {
    let mut sums = Array::<f32>::new(1usize);
    sums[0] = 0.0;
    let mut column = UNIT_POS as usize;
    while column < width {
        sums[0] += f32::cast_from(x[first + column]);
        column += units;
    }
    sum_over_cube(&mut sums, memory, 1usize, units);
    sums[0] / f32::cast_from(width)
}

/// Each cube normalizes a row.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn normalize_kernel<T: Float>(
    x: &Array<T>,
    gain: &ComptimeOption<Array<T>>,
    bias: &ComptimeOption<Array<T>>,
    output: &mut Array<T>,
    rows: usize,
    width: usize,
    epsilon: f32,
    #[comptime] centred: bool,
    #[comptime] inside: bool,
    #[comptime] units: usize,
    #[define(T)] _kind: StorageType,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let first = row * width;
    let mut memory = SharedMemory::<f32>::new(comptime!(memory_of_sums(1, units)));
    let mut mean = f32::new(0.0);
    if centred {
        mean = row_mean(x, first, width, &mut memory, units);
    }
    let mut sums = Array::<f32>::new(1usize);
    sums[0] = 0.0;
    let mut column = UNIT_POS as usize;
    while column < width {
        let value = f32::cast_from(x[first + column]) - mean;
        sums[0] += value * value;
        column += units;
    }
    sum_over_cube(&mut sums, &mut memory, 1usize, units);
    let square = sums[0] / f32::cast_from(width);
    let divisor = if comptime!(inside) {
        (square + epsilon).sqrt()
    } else {
        square.sqrt() + epsilon
    };
    let mut column = UNIT_POS as usize;
    while column < width {
        let mut value = (f32::cast_from(x[first + column]) - mean) / divisor;
        #[comptime]
        if let ComptimeOption::Some(gain) = gain {
            value *= f32::cast_from(gain[column]);
        }
        #[comptime]
        if let ComptimeOption::Some(bias) = bias {
            value += f32::cast_from(bias[column]);
        }
        output[first + column] = T::cast_from(value);
        column += units;
    }
}

/// Each cube computes the gradients of a range of rows, and sums those of gain and bias over them. With `y` the normalized
/// row, `d` its divisor and `g` the gradient of the output times the gain: `dx = (g - y · mean(g y) · s) / d`, minus
/// `mean(g) / d` if the row is centred. `s` is 1 if ε is inside the root and `d / (d - ε)` otherwise.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn normalize_backward_kernel<T: Float>(
    x: &Array<T>,
    grad: &Array<T>,
    gain: &ComptimeOption<Array<T>>,
    added: &ComptimeOption<Array<T>>,
    output: &mut Array<T>,
    partial: &mut ComptimeOption<Array<f32>>,
    rows: usize,
    width: usize,
    epsilon: f32,
    #[comptime] centred: bool,
    #[comptime] inside: bool,
    #[comptime] with_gain: bool,
    #[comptime] with_bias: bool,
    #[comptime] per_unit: usize,
    #[comptime] units: usize,
    #[define(T)] _kind: StorageType,
) {
    let unit = UNIT_POS as usize;
    let range = CUBE_POS_X as usize;
    let ranges = CUBE_COUNT_X as usize;
    // The first ranges have one row more.
    let (each, more) = (rows / ranges, rows % ranges);
    let start = range * each + select(range < more, range, more);
    let end = start + each + select(range < more, 1usize, 0usize);
    let count = f32::cast_from(width);
    let mut memory = SharedMemory::<f32>::new(comptime!(memory_of_sums(3, units)));
    // The sums of this unit's columns.
    let mut gain_sums = Array::<f32>::new(comptime!(if with_gain { per_unit } else { 1 }));
    let mut bias_sums = Array::<f32>::new(comptime!(if with_bias { per_unit } else { 1 }));
    #[unroll(per_unit <= 16)]
    for n in 0..per_unit {
        if comptime!(with_gain) {
            gain_sums[n] = 0.0;
        }
        if comptime!(with_bias) {
            bias_sums[n] = 0.0;
        }
    }
    for row in start..end {
        let first = row * width;
        let mut mean = f32::new(0.0);
        if centred {
            mean = row_mean(x, first, width, &mut memory, units);
        }
        // Of squares, of products with the gradient, and of the gradient.
        let mut sums = Array::<f32>::new(3usize);
        sums[0] = 0.0;
        sums[1] = 0.0;
        sums[2] = 0.0;
        let mut column = unit;
        while column < width {
            let value = f32::cast_from(x[first + column]) - mean;
            let mut g = f32::cast_from(grad[first + column]);
            #[comptime]
            if let ComptimeOption::Some(gain) = gain {
                g *= f32::cast_from(gain[column]);
            }
            sums[0] += value * value;
            sums[1] += value * g;
            sums[2] += g;
            column += units;
        }
        sum_over_cube(&mut sums, &mut memory, 3usize, units);
        let square = sums[0] / count;
        let mut divisor = (square + epsilon).sqrt();
        let mut along = sums[1] / divisor / count;
        if comptime!(!inside) {
            // The root has no gradient for a row of zeros; the limit makes it zero instead of infinite.
            let root = max(square.sqrt(), f32::new(1e-30));
            divisor = root + epsilon;
            along = sums[1] / divisor / count * (divisor / root);
        }
        let mut shift = f32::new(0.0);
        if centred {
            shift = sums[2] / count;
        }
        #[unroll(per_unit <= 16)]
        for n in 0..per_unit {
            let column = n * units + unit;
            if column < width {
                let y = (f32::cast_from(x[first + column]) - mean) / divisor;
                let dy = f32::cast_from(grad[first + column]);
                let mut g = dy;
                #[comptime]
                if let ComptimeOption::Some(gain) = gain {
                    g *= f32::cast_from(gain[column]);
                }
                let mut dx = (g - shift - y * along) / divisor;
                #[comptime]
                if let ComptimeOption::Some(added) = added {
                    dx += f32::cast_from(added[first + column]);
                }
                output[first + column] = T::cast_from(dx);
                if comptime!(with_gain) {
                    gain_sums[n] += dy * y;
                }
                if comptime!(with_bias) {
                    bias_sums[n] += dy;
                }
            }
        }
    }
    #[comptime]
    if let ComptimeOption::Some(partial) = partial {
        let sums = comptime!(with_gain as usize + with_bias as usize);
        let first = range * sums * width;
        #[unroll(per_unit <= 16)]
        for n in 0..per_unit {
            let column = n * units + unit;
            if column < width {
                if comptime!(with_gain) {
                    partial[first + column] = gain_sums[n];
                }
                if comptime!(with_bias) {
                    partial[first + (sums - 1) * width + column] = bias_sums[n];
                }
            }
        }
    }
}
