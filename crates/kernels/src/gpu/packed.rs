//! Packed weights on GPUs: a device holds the bytes of the rows, and kernels read the weights from them.

#![allow(unsafe_code)]

mod blocks;

use burn::tensor::{DType, Device, Shape, Tensor, TensorData};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::activation::activated;
use super::launch::{
    ELEMENTWISE_UNITS, address_type, cubes, elementwise_cubes, empty, operand, sum_over_lanes,
};
use super::matmul::{Epilogue, MOST_ROWS, with_addends};
use super::queue::{OnRuntime, Queued, queue};
use crate::cpu::packed::PackedMatrix;
use crate::packed_weight::PackedValues;
use crate::{Activation, Backend, PackedFormat, PackedWeight};
use blocks::{SUB, Scale, four_weights, scale};

/// The most rows of `x` that are multiplied with the bytes, and not with the unpacked weight: reading the bytes for each
/// [`MOST_ROWS`] rows takes less time than writing and reading a weight in f32.
pub(super) const MOST_PACKED_ROWS: usize = 4 * MOST_ROWS;

/// The most units of a cube, which divide the blocks of a row of the weight among themselves.
const MOST_UNITS: usize = 256;

/// The rows are multiples of this number of words, so that they end with a whole group of four weights of every format.
const PADDING: usize = 2;

/// See [`crate::Backend::packed_from_host`]: rows of words, padded with zeros.
pub fn packed_from_host<B: OnRuntime<R>, R: CubeRuntime>(
    matrix: &PackedMatrix,
    device: &Device<B>,
) -> PackedWeight<B> {
    let (format, [rows, columns]) = (matrix.format(), matrix.shape());
    let row_bytes = format.row_bytes(columns);
    let row_words = row_bytes.div_ceil(4).next_multiple_of(PADDING);
    let mut words = Vec::with_capacity(rows * row_words);
    for (row, bytes) in matrix.bytes().chunks(row_bytes.max(1)).enumerate() {
        let (whole, rest) = bytes.as_chunks();
        words.extend(whole.iter().map(|bytes| i32::from_le_bytes(*bytes)));
        if !rest.is_empty() {
            let mut last = [0; 4];
            last[..rest.len()].copy_from_slice(rest);
            words.push(i32::from_le_bytes(last));
        }
        words.resize((row + 1) * row_words, 0);
    }
    let words = TensorData::new(words, [rows, row_words]);
    let words = Tensor::from_data(words, (device, DType::I32));
    PackedWeight::new(format, PackedValues::Bytes(words), columns)
}

/// See [`crate::Backend::unpack`].
pub fn unpack<B: Backend + OnRuntime<R>, R: CubeRuntime>(weight: PackedWeight<B>) -> Queued<R> {
    let (format, [rows, columns]) = (weight.format(), weight.shape());
    let Some(words) = weight.bytes() else {
        return crate::reference::unpack::<B>(weight);
    };
    let shape = Shape::new([rows, columns]);
    let output = [(shape.clone(), DType::F32)];
    let [floats] = queue("unpack", [words], output, move |[words]| {
        [rows_in_f32(words, None, shape.clone(), format)]
    });
    floats
}

/// See [`crate::Backend::embedding_packed`]. An id beyond the table selects its last row.
pub fn embedding_packed<B: Backend + OnRuntime<R>, R: CubeRuntime>(
    table: PackedWeight<B>,
    ids: Queued<R>,
) -> Queued<R> {
    let (format, [_, columns]) = (table.format(), table.shape());
    let Some(words) = table.bytes() else {
        return <B as Backend>::embedding(crate::reference::unpack::<B>(table), ids);
    };
    let shape: Vec<usize> = ids.shape.iter().copied().chain([columns]).collect();
    let shape = Shape::from(shape);
    let output = [(shape.clone(), DType::F32)];
    let inputs = [words, ids];
    let [rows] = queue("embedding_packed", inputs, output, move |[words, ids]| {
        [rows_in_f32(words, Some(ids), shape.clone(), format)]
    });
    rows
}

