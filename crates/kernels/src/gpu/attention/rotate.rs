//! Rotation of the queries and keys in the output of a fused projection.

#![allow(unsafe_code)]

use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::RotaryLayout;
use crate::gpu::launch::{ELEMENTWISE_UNITS, address_type, elementwise_cubes, empty};

/// Returns `x`, `[batch, seq, width]`, with the first `rotated` elements of each token rotated in heads of `head_dim`
/// elements by the angles with these cosines and sines, `[seq, pairs]`, or back by them.
pub(super) fn rotate<R: CubeRuntime>(
    [x, cos, sin]: [CubeTensor<R>; 3],
    layout: RotaryLayout,
    rotated: usize,
    head_dim: usize,
    back: bool,
) -> CubeTensor<R> {
    let [x, cos, sin] = [x, cos, sin].map(into_contiguous);
    let client = x.client.clone();
    let shape = x.meta.shape().clone();
    let (seq, width, pairs) = (shape[1], shape[2], cos.meta.shape()[1]);
    let count = shape.num_elements();
    let output = empty(&x, shape, x.dtype);
    let address = address_type(&[&x, &cos, &output]);
    let (kind, of_angles) = (x.dtype.into(), cos.dtype.into());
    // SAFETY: A unit writes one of the `count` elements. It reads elements of the same head, since `2 · pairs` are at most
    // `head_dim`, and angles below `seq` and `pairs`.
    unsafe {
        rotated_elements::launch_unchecked::<R>(
            &client,
            elementwise_cubes(count),
            CubeDim::new_1d(ELEMENTWISE_UNITS),
            address,
            x.into_array_arg(),
            cos.into_array_arg(),
            sin.into_array_arg(),
            output.clone().into_array_arg(),
            count,
            seq,
            width,
            rotated,
            head_dim,
            pairs,
            if back { -1.0 } else { 1.0 },
            layout == RotaryLayout::Interleaved,
            kind,
            of_angles,
        );
    }
    output
}

#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn rotated_elements<T: Float, A: Float>(
    x: &Array<T>,
    cos: &Array<A>,
    sin: &Array<A>,
    output: &mut Array<T>,
    count: usize,
    seq: usize,
    width: usize,
    rotated: usize,
    head_dim: usize,
    pairs: usize,
    direction: f32,
    #[comptime] interleaved: bool,
    #[define(T)] _kind: StorageType,
    #[define(A)] _angles: StorageType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let column = at % width;
        let element = column % head_dim;
        let mut value = x[at];
        if column < rotated && element < 2 * pairs {
            let mut pair = element % pairs;
            let mut second = element >= pairs;
            let mut distance = pairs;
            if comptime!(interleaved) {
                pair = element / 2;
                second = element % 2 == 1;
                distance = 1usize.runtime();
            }
            let angle = at / width % seq * pairs + pair;
            let cosine = f32::cast_from(cos[angle]);
            let sine = f32::cast_from(sin[angle]) * direction;
            let own = f32::cast_from(value);
            if second {
                value = T::cast_from(own * cosine + f32::cast_from(x[at - distance]) * sine);
            } else {
                value = T::cast_from(own * cosine - f32::cast_from(x[at + distance]) * sine);
            }
        }
        output[at] = value;
    }
}
