//! Sums over the rows of a matrix, as in the gradient of a bias.

#![allow(unsafe_code)]

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{address_type, empty, operand, rows_of, sum_over_lanes};
use super::queue::{Queued, queue};

/// The units of a cube.
const UNITS: usize = 256;

/// The columns of a cube that sums a tall matrix: those of 128 bytes in f32, which its units read together.
const WIDE: usize = 32;

/// The columns of a cube that sums a few hundred rows: those of 32 bytes in f32, the least that a GPU reads at once.
const NARROW: usize = 8;

/// The cubes that keep a large GPU busy.
const CUBES: usize = 2048;

/// The least rows of a range, so that a matrix with few rows takes one launch.
const ROWS_OF_RANGE: usize = 128;

/// `Σ x` over the rows of a matrix `[…, width]`: `[width]`; and `x`, in the type `narrow` if there is one. See
/// [`crate::LinearGradients::bias`].
pub fn column_sums<R: CubeRuntime>(x: Queued<R>, narrow: Option<DType>) -> (Queued<R>, Queued<R>) {
    let [rows, width] = rows_of(&x.shape);
    let (shape, kind) = (x.shape.clone(), x.dtype);
    let of_sums = (Shape::new([width]), kind);
    match narrow.filter(|&narrow| narrow != kind) {
        Some(narrow) => {
            let outputs = [of_sums, (shape.clone(), narrow)];
            let [sums, copy] = queue("column_sums", [x], outputs, move |[x]| {
                let copy = empty(&x, shape.clone(), narrow);
                [sum_rows(x, [rows, width], kind, Some(&copy)), copy]
            });
            (sums, copy)
        }
        None => {
            let [sums] = queue("column_sums", [x.clone()], [of_sums], move |[x]| {
                [sum_rows(x, [rows, width], kind, None)]
            });
            (sums, x)
        }
    }
}

/// `Σ x` over the rows of `x` `[rows, width]`, `[width]`, of the type `kind`. Also copies `x` to `narrow`. The order of the sums is fixed. At most two launches: sums over ranges of rows, and their sum.
fn sum_rows<R: CubeRuntime>(
    x: CubeTensor<R>,
    [rows, width]: [usize; 2],
    kind: DType,
    narrow: Option<&CubeTensor<R>>,
) -> CubeTensor<R> {
    let x = into_contiguous(x);
    let most = CUBES.div_ceil(width.div_ceil(WIDE).max(1));
    let ranges = rows.div_ceil(ROWS_OF_RANGE).clamp(1, most);
    let columns = if ranges == 1 { NARROW } else { WIDE };
    let sums = match ranges {
        1 => empty(&x, Shape::new([width]), kind),
        _ => empty(&x, Shape::new([ranges, width]), DType::F32),
    };
    launch(
        x,
        [&sums, &sums],
        narrow,
        [rows, width, width],
        ranges,
        columns,
    );
    match ranges {
        1 => sums,
        _ => sum_ranges(sums, [ranges, width], kind),
    }
}

/// [`sum_rows`] of a contiguous matrix of up to a few hundred rows: one launch.
pub(super) fn sum_ranges<R: CubeRuntime>(
    x: CubeTensor<R>,
    [rows, width]: [usize; 2],
    kind: DType,
) -> CubeTensor<R> {
    let sums = empty(&x, Shape::new([width]), kind);
    launch(x, [&sums, &sums], None, [rows, width, width], 1, NARROW);
    sums
}

/// `Σ x` over the rows of `x` `[rows, 2 width]`: the sums of its first `width` columns and those of the others.
/// Otherwise as [`sum_ranges`].
pub(super) fn sum_ranges_of_pair<R: CubeRuntime>(
    x: CubeTensor<R>,
    [rows, width]: [usize; 2],
    kind: DType,
) -> [CubeTensor<R>; 2] {
    let sums = [(); 2].map(|()| empty(&x, Shape::new([width]), kind));
    launch(
        x,
        [&sums[0], &sums[1]],
        None,
        [rows, 2 * width, width],
        1,
        NARROW,
    );
    sums
}

