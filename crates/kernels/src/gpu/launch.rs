//! Launches of own kernels: outputs, sizes of cubes and optional operands; and sums within a cube, of all its units or of
//! those of a column.

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::ComputeClient;
use cubecl::prelude::*;

use super::queue::Queued;

/// The most cubes in a dimension of a launch on every runtime.
const MOST_CUBES: usize = 65_535;

/// The units that add up the others' values in [`sum_over_cube`], and the smallest cube that may call it.
const GROUPS: usize = 16;

/// The most values of a unit that [`sum_over_cube`] adds up at once.
const MOST_SUMS: usize = 3;

/// The size of an elementwise kernel's cube, which every runtime supports.
pub(super) const ELEMENTWISE_UNITS: u32 = 256;

/// A new contiguous tensor with unspecified elements, on the device of `like`.
pub(super) fn empty<R: CubeRuntime>(
    like: &CubeTensor<R>,
    shape: Shape,
    kind: DType,
) -> CubeTensor<R> {
    let handle = like.client.empty(shape.num_elements() * kind.size());
    CubeTensor::new_contiguous(
        like.client.clone(),
        like.device.clone(),
        shape,
        handle,
        kind,
    )
}

/// A contiguous tensor with the elements of `tensor` that may be overwritten: itself if nothing else uses it, otherwise
/// a copy.
pub(super) fn overwritable<R: CubeRuntime>(tensor: CubeTensor<R>) -> CubeTensor<R> {
    let tensor = into_contiguous(tensor);
    match tensor.can_mut() {
        true => tensor,
        false => tensor.copy(),
    }
}

/// The tensor, copied if the elements of its last dimension are not consecutive.
pub(super) fn with_contiguous_rows<R: CubeRuntime>(tensor: CubeTensor<R>) -> CubeTensor<R> {
    match tensor.meta.strides().last() {
        Some(1) => tensor,
        _ => into_contiguous(tensor),
    }
}

/// The rows and the width of a tensor of any shape.
pub(super) fn rows_of(shape: &Shape) -> [usize; 2] {
    let width = shape.iter().next_back().copied().unwrap_or(1);
    [shape.num_elements() / width.max(1), width]
}

/// The type of the indices into the largest of the tensors.
pub(super) fn address_type<R: CubeRuntime>(tensors: &[&CubeTensor<R>]) -> AddressType {
    let types = tensors.iter().map(|tensor| tensor.required_address_type());
    types.max().unwrap_or_default()
}

/// At least `count` cubes, numbered by `CUBE_POS`. A kernel skips those from `count` on.
pub(super) fn cubes(count: usize) -> CubeCount {
    let x = count.clamp(1, MOST_CUBES);
    CubeCount::Static(x as u32, count.div_ceil(x).max(1) as u32, 1)
}

/// The cubes of a kernel whose units, numbered by `ABSOLUTE_POS`, process an element each. A kernel skips units from
/// `elements` on.
pub(super) fn elementwise_cubes(elements: usize) -> CubeCount {
    cubes(elements.div_ceil(ELEMENTWISE_UNITS as usize))
}

/// The units of a cube that processes `width` elements, about four by each unit: a power of two, at least [`GROUPS`].
pub(super) fn units_for<R: CubeRuntime>(client: &ComputeClient<R>, width: usize) -> usize {
    let most = client.properties().hardware.max_units_per_cube.min(1024);
    let most = 1 << most.max(GROUPS as u32).ilog2();
    (width.next_power_of_two() / 4).clamp(GROUPS, most)
}

/// The most tensors that a launch takes together, if it has `each` of each: the device's limit of bindings has room for two
/// others.
pub(super) fn most_tensors<R: CubeRuntime>(client: &ComputeClient<R>, each: usize) -> usize {
    let bindings = client.properties().hardware.max_bindings as usize;
    (bindings.saturating_sub(2) / each).clamp(1, 16)
}

/// An optional input of a queued operation, whose number of inputs is fixed: `other` takes the place of a missing one.
pub(super) fn input_or<R: CubeRuntime>(input: Option<Queued<R>>, other: &Queued<R>) -> Queued<R> {
    input.unwrap_or_else(|| other.clone())
}

/// An optional operand of a kernel.
pub(super) fn operand<R: CubeRuntime, T: CubePrimitive>(
    tensor: Option<CubeTensor<R>>,
) -> ComptimeOptionArgs<Array<T>, R> {
    match tensor {
        Some(tensor) => ComptimeOptionArgs::Some(tensor.into_array_arg()),
        None => ComptimeOptionArgs::None,
    }
}

/// The memory that [`sum_over_cube`] needs for up to `count` sums.
pub(super) const fn memory_of_sums(count: usize, units: usize) -> usize {
    MOST_SUMS * GROUPS + count * units
}

/// Replaces each unit's `count` values, up to [`MOST_SUMS`], by their sums over the cube's units, in a fixed order. The
/// memory holds the sums of groups, which the next call overwrites after its first barrier only, and then the values.
#[cube]
pub(super) fn sum_over_cube(
    values: &mut Array<f32>,
    memory: &mut SharedMemory<f32>,
    #[comptime] count: usize,
    #[comptime] units: usize,
) {
    let unit = UNIT_POS as usize;
    let values_at = comptime!(MOST_SUMS * GROUPS);
    #[unroll]
    for value in 0..count {
        memory[values_at + value * units + unit] = values[value];
    }
    sync_cube();
    if unit < GROUPS {
        #[unroll]
        for value in 0..count {
            let mut sum = f32::new(0.0);
            for n in 0..units / GROUPS {
                sum += memory[values_at + value * units + n * GROUPS + unit];
            }
            memory[value * GROUPS + unit] = sum;
        }
    }
    sync_cube();
    #[unroll]
    for value in 0..count {
        let mut sum = f32::new(0.0);
        #[unroll]
        for group in 0..GROUPS {
            sum += memory[value * GROUPS + group];
        }
        values[value] = sum;
    }
}

/// Adds up the `count` values of the units of each column in a tree. The cube's units are `lanes` rows, a power of two, of
/// `columns` units. The sum of a value is then at `(value · lanes) · columns + column` of the memory, which has
/// `count · lanes · columns` elements, for the units of the first lane.
#[cube]
pub(super) fn sum_over_lanes(
    values: &Array<f32>,
    memory: &mut SharedMemory<f32>,
    lane: usize,
    column: usize,
    #[comptime] count: usize,
    #[comptime] lanes: usize,
    #[comptime] columns: usize,
) {
    #[unroll]
    for value in 0..count {
        memory[(value * lanes + lane) * columns + column] = values[value];
    }
    let active = RuntimeCell::<usize>::new(lanes / 2);
    while active.read() > 0 {
        sync_cube();
        if lane < active.read() {
            #[unroll]
            for value in 0..count {
                let to = (value * lanes + lane) * columns + column;
                memory[to] += memory[to + active.read() * columns];
            }
        }
        active.store(active.read() / 2);
    }
}
