//! The kernel over the rows of a block of logits: softmax, cross-entropy and the gradient of the logits.

#![allow(unsafe_code)]

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::units;
use crate::HeadLossOptions;
use crate::gpu::launch::{address_type, empty};

/// The elements of a row that a unit reads before it uses any of them, so that it waits for memory once.
const ELEMENTS: usize = 4;

/// The gradient of the logits that a call wants.
#[derive(Clone, Copy)]
pub(super) struct LogitGradients {
    /// Their type. In f32 they overwrite the logits.
    pub(super) kind: DType,
    /// The factor that they are multiplied by before they are rounded.
    pub(super) scale: f64,
}

/// Writes the losses of the rows of `logits` `[rows, columns]` to the elements of `losses` `[tokens]` from `first` on,
/// and returns the gradients of the logits `[rows, columns]` if they are wanted. `targets` is `[tokens]`. Columns from
/// `vocab_size` on are padding, whose gradient is 0.
///
/// With `x`, `L`, `ε`, `z` and `c` as in [`HeadLossOptions`], `p = softmax(x)`, the target `y` and the vocabulary size
/// `V`, the gradient is `(1 - (x/c)²) · ((1 + 2zL) · p - (1 - ε) · [v = y] - ε/V)`, times the scale; without a cap the
/// first factor is 1. Both are 0 if the target is ignored.
pub(super) fn losses<R: CubeRuntime>(
    logits: CubeTensor<R>,
    targets: &CubeTensor<R>,
    losses: &CubeTensor<R>,
    first: usize,
    vocab_size: usize,
    options: HeadLossOptions,
    gradients: Option<LogitGradients>,
) -> Option<CubeTensor<R>> {
    let client = logits.client.clone();
    let [rows, columns] = logits.meta.shape().dims();
    let units = units(&client);
    let output = match gradients {
        Some(LogitGradients { kind, .. }) if kind != DType::F32 => {
            empty(&logits, Shape::new([rows, columns]), kind)
        }
        _ => logits.clone(),
    };
    let in_place = output.dtype == logits.dtype;
    let address = address_type(&[&logits, targets, losses, &output]);
    let kinds = [targets.dtype.into(), output.dtype.into()];
    let strides = [&logits, &output].map(|of| of.meta.strides()[0]);
    // SAFETY: there is a cube for each row, `logits` and `output` have `rows` rows of `columns` elements at these strides,
    // and `targets` and `losses` are contiguous with at least `first + rows` elements. The kernel reads and writes no column
    // from `columns` on, and limits the targets to the vocabulary.
    unsafe {
        row_losses::launch_unchecked::<R>(
            &client,
            CubeCount::Static(rows as u32, 1, 1),
            CubeDim::new_1d(units as u32),
            address,
            logits.into_array_arg(),
            targets.clone().into_array_arg(),
            losses.clone().into_array_arg(),
            match in_place {
                true => output.as_tensor_alias(0).into_array_arg(),
                false => output.clone().into_array_arg(),
            },
            strides[0],
            strides[1],
            columns,
            first,
            vocab_size,
            options.label_smoothing as f32,
            options.z_loss as f32,
            options.soft_cap as f32,
            gradients.map_or(1.0, |gradients| gradients.scale as f32),
            options.soft_cap > 0.0,
            gradients.is_some(),
            units,
            kinds,
        );
    }
    gradients.map(|_| output)
}

