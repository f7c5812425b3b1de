//! Sums of squares and of elements.

#![allow(unsafe_code)]

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{
    address_type, cubes, empty, memory_of_sums, most_tensors, sum_over_cube, units_for,
};
use super::queue::{Queued, queue, queue_many};
use crate::SQUARES_CHUNK;

/// See [`crate::Backend::sum_of_squares`].
pub fn sum_of_squares<R: CubeRuntime>(x: Queued<R>) -> Queued<R> {
    let kind = x.dtype;
    sum_of_all(vec![x], kind)
}

/// See [`crate::Backend::total_sum_of_squares`].
pub fn total_sum_of_squares<R: CubeRuntime>(tensors: Vec<Queued<R>>) -> Option<Queued<R>> {
    let kind = tensors.first()?.dtype;
    Some(sum_of_all(tensors, kind))
}

/// The sum of the squares: the sums of chunks, of several tensors in a launch, and one launch for the sum of these, in a
/// fixed order.
fn sum_of_all<R: CubeRuntime>(tensors: Vec<Queued<R>>, kind: DType) -> Queued<R> {
    let of_sum = [(Shape::new([1]), kind)];
    let [sum] = queue_many("sum_of_squares", tensors, of_sum, move |tensors| {
        let counts = tensors.iter().map(|x| chunks(x.meta.num_elements()));
        let count = counts.sum();
        let first = tensors.first()?;
        let most = most_tensors(&first.client, 1);
        let sums = empty(first, Shape::new([count]), DType::F32);
        let mut at = 0;
        let mut rest = tensors;
        while !rest.is_empty() {
            let kind = rest[0].dtype;
            let alike = rest.iter().take_while(|x| x.dtype == kind).count();
            let others = rest.split_off(alike.min(most));
            at += write_chunk_sums(rest, SQUARES_CHUNK, true, &sums, at);
            rest = others;
        }
        Some([sum_to(sums, kind)])
    });
    sum
}

/// The sum of the elements, `[1]`, in a fixed order: Burn's may use atomic additions.
pub(super) fn sum<R: CubeRuntime>(x: CubeTensor<R>) -> CubeTensor<R> {
    let kind = x.dtype;
    sum_to(x, kind)
}

/// [`sum`] in the type `kind`.
fn sum_to<R: CubeRuntime>(x: CubeTensor<R>, kind: DType) -> CubeTensor<R> {
    let sum = empty(&x, Shape::new([1]), kind);
    let all = x.meta.num_elements();
    write_chunk_sums(vec![x], all, false, &sum, 0);
    sum
}

/// The number of chunks of so many elements.
fn chunks(elements: usize) -> usize {
    elements.div_ceil(SQUARES_CHUNK)
}

/// See [`crate::Backend::chunk_sums_of_squares`]: one launch.
pub fn chunk_sums_of_squares<R: CubeRuntime>(x: Queued<R>) -> Queued<R> {
    let kind = x.dtype;
    let shape = Shape::new([chunks(x.shape.num_elements())]);
    let of_sums = [(shape.clone(), kind)];
    let [sums] = queue("chunk_sums_of_squares", [x], of_sums, move |[x]| {
        let sums = empty(&x, shape.clone(), kind);
        write_chunk_sums(vec![x], SQUARES_CHUNK, true, &sums, 0);
        [sums]
    });
    sums
}

/// Writes the sum of each chunk of `length` consecutive elements or their squares of each tensor to `sums`, from place `at`
/// on: one launch. The tensors are of one type. Returns the number of chunks.
fn write_chunk_sums<R: CubeRuntime>(
    tensors: Vec<CubeTensor<R>>,
    length: usize,
    squares: bool,
    sums: &CubeTensor<R>,
    at: usize,
) -> usize {
    let length = length.max(1);
    let tensors: Vec<_> = tensors.into_iter().map(into_contiguous).collect();
    let of_each = tensors
        .iter()
        .map(|x| x.meta.num_elements().div_ceil(length));
    let chunks = of_each.sum();
    let client = sums.client.clone();
    // As in other sums over a cube, several elements by each unit.
    let units = units_for(&client, length / 4);
    let all: Vec<_> = tensors.iter().chain([sums]).collect();
    let address = address_type(&all);
    let kinds = [all[0].dtype.into(), sums.dtype.into()];
    let mut args = SequenceArg::new();
    for x in tensors {
        args.push(x.into_array_arg());
    }
    // SAFETY: the tensors are contiguous, and `sums` has `chunks` elements from `at` on. The kernel skips cubes beyond.
    unsafe {
        chunk_sums_kernel::launch_unchecked::<R>(
            &client,
            cubes(chunks),
            CubeDim::new_1d(units as u32),
            address,
            args,
            sums.clone().into_array_arg(),
            length,
            at,
            squares,
            units,
            kinds,
        );
    }
    chunks
}

/// Each cube sums a chunk. The chunks of the tensors follow each other.
#[cube(launch_unchecked, address_type = "dynamic")]
fn chunk_sums_kernel<T: Float, S: Float>(
    tensors: &Sequence<Array<T>>,
    sums: &mut Array<S>,
    length: usize,
    first_sum: usize,
    #[comptime] squares: bool,
    #[comptime] units: usize,
    #[define(T, S)] _kinds: [StorageType; 2],
) {
    let mut memory = SharedMemory::<f32>::new(comptime!(memory_of_sums(1, units)));
    let mut sum = Array::<f32>::new(1usize);
    sum[0] = 0.0;
    let mut chunks = 0;
    #[unroll]
    for n in 0..tensors.len() {
        let x = tensors.index(n);
        let elements = x.len();
        let own = elements.div_ceil(length);
        if CUBE_POS >= chunks && CUBE_POS < chunks + own {
            let first = (CUBE_POS - chunks) * length;
            let end = select(first + length < elements, first + length, elements);
            let mut at = first + UNIT_POS as usize;
            while at < end {
                let value = f32::cast_from(x[at]);
                if comptime!(squares) {
                    sum[0] += value * value;
                } else {
                    sum[0] += value;
                }
                at += units;
            }
        }
        chunks += own;
    }
    sum_over_cube(&mut sum, &mut memory, 1usize, units);
    if UNIT_POS == 0 && CUBE_POS < chunks {
        sums[first_sum + CUBE_POS] = S::cast_from(sum[0]);
    }
}
