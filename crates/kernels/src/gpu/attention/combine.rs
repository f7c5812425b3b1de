//! Combines the outputs of one query over several ranges of keys.

#![allow(unsafe_code)]

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::operands::{VectorStrides, Vectors};
use super::scores::HIDDEN;
use super::task::Task;
use crate::gpu::launch::{ELEMENTWISE_UNITS, address_type, elementwise_cubes};

/// Writes to `output` the outputs `sums` `[splits, batch · heads · q_len, head_dim]`, weighted by their shares of the sums
/// of exponentials, whose logarithms are `log_sums`.
pub(super) fn combine<R: CubeRuntime>(
    task: &Task,
    splits: usize,
    sums: CubeTensor<R>,
    log_sums: CubeTensor<R>,
    output: &CubeTensor<R>,
    strides: VectorStrides,
) {
    let client = output.client.clone();
    let rows = task.batch * task.heads * task.q_len;
    let address = address_type(&[&sums, &log_sums, output]);
    let kind = output.dtype.into();
    // SAFETY: A unit writes one element of one query's output. The sums have `splits · rows` vectors of `head_dim`
    // elements, and as many log-sums.
    unsafe {
        weighted_sum::launch_unchecked::<R>(
            &client,
            elementwise_cubes(rows * task.head_dim),
            CubeDim::new_1d(ELEMENTWISE_UNITS),
            address,
            sums.into_array_arg(),
            log_sums.into_array_arg(),
            output.clone().into_array_arg(),
            strides.launch(),
            splits,
            rows,
            task.heads,
            task.q_len,
            task.head_dim,
            kind,
        );
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn weighted_sum<T: Float>(
    sums: &Array<f32>,
    log_sums: &Array<f32>,
    output: &mut Array<T>,
    of_output: Vectors,
    splits: usize,
    rows: usize,
    heads: usize,
    q_len: usize,
    head_dim: usize,
    #[define(T)] _kind: StorageType,
) {
    if ABSOLUTE_POS < rows * head_dim {
        let row = ABSOLUTE_POS / head_dim;
        let element = ABSOLUTE_POS % head_dim;
        let mut most = f32::new(HIDDEN);
        for split in 0..splits {
            most = max(most, log_sums[split * rows + row]);
        }
        let mut total = 0.0f32;
        let mut sum = 0.0f32;
        for split in 0..splits {
            let log_sum = log_sums[split * rows + row];
            if log_sum != HIDDEN {
                let weight = (log_sum - most).exp();
                total += weight;
                sum += weight * sums[(split * rows + row) * head_dim + element];
            }
        }
        if total != 0.0 {
            sum /= total;
        }
        let lines = of_output.lines(row / (heads * q_len), row / q_len % heads, q_len, 0, q_len);
        output[lines.first + row % q_len * lines.token + element] = T::cast_from(sum);
    }
}