/// The rows `ids`, or all of them, of a weight in f32, in this shape.
fn rows_in_f32<R: CubeRuntime>(
    words: CubeTensor<R>,
    ids: Option<CubeTensor<R>>,
    shape: Shape,
    format: PackedFormat,
) -> CubeTensor<R> {
    let (words, ids) = (into_contiguous(words), ids.map(into_contiguous));
    let [rows, row_words] = words.meta.shape().dims();
    let columns = shape.iter().next_back().copied().unwrap_or(1);
    let count = shape.num_elements() / columns.max(1) * columns.div_ceil(4);
    let output = empty(&words, shape, DType::F32);
    let (client, address) = (words.client.clone(), address_type(&[&words, &output]));
    if count == 0 || rows == 0 {
        return output;
    }
    let kind = ids.as_ref().map_or(DType::U32, |ids| ids.dtype);
    // SAFETY: the tensors are contiguous. A unit writes up to four of the output's elements, as many as are within its row,
    // and reads a row below `rows`, which ends with a whole group of four weights.
    unsafe {
        rows_kernel::launch_unchecked::<R>(
            &client,
            elementwise_cubes(count),
            CubeDim::new_1d(ELEMENTWISE_UNITS),
            address,
            words.into_array_arg(),
            operand(ids),
            output.clone().into_array_arg(),
            rows,
            row_words,
            columns,
            count,
            format,
            kind.into(),
        );
    }
    output
}

/// Writes `f(x Wᵀ + bias + residual)` to `output` `[rows, outputs]`, of up to [`MOST_PACKED_ROWS`] contiguous rows of `x`
/// `[rows, columns]` in f32.
pub(super) fn launch_product<R: CubeRuntime>(
    x: CubeTensor<R>,
    words: CubeTensor<R>,
    output: CubeTensor<R>,
    epilogue: Epilogue<R>,
    format: PackedFormat,
) {
    let words = into_contiguous(words);
    let [rows, columns] = x.meta.shape().dims();
    let [outputs, row_words] = words.meta.shape().dims();
    let client = output.client.clone();
    let units = client.properties().hardware.max_units_per_cube as usize;
    let units = (columns / SUB).clamp(16, units.min(MOST_UNITS));
    let passes = rows.div_ceil(MOST_ROWS).max(1);
    let rows_of_cube = rows.div_ceil(passes);
    // Several outputs share the reads of x; many sums need too many registers.
    let outputs_of_cube = if rows_of_cube <= 2 { 4 } else { 2 };
    let address = address_type(&[&x, &words, &output]);
    let Epilogue {
        bias,
        residual,
        activation,
        gate: _,
    } = epilogue;
    // SAFETY: the tensors are contiguous: `x` of `rows × columns` elements, the bias of `outputs`, the residual and the output
    // of `rows × outputs`, the words of `outputs` rows, which end with a whole group of four weights. Rows beyond `rows` and
    // outputs beyond `outputs` are read as the last one and not written.
    unsafe {
        product_kernel::launch_unchecked::<R>(
            &client,
            cubes(outputs.div_ceil(outputs_of_cube) * passes),
            CubeDim::new_1d(1 << units.ilog2()),
            address,
            x.into_array_arg(),
            words.into_array_arg(),
            operand(bias),
            operand(residual),
            output.into_array_arg(),
            rows,
            columns,
            outputs,
            row_words,
            passes,
            rows_of_cube,
            outputs_of_cube,
            1 << units.ilog2(),
            activation,
            format,
        );
    }
}