/// Each cube computes a row. Its units read every `units`-th element of the row twice: for the softmax's denominator,
/// relative to the largest logit so far, and for the gradients.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn row_losses<I: Int, T: Float>(
    logits: &Array<f32>,
    targets: &Array<I>,
    losses: &mut Array<f32>,
    output: &mut Array<T>,
    logits_row: usize,
    output_row: usize,
    columns: usize,
    first: usize,
    vocab_size: usize,
    smoothing: f32,
    z_loss: f32,
    cap: f32,
    scale: f32,
    #[comptime] is_capped: bool,
    #[comptime] writes_gradients: bool,
    #[comptime] units: usize,
    #[define(I, T)] _kinds: [StorageType; 2],
) {
    let row = CUBE_POS_X as usize;
    let unit = UNIT_POS_X as usize;
    let start = row * logits_row;
    let target = i32::cast_from(targets[first + row]);
    let is_learnt = target >= 0;
    let target = usize::cast_from(max(target, 0));
    let target = min(target, vocab_size - 1);
    // Read before the gradients overwrite it.
    let target_logit = capped(logits[start + target], cap, is_capped);

    // The largest logit, Σ exp(x - largest) and Σ x of this unit's elements.
    let mut largest = f32::min_value();
    let mut sum = 0.0f32;
    let mut total = 0.0f32;
    let end = select(is_learnt, vocab_size, 0);
    let mut values = Array::<f32>::new(ELEMENTS);
    let mut at = unit;
    while at < end {
        let before = largest;
        #[unroll]
        for i in 0..ELEMENTS {
            // Beyond the end, the first element again.
            let column = at + i * units;
            let column = select(column < end, column, at);
            values[i] = capped(logits[start + column], cap, is_capped);
            largest = max(largest, values[i]);
        }
        sum *= (before - largest).exp();
        #[unroll]
        for i in 0..ELEMENTS {
            let is_inside = at + i * units < end;
            sum += select(is_inside, (values[i] - largest).exp(), 0.0f32);
            total += select(is_inside, values[i], 0.0f32);
        }
        at += ELEMENTS * units;
    }

    let mut maxima = SharedMemory::<f32>::new(units);
    let mut sums = SharedMemory::<f32>::new(units);
    let mut totals = SharedMemory::<f32>::new(units);
    maxima[unit] = largest;
    sums[unit] = sum;
    totals[unit] = total;
    let active = RuntimeCell::<usize>::new(units / 2);
    while active.read() > 0 {
        sync_cube();
        if unit < active.read() {
            let other = unit + active.read();
            let largest = max(maxima[unit], maxima[other]);
            let here = sums[unit] * (maxima[unit] - largest).exp();
            let there = sums[other] * (maxima[other] - largest).exp();
            maxima[unit] = largest;
            sums[unit] = here + there;
            totals[unit] += totals[other];
        }
        active.store(active.read() / 2);
    }
    sync_cube();
    let largest = maxima[0];
    let sum = sums[0];
    let log = sum.ln();
    let log_sum = log + largest;

    if unit == 0 {
        // The differences of logits are computed first, since they may be small compared to the logits.
        let mean = totals[0] / f32::cast_from(vocab_size);
        let loss = log
            + (1.0 - smoothing) * (largest - target_logit)
            + smoothing * (largest - mean)
            + z_loss * log_sum * log_sum;
        losses[first + row] = select(is_learnt, loss, 0.0f32);
    }
    if comptime!(writes_gradients) {
        let factor = (1.0 + 2.0 * z_loss * log_sum) / sum;
        let even = smoothing / f32::cast_from(vocab_size);
        let mut at = unit;
        while at < columns {
            #[unroll]
            for i in 0..ELEMENTS {
                let column = at + i * units;
                let column = select(column < columns, column, at);
                values[i] = capped(logits[start + column], cap, is_capped);
            }
            #[unroll]
            for i in 0..ELEMENTS {
                let column = at + i * units;
                let x = values[i];
                let mut grad = (x - largest).exp() * factor - even;
                grad -= select(column == target, 1.0 - smoothing, 0.0f32);
                if comptime!(is_capped) {
                    let ratio = x / cap;
                    grad *= 1.0 - ratio * ratio;
                }
                let has_gradient = is_learnt && column < vocab_size;
                grad = select(has_gradient, grad * scale, 0.0f32);
                if column < columns {
                    output[row * output_row + column] = T::cast_from(grad);
                }
            }
            at += ELEMENTS * units;
        }
    }
}

/// `c · tanh(x / c)`.
#[cube]
fn capped(x: f32, cap: f32, #[comptime] is_capped: bool) -> f32 {
    if comptime!(is_capped) {
        cap * (x / cap).tanh()
    } else {
        x
    }
}