/// Sums `ranges` ranges of rows. The sums of the columns from `cut` on are written to the second output.
fn launch<R: CubeRuntime>(
    x: CubeTensor<R>,
    [first, second]: [&CubeTensor<R>; 2],
    narrow: Option<&CubeTensor<R>>,
    [rows, width, cut]: [usize; 3],
    ranges: usize,
    columns: usize,
) {
    let client = x.client.clone();
    let address = address_type(&[&x, first, second]);
    let blocks = width.div_ceil(columns).max(1);
    let across = blocks.min(65_535);
    let cubes = CubeCount::Static(across as u32, ranges as u32, blocks.div_ceil(across) as u32);
    let lanes = UNITS / columns;
    let narrow_kind = narrow.map_or(DType::F32, |narrow| narrow.dtype);
    let kinds = [x.dtype.into(), first.dtype.into(), narrow_kind.into()];
    let second = (cut < width).then(|| second.clone());
    // SAFETY: the tensors are contiguous: `x` and the copy have `rows × width` elements, the outputs `ranges × width`,
    // or `cut` and `width - cut` with one range. The kernel skips columns from `width` on.
    unsafe {
        columns_kernel::launch_unchecked::<R>(
            &client,
            cubes,
            CubeDim::new_2d(columns as u32, lanes as u32),
            address,
            x.into_array_arg(),
            first.clone().into_array_arg(),
            operand(second),
            operand(narrow.cloned()),
            rows,
            width,
            cut,
            columns,
            lanes,
            kinds,
        );
    }
}

/// Each cube sums `columns` columns over a range of rows: a unit sums every `lanes`-th row, and these sums are added in a
/// tree.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn columns_kernel<T: Float, S: Float, N: Float>(
    x: &Array<T>,
    sums: &mut Array<S>,
    second: &mut ComptimeOption<Array<S>>,
    narrow: &mut ComptimeOption<Array<N>>,
    rows: usize,
    width: usize,
    cut: usize,
    #[comptime] columns: usize,
    #[comptime] lanes: usize,
    #[define(T, S, N)] _kinds: [StorageType; 3],
) {
    let block = (CUBE_POS_Z * CUBE_COUNT_X + CUBE_POS_X) as usize;
    let range = CUBE_POS_Y as usize;
    let per_range = rows.div_ceil(CUBE_COUNT_Y as usize);
    let column = block * columns + UNIT_POS_X as usize;
    let lane = UNIT_POS_Y as usize;
    let end = (range + 1) * per_range;
    let end = select(end < rows, end, rows);
    let mut sum = f32::new(0.0);
    if column < width {
        let mut row = range * per_range + lane;
        while row < end {
            let value = x[row * width + column];
            sum += f32::cast_from(value);
            #[comptime]
            if let ComptimeOption::Some(narrow) = narrow {
                narrow[row * width + column] = N::cast_from(value);
            }
            row += lanes;
        }
    }
    let mut partial = SharedMemory::<f32>::new(lanes * columns);
    let mut own = Array::<f32>::new(1usize);
    own[0] = sum;
    let x = UNIT_POS_X as usize;
    sum_over_lanes(&own, &mut partial, lane, x, 1usize, lanes, columns);
    if lane == 0 && column < width {
        let sum = S::cast_from(partial[x]);
        #[comptime]
        if let ComptimeOption::Some(second) = second {
            if column < cut {
                sums[column] = sum;
            } else {
                second[column - cut] = sum;
            }
        } else {
            sums[range * width + column] = sum;
        }
    }
}

#[cfg(all(test, feature = "vulkan"))]
mod tests {
    use burn::backend::Vulkan;
    use burn::tensor::{Tensor, TensorPrimitive};

    use super::*;

    #[test]
    fn a_matrix_is_summed_and_cast_in_one_pass_on_vulkan() {
        for [rows, width] in [[1, 1], [100, 9], [300, 33]] {
            let numbers: Vec<f32> = (0..rows * width).map(|n| (n % 7) as f32 - 2.5).collect();
            let data = burn::tensor::TensorData::new(numbers.clone(), [rows, width]);
            let x = Tensor::<Vulkan, 2>::from_data(data, &Default::default());
            let x = x.into_primitive().tensor();
            let (sums, narrow) = column_sums(x, Some(DType::F16));
            let sums = Tensor::<Vulkan, 1>::from_primitive(TensorPrimitive::Float(sums));
            let narrow = Tensor::<Vulkan, 2>::from_primitive(TensorPrimitive::Float(narrow));
            // The numbers and their sums are exact in f16 and f32.
            let column = |n: usize| (0..rows).map(|row| numbers[row * width + n]).sum::<f32>();
            let expected: Vec<f32> = (0..width).map(column).collect();
            assert_eq!(sums.into_data().to_vec::<f32>().unwrap(), expected);
            let copy: Vec<f32> = narrow.into_data().iter::<f32>().collect();
            assert_eq!(copy, numbers);
        }
    }
}