/// Each unit unpacks four weights.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn rows_kernel<I: Int>(
    words: &Array<u32>,
    ids: &ComptimeOption<Array<I>>,
    output: &mut Array<f32>,
    rows: usize,
    row_words: usize,
    columns: usize,
    count: usize,
    #[comptime] format: PackedFormat,
    #[define(I)] _kind: StorageType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let groups = columns.div_ceil(4);
        let place = at / groups;
        let column = at % groups * 4;
        let mut row = place;
        #[comptime]
        if let ComptimeOption::Some(ids) = ids {
            row = usize::cast_from(ids[place]);
            row = select(row < rows, row, rows - 1);
        }
        let row = row * row_words;
        let scale = scale(words, row, column, format);
        let mut values = Array::<f32>::new(4usize);
        four_weights(words, row, column, scale, &mut values, format);
        #[unroll]
        for n in 0..4usize {
            if column + n < columns {
                output[place * columns + column + n] = values[n];
            }
        }
    }
}

/// Each cube computes `outputs_of_cube` outputs of `rows_of_cube` rows. A unit sums the products of every `units`-th run of
/// [`SUB`] weights in f32, and these sums are added in a tree.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn product_kernel(
    x: &Array<f32>,
    words: &Array<u32>,
    bias: &ComptimeOption<Array<f32>>,
    residual: &ComptimeOption<Array<f32>>,
    output: &mut Array<f32>,
    rows: usize,
    columns: usize,
    outputs: usize,
    row_words: usize,
    passes: usize,
    #[comptime] rows_of_cube: usize,
    #[comptime] outputs_of_cube: usize,
    #[comptime] units: usize,
    #[comptime] activation: Option<Activation>,
    #[comptime] format: PackedFormat,
) {
    let first_row = CUBE_POS % passes * rows_of_cube;
    let first_output = CUBE_POS / passes * outputs_of_cube;
    let unit = UNIT_POS as usize;
    let count = comptime!(rows_of_cube * outputs_of_cube);
    let mut sums = Array::<f32>::new(count);
    #[unroll]
    for n in 0..count {
        sums[n] = 0.0;
    }
    let mut left = Array::<f32>::new(comptime!(4 * rows_of_cube));
    let mut right = Array::<f32>::new(4usize);
    let mut run = unit * SUB;
    while run < columns {
        let mut scales = Sequence::<Scale>::new();
        #[unroll]
        for n in 0..outputs_of_cube {
            let row = limited(first_output + n, outputs) * row_words;
            scales.push(scale(words, row, run, format));
        }
        for group in 0..comptime!(SUB / 4) {
            let column = run + group * 4;
            if column < columns {
                #[unroll]
                for row in 0..rows_of_cube {
                    let from = limited(first_row + row, rows) * columns;
                    #[unroll]
                    for n in 0..4usize {
                        let at = limited(column + n, columns);
                        // Blocks end with a group of four weights, rows of single weights do not.
                        let value = x[from + at];
                        left[row * 4 + n] = select(column + n < columns, value, 0.0);
                    }
                }
                #[unroll]
                for n in 0..outputs_of_cube {
                    let row = limited(first_output + n, outputs) * row_words;
                    four_weights(words, row, column, *scales.index(n), &mut right, format);
                    #[unroll]
                    for row in 0..rows_of_cube {
                        #[unroll]
                        for k in 0..4usize {
                            sums[n * rows_of_cube + row] += left[row * 4 + k] * right[k];
                        }
                    }
                }
            }
        }
        run += comptime!(units * SUB);
    }
    let mut memory = SharedMemory::<f32>::new(comptime!(count * units));
    sum_over_lanes(&sums, &mut memory, unit, 0usize, count, units, 1usize);
    // The first units finish an element each.
    sync_cube();
    if unit < count {
        let row = first_row + unit % rows_of_cube;
        let column = first_output + unit / rows_of_cube;
        if row < rows && column < outputs {
            let to = row * outputs + column;
            let sum = memory[unit * units];
            let sum = with_addends(sum, bias, residual, column, to);
            output[to] = activated(sum, activation);
        }
    }
}

/// The index, or the last one if it is not below `count`.
#[cube]
fn limited(index: usize, count: usize) -> usize {
    select(index < count, index, count - 1)
}
