//! The gradient of the embedding, without atomic additions, whose order would differ between runs.

#![allow(unsafe_code)]

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{ELEMENTWISE_UNITS, address_type, cubes, elementwise_cubes, empty};
use super::launch::{input_or, overwritable};
use super::queue::{Queued, queue};

/// The units of a cube.
const UNITS: usize = ELEMENTWISE_UNITS as usize;

/// The most tokens of a table row that a cube adds side by side.
const MOST_LANES: usize = 16;

/// See [`crate::Backend::embedding_backward`]: two launches. The first sorts the tokens by id: it compares each id with
/// `tokens + vocab_size` others, which takes less time than the rest of a training step does for any vocabulary. The
/// second adds each table row's gradients in an order that depends on sizes only. Ids outside the table are ignored.
///
/// With `added`, only the rows with tokens are read and written if nothing else uses `added`.
pub fn embedding_backward<R: CubeRuntime>(
    table: Queued<R>,
    ids: Queued<R>,
    grad: Queued<R>,
    added: Option<Queued<R>>,
) -> Queued<R> {
    let output = (table.shape.clone(), grad.dtype);
    let (vocab_size, width) = (table.shape[0], table.shape[1]);
    let present = added.is_some();
    let added = input_or(added, &grad);
    let [output] = queue(
        "embedding_backward",
        [ids, grad, added],
        [output],
        move |[ids, grad, added]| {
            let ids = into_contiguous(ids);
            let (order, starts) = sorted(&ids, vocab_size);
            let (sums, accumulate) = match present {
                true => (overwritable(added), true),
                false => (
                    empty(&grad, Shape::new([vocab_size, width]), grad.dtype),
                    false,
                ),
            };
            drop(ids);
            add_up(
                [order, starts],
                grad,
                sums.clone(),
                [vocab_size, width],
                accumulate,
            );
            [sums]
        },
    );
    output
}

/// The tokens in ascending order of their ids and, for equal ids, of their places, `[tokens]`; and the place of the first
/// token of each id in them, followed by that after the last token, `[vocab_size + 1]`.
fn sorted<R: CubeRuntime>(
    ids: &CubeTensor<R>,
    vocab_size: usize,
) -> (CubeTensor<R>, CubeTensor<R>) {
    let tokens = ids.meta.num_elements();
    let order = empty(ids, Shape::new([tokens]), DType::U32);
    let starts = empty(ids, Shape::new([vocab_size + 1]), DType::U32);
    // SAFETY: the tensors are contiguous. The ranks are a permutation of the tokens, and the kernel skips tokens from
    // `tokens` on and ids from `vocab_size + 1` on.
    unsafe {
        sort_kernel::launch_unchecked::<R>(
            &ids.client,
            elementwise_cubes(tokens.max(vocab_size + 1)),
            CubeDim::new_1d(ELEMENTWISE_UNITS),
            address_type(&[ids, &starts]),
            ids.clone().into_array_arg(),
            order.clone().into_array_arg(),
            starts.clone().into_array_arg(),
            tokens,
            vocab_size,
            ids.dtype.into(),
        );
    }
    (order, starts)
}

/// Adds the rows of `grad` to those of their ids.
fn add_up<R: CubeRuntime>(
    [order, starts]: [CubeTensor<R>; 2],
    grad: CubeTensor<R>,
    sums: CubeTensor<R>,
    [vocab_size, width]: [usize; 2],
    accumulate: bool,
) {
    let grad = into_contiguous(grad);
    let tokens = order.meta.num_elements();
    // Tokens side by side shorten the sums of a small vocabulary.
    let lanes = (tokens / vocab_size.max(1) / 4).next_power_of_two();
    let lanes = lanes.clamp(1, MOST_LANES);
    let client = grad.client.clone();
    let blocks = width.div_ceil(UNITS / lanes).max(1);
    let (address, kinds) = (
        address_type(&[&grad, &sums]),
        [grad.dtype.into(), sums.dtype.into()],
    );
    // SAFETY: the tensors are contiguous: `order` of `tokens` places of rows of `grad`, `starts` of `vocab_size + 1` places
    // in `order`, `sums` of `vocab_size × width` elements. The kernel skips rows and columns beyond.
    unsafe {
        add_kernel::launch_unchecked::<R>(
            &client,
            cubes(vocab_size * blocks),
            CubeDim::new_2d((UNITS / lanes) as u32, lanes as u32),
            address,
            order.into_array_arg(),
            starts.into_array_arg(),
            grad.into_array_arg(),
            sums.into_array_arg(),
            vocab_size,
            width,
            blocks,
            accumulate,
            lanes,
            kinds,
        );
    }
}

