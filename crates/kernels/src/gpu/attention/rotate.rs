//! The queries, keys and values in the output of a fused projection: rotation, and writes to a cache.

#![allow(unsafe_code)]

use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::gpu::launch::{
    ELEMENTWISE_UNITS, address_type, elementwise_cubes, empty, operand, overwritable,
};
use crate::{RotaryLayout, SelfAttention};

/// Rotation angles on the device.
pub(super) struct Angles<R: CubeRuntime> {
    pub layout: RotaryLayout,
    /// `[seq, pairs]`.
    pub cos: CubeTensor<R>,
    /// `[seq, pairs]`.
    pub sin: CubeTensor<R>,
}

/// Returns `qkv` `[batch, seq, width]` with rotated queries and keys, or rotated back.
pub(super) fn rotate<R: CubeRuntime>(
    qkv: CubeTensor<R>,
    angles: Angles<R>,
    config: SelfAttention,
    back: bool,
) -> CubeTensor<R> {
    let output = empty(&qkv, qkv.meta.shape().clone(), qkv.dtype);
    launch(qkv, Some(angles), Some(&output), None, config, back);
    output
}

/// Writes the keys and values of `qkv` `[batch, seq, width]` after the first `len` tokens of a cache, in place if nothing
/// else uses it. Returns a tensor like `qkv` that has the queries, and the cache. With angles, queries and keys are
/// rotated.
pub(super) fn append<R: CubeRuntime>(
    qkv: CubeTensor<R>,
    angles: Option<Angles<R>>,
    cache: [CubeTensor<R>; 2],
    len: usize,
    config: SelfAttention,
) -> (CubeTensor<R>, [CubeTensor<R>; 2]) {
    let cache = cache.map(overwritable);
    let qkv = into_contiguous(qkv);
    let rotated = angles
        .is_some()
        .then(|| empty(&qkv, qkv.meta.shape().clone(), qkv.dtype));
    let to = Some((&cache, len));
    launch(qkv.clone(), angles, rotated.as_ref(), to, config, false);
    (rotated.unwrap_or(qkv), cache)
}

/// Copies the elements of `qkv`: those of keys and values to the cache if there is one, the others to the output. There is
/// one of them at least.
fn launch<R: CubeRuntime>(
    qkv: CubeTensor<R>,
    angles: Option<Angles<R>>,
    output: Option<&CubeTensor<R>>,
    cache: Option<(&[CubeTensor<R>; 2], usize)>,
    config: SelfAttention,
    back: bool,
) {
    let qkv = into_contiguous(qkv);
    let client = qkv.client.clone();
    let [batch, seq, width] = qkv.meta.shape().dims();
    let queries = config.heads * config.head_dim;
    // Queries without an output are where they are.
    let first = if output.is_some() { 0 } else { queries };
    let count = batch * seq * (width - first);
    let rotated = (config.heads + config.kv_heads) * config.head_dim;
    let (layout, pairs) = angles.as_ref().map_or((RotaryLayout::HalfSplit, 0), |of| {
        (of.layout, of.cos.meta.shape()[1])
    });
    let [cos, sin] = match angles {
        Some(of) => [of.cos, of.sin].map(|of| Some(into_contiguous(of))),
        None => [None, None],
    };
    let ([keys, values], len) = match cache {
        Some((cache, len)) => (cache.each_ref().map(Some), len),
        None => ([None, None], 0),
    };
    let capacity = keys.map_or(0, |keys| keys.meta.shape()[2]);
    let all = [Some(&qkv), output, keys].into_iter().flatten();
    let address = address_type(&all.collect::<Vec<_>>());
    let of_angles = cos.as_ref().map_or(qkv.dtype, |cos| cos.dtype);
    let kinds = [qkv.dtype.into(), of_angles.into()];
    // SAFETY: All tensors are contiguous. A unit copies one of the elements of `qkv`, to the same place in the output or to
    // tokens from `len` on of the cache, which `Task::fused` checks to be below its capacity. To rotate, it reads elements
    // of the same head, since `2 · pairs` are at most `head_dim`, and angles below `seq` and `pairs`.
    unsafe {
        copied_elements::launch_unchecked::<R>(
            &client,
            elementwise_cubes(count),
            CubeDim::new_1d(ELEMENTWISE_UNITS),
            address,
            qkv.into_array_arg(),
            operand(cos),
            operand(sin),
            operand(output.cloned()),
            operand(keys.cloned()),
            operand(values.cloned()),
            count,
            seq,
            width,
            first,
            rotated,
            queries,
            config.head_dim,
            pairs,
            capacity,
            len,
            if back { -1.0 } else { 1.0 },
            layout == RotaryLayout::Interleaved,
            kinds,
        );
    }
}

/// Each unit copies the element of a token's column, from column `first` on.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
#[allow(
    clippy::collapsible_if,
    reason = "outer conditions hold at compile time"
)]
fn copied_elements<T: Float, A: Float>(
    x: &Array<T>,
    cos: &ComptimeOption<Array<A>>,
    sin: &ComptimeOption<Array<A>>,
    output: &mut ComptimeOption<Array<T>>,
    keys: &mut ComptimeOption<Array<T>>,
    values: &mut ComptimeOption<Array<T>>,
    count: usize,
    seq: usize,
    width: usize,
    first: usize,
    rotated: usize,
    queries: usize,
    head_dim: usize,
    pairs: usize,
    capacity: usize,
    len: usize,
    direction: f32,
    #[comptime] interleaved: bool,
    #[define(T, A)] _kinds: [StorageType; 2],
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let row = ABSOLUTE_POS / (width - first);
    let column = first + ABSOLUTE_POS % (width - first);
    let at = row * width + column;
    let element = column % head_dim;
    let mut value = x[at];
    #[comptime]
    if let (ComptimeOption::Some(cos), ComptimeOption::Some(sin)) = (cos, sin) {
        if column < rotated && element < 2 * pairs {
            let mut pair = element % pairs;
            let mut second = element >= pairs;
            let mut distance = pairs;
            if comptime!(interleaved) {
                pair = element / 2;
                second = element % 2 == 1;
                distance = 1usize.runtime();
            }
            let angle = row % seq * pairs + pair;
            let cosine = f32::cast_from(cos[angle]);
            let sine = f32::cast_from(sin[angle]) * direction;
            let own = f32::cast_from(value);
            if second {
                value = T::cast_from(own * cosine + f32::cast_from(x[at - distance]) * sine);
            } else {
                value = T::cast_from(own * cosine - f32::cast_from(x[at + distance]) * sine);
            }
        }
    }
    let mut copied = false;
    #[comptime]
    if let (ComptimeOption::Some(keys), ComptimeOption::Some(values)) = (keys, values) {
        if column >= queries {
            let of_each = (width - queries) / 2;
            let of = (column - queries) % of_each;
            let head = row / seq * (of_each / head_dim) + of / head_dim;
            let to = (head * capacity + len + row % seq) * head_dim + element;
            if column - queries < of_each {
                keys[to] = value;
            } else {
                values[to] = value;
            }
            copied = true;
        }
    }
    #[comptime]
    if let ComptimeOption::Some(output) = output {
        if !copied {
            output[at] = value;
        }
    }
}
