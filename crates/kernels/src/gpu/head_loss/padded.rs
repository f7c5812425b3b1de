//! The copy of the head's weight that its matrix products read.

#![allow(unsafe_code)]

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::gpu::launch::{ELEMENTWISE_UNITS, address_type, elementwise_cubes, empty};

/// A matrix `[n, d]` in f32 as `[rows, d]` in the type `kind`, with rows of zeros after its own. The matrix itself if
/// neither differs.
pub(super) fn padded<R: CubeRuntime>(
    matrix: CubeTensor<R>,
    rows: usize,
    kind: DType,
) -> CubeTensor<R> {
    let [own, width] = matrix.meta.shape().dims();
    if own == rows && kind == matrix.dtype {
        return matrix;
    }
    let matrix = into_contiguous(matrix);
    let output = empty(&matrix, Shape::new([rows, width]), kind);
    let len = rows * width;
    let client = matrix.client.clone();
    // SAFETY: both are contiguous, and the kernel reads elements below `own * width` and writes elements below `len`, which
    // are their sizes.
    unsafe {
        pad::launch_unchecked::<R>(
            &client,
            elementwise_cubes(len),
            CubeDim::new_1d(ELEMENTWISE_UNITS),
            address_type(&[&matrix, &output]),
            matrix.into_array_arg(),
            output.clone().into_array_arg(),
            own * width,
            len,
            kind.into(),
        );
    }
    output
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn pad<T: Float>(
    matrix: &Array<f32>,
    output: &mut Array<T>,
    own: usize,
    len: usize,
    #[define(T)] _kind: StorageType,
) {
    let at = ABSOLUTE_POS;
    if at < own {
        output[at] = T::cast_from(matrix[at]);
    } else if at < len {
        output[at] = T::cast_from(0.0f32);
    }
}
