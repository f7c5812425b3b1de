//! Sums of squares and of elements.

#![allow(unsafe_code)]

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{address_type, cubes, empty, memory_of_sums, sum_over_cube, units_for};
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

/// The sum of the squares: a launch for each tensor, which sums chunks, and one for all these sums, in a fixed order.
fn sum_of_all<R: CubeRuntime>(tensors: Vec<Queued<R>>, kind: DType) -> Queued<R> {
    let of_sum = [(Shape::new([1]), kind)];
    let [sum] = queue_many("sum_of_squares", tensors, of_sum, move |tensors| {
        let counts = tensors.iter().map(|x| chunks(x.meta.num_elements()));
        let count = counts.sum();
        let sums = empty(tensors.first()?, Shape::new([count]), DType::F32);
        let mut at = 0;
        for x in tensors {
            let own = chunks(x.meta.num_elements());
            write_chunk_sums(x, SQUARES_CHUNK, true, &sums, at);
            at += own;
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
    write_chunk_sums(x, all, false, &sum, 0);
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
        write_chunk_sums(x, SQUARES_CHUNK, true, &sums, 0);
        [sums]
    });
    sums
}

/// Writes the sum of each chunk of `length` consecutive elements or their squares to `sums`, from place `at` on.
fn write_chunk_sums<R: CubeRuntime>(
    x: CubeTensor<R>,
    length: usize,
    squares: bool,
    sums: &CubeTensor<R>,
    at: usize,
) {
    let x = into_contiguous(x);
    let elements = x.meta.num_elements();
    let chunks = elements.div_ceil(length.max(1));
    let client = x.client.clone();
    // As in other sums over a cube, several elements by each unit.
    let units = units_for(&client, length / 4);
    let (address, kinds) = (
        address_type(&[&x, sums]),
        [x.dtype.into(), sums.dtype.into()],
    );
    // SAFETY: `x` is contiguous and of `elements` elements, `sums` has `chunks` from `at` on. The kernel skips those beyond.
    unsafe {
        chunk_sums_kernel::launch_unchecked::<R>(
            &client,
            cubes(chunks),
            CubeDim::new_1d(units as u32),
            address,
            x.into_array_arg(),
            sums.clone().into_array_arg(),
            elements,
            length,
            at,
            squares,
            units,
            kinds,
        );
    }
}

/// Each cube sums a chunk.
#[cube(launch_unchecked, address_type = "dynamic")]
fn chunk_sums_kernel<T: Float, S: Float>(
    x: &Array<T>,
    sums: &mut Array<S>,
    elements: usize,
    length: usize,
    first_sum: usize,
    #[comptime] squares: bool,
    #[comptime] units: usize,
    #[define(T, S)] _kinds: [StorageType; 2],
) {
    let first = CUBE_POS * length;
    if first >= elements {
        terminate!();
    }
    let end = select(first + length < elements, first + length, elements);
    let mut memory = SharedMemory::<f32>::new(comptime!(memory_of_sums(1, units)));
    let mut sum = Array::<f32>::new(1usize);
    sum[0] = 0.0;
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
    sum_over_cube(&mut sum, &mut memory, 1usize, units);
    if UNIT_POS == 0 {
        sums[first_sum + CUBE_POS] = S::cast_from(sum[0]);
    }
}