/// The unit `n` counts the tokens with a lower id than `n`, and those before token `n` in the order. The ids are compared in
/// blocks that the cube reads together.
#[cube(launch_unchecked, address_type = "dynamic")]
fn sort_kernel<I: Int>(
    ids: &Array<I>,
    order: &mut Array<u32>,
    starts: &mut Array<u32>,
    tokens: usize,
    vocab_size: usize,
    #[define(I)] _kind: StorageType,
) {
    let unit = UNIT_POS as usize;
    let place = ABSOLUTE_POS;
    let mut block = SharedMemory::<i32>::new(UNITS);
    let mut own = i32::new(0);
    if place < tokens {
        own = i32::cast_from(ids[place]);
    }
    let row = i32::cast_from(place);
    let mut rank = u32::new(0);
    let mut start = u32::new(0);
    let mut first = 0usize;
    while first < tokens {
        sync_cube();
        if first + unit < tokens {
            block[unit] = i32::cast_from(ids[first + unit]);
        }
        sync_cube();
        let count = select(tokens - first < UNITS, tokens - first, UNITS);
        for n in 0..count {
            let other = block[n];
            let before = other < own || (other == own && first + n < place);
            rank += u32::cast_from(before);
            start += u32::cast_from(other < row);
        }
        first += UNITS;
    }
    if place < tokens {
        order[rank as usize] = u32::cast_from(place);
    }
    if place <= vocab_size {
        starts[place] = start;
    }
}

/// Each cube adds the gradients of a block of columns of a table row. If the cube has several lanes, each adds every
/// `lanes`-th token, and their sums are added in order.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn add_kernel<T: Float, S: Float>(
    order: &Array<u32>,
    starts: &Array<u32>,
    grad: &Array<T>,
    sums: &mut Array<S>,
    vocab_size: usize,
    width: usize,
    blocks: usize,
    #[comptime] accumulate: bool,
    #[comptime] lanes: usize,
    #[define(T, S)] _kinds: [StorageType; 2],
) {
    let row = CUBE_POS / blocks;
    if row >= vocab_size {
        terminate!();
    }
    let x = UNIT_POS_X as usize;
    let columns = comptime!(UNITS / lanes);
    let column = CUBE_POS % blocks * columns + x;
    let lane = UNIT_POS_Y as usize;
    let end = starts[row + 1] as usize;
    let mut at = starts[row] as usize + lane;
    let mut sum = f32::new(0.0);
    if column < width {
        while at < end {
            sum += f32::cast_from(grad[order[at] as usize * width + column]);
            at += lanes;
        }
    }
    if comptime!(lanes > 1) {
        let mut partial = SharedMemory::<f32>::new(UNITS);
        partial[lane * columns + x] = sum;
        sync_cube();
        sum = 0.0;
        for other in 0..lanes {
            sum += partial[other * columns + x];
        }
    }
    if lane == 0 && column < width {
        let to = row * width + column;
        if comptime!(accumulate) {
            if (starts[row] as usize) < end {
                sums[to] = S::cast_from(f32::cast_from(sums[to]) + sum);
            }
        } else {
            sums[to] = S::cast_from(sum);
        }
    }
}
