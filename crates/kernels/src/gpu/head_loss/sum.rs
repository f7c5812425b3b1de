//! The sum of the losses, in an order that is the same on every run: Burn's sum may use atomic additions.

#![allow(unsafe_code)]

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::units;

/// The sum of a contiguous `x` `[n]` in f32, `[1]`.
pub(super) fn sum<R: CubeRuntime>(x: CubeTensor<R>) -> CubeTensor<R> {
    let (client, device) = (x.client.clone(), x.device.clone());
    let output = empty_device_dtype(client.clone(), device, Shape::new([1]), DType::F32);
    let units = units(&client);
    let len = x.meta.num_elements();
    // SAFETY: the kernel reads the first `len` elements of `x`, which is their number, and writes the output's element.
    unsafe {
        sum_in_a_cube::launch_unchecked::<R>(
            &client,
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(units as u32),
            x.required_address_type(),
            x.into_array_arg(),
            output.clone().into_array_arg(),
            len,
            units,
        );
    }
    output
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn sum_in_a_cube(x: &Array<f32>, output: &mut Array<f32>, len: usize, #[comptime] units: usize) {
    let unit = UNIT_POS_X as usize;
    let mut sum = 0.0f32;
    let mut at = unit;
    while at < len {
        sum += x[at];
        at += units;
    }
    let mut sums = SharedMemory::<f32>::new(units);
    sums[unit] = sum;
    let active = RuntimeCell::<usize>::new(units / 2);
    while active.read() > 0 {
        sync_cube();
        if unit < active.read() {
            sums[unit] += sums[unit + active.read()];
        }
        active.store(active.read() / 2);
    }
    if unit == 0 {
        output[0] = sums[0];
    }
}
