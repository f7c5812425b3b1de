//! Products with a few rows on the left, as in decoding, whose time is that of reading the right operand once. CubeK's
//! kernels for one row give each column to one unit, so a narrow matrix keeps few units busy and each reads a long
//! column.

#![allow(unsafe_code)]

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubek::matmul::definition::MatmulSetupError;

use crate::Activation;
use crate::gpu::activation::{activated, linear_factor};
use crate::gpu::launch::{address_type, operand, sum_over_lanes};

/// The largest number of rows on the left.
pub const MOST_ROWS: usize = 8;

/// The columns of a cube. In f32 they are the 32 bytes that a GPU reads at once.
const WIDTH: usize = 8;

/// The most units of a cube. They divide the depth of its columns among themselves.
const MOST_UNITS: u32 = 1024;

/// The operations on a product before it is written.
pub struct Epilogue<R: CubeRuntime> {
    /// Added to each row, `[columns]`, contiguous and of the operands' type.
    pub bias: Option<CubeTensor<R>>,
    /// Added to the product, in its shape, contiguous and of the operands' type.
    pub residual: Option<CubeTensor<R>>,
    /// Applied to the sum, or to the product with the gate if there is one.
    pub activation: Option<Activation>,
    /// Another right operand, in the memory layout of the first, and its bias, as above: the result is multiplied by `f` of
    /// its product.
    pub gate: Option<(CubeTensor<R>, Option<CubeTensor<R>>)>,
}

/// Writes `a b` to `output`. The rows of `b` and `output` are contiguous.
///
/// # Errors
/// The kernel does not support the shapes or the memory layout.
pub(super) fn launch<R: CubeRuntime>(
    a: CubeTensor<R>,
    b: CubeTensor<R>,
    output: CubeTensor<R>,
) -> Result<(), MatmulSetupError> {
    let none = Epilogue {
        bias: None,
        residual: None,
        activation: None,
        gate: None,
    };
    launch_with(a, b, output, none)
}

/// Writes `f(a b + bias + residual)` to `output`, or `f(a gate + its bias) h(a b + bias + residual)` with the
/// factor `h` of a gated layer. The rows of `b` and `output` are contiguous.
///
/// # Errors
/// The kernel does not support the shapes or the memory layout.
pub fn launch_with<R: CubeRuntime>(
    a: CubeTensor<R>,
    b: CubeTensor<R>,
    output: CubeTensor<R>,
    epilogue: Epilogue<R>,
) -> Result<(), MatmulSetupError> {
    let Some(task) = Task::of(&a, &b, &output) else {
        let reason = "more than 8 rows, or operands in another layout".to_owned();
        return Err(MatmulSetupError::InvalidConfig(Box::new(reason)));
    };
    let client = output.client.clone();
    let units = client.properties().hardware.max_units_per_cube;
    let lanes = 1 << (units.min(MOST_UNITS) / WIDTH as u32).max(1).ilog2();
    let cubes = CubeCount::Static(task.columns.div_ceil(WIDTH) as u32, task.matrices as u32, 1);
    let (kind, output_kind) = (a.dtype.into(), output.dtype.into());
    let address = address_type(&[&a, &b, &output]);
    let Epilogue {
        bias,
        residual,
        activation,
        gate,
    } = epilogue;
    let (gate, gate_bias) = gate.map_or((None, None), |(gate, bias)| (Some(gate), bias));
    // SAFETY: `Task::of` checks that the strides and lengths stay within the tensors. A cube reads and writes no column
    // beyond `columns`, no row beyond `depth` or `rows`, and no matrix beyond `matrices`, which are their sizes. The bias has
    // `columns` elements, the residual those of the output, and the gate is laid out as `b`.
    unsafe {
        few_rows::launch_unchecked::<R>(
            &client,
            cubes,
            CubeDim::new_2d(WIDTH as u32, lanes),
            address,
            a.into_array_arg(),
            b.into_array_arg(),
            operand(bias),
            operand(residual),
            operand(gate),
            operand(gate_bias),
            output.into_array_arg(),
            task.depth,
            task.columns,
            task.a[0],
            task.a[1],
            task.a[2],
            task.b[0],
            task.b[1],
            task.rows,
            lanes as usize,
            activation,
            kind,
            output_kind,
        );
    }
    Ok(())
}

/// The sizes of a product and the strides of its operands.
struct Task {
    matrices: usize,
    rows: usize,
    depth: usize,
    columns: usize,
    /// The strides of `a`'s matrices, rows and columns.
    a: [usize; 3],
    /// The strides of `b`'s matrices and rows.
    b: [usize; 2],
}

impl Task {
    /// Returns `None` if the kernel does not support the product.
    fn of<R: CubeRuntime>(
        a: &CubeTensor<R>,
        b: &CubeTensor<R>,
        output: &CubeTensor<R>,
    ) -> Option<Self> {
        let shape = output.meta.shape();
        let dims = shape.num_dims();
        let batch = dims.checked_sub(2)?;
        let (rows, columns) = (shape[batch], shape[batch + 1]);
        let depth = a.meta.shape()[batch + 1];
        // At most one dimension of several matrices, so that each operand has one stride between them.
        let mut several = (0..batch).filter(|&dim| shape[dim] > 1);
        let several = (several.next(), several.next());
        let (matrices, between) = match several {
            (None, _) => (1, [0, 0]),
            (Some(dim), None) => {
                let stride = |of: &CubeTensor<R>| match of.meta.shape()[dim] {
                    1 => 0,
                    _ => of.meta.strides()[dim],
                };
                (shape[dim], [stride(a), stride(b)])
            }
            (Some(_), Some(_)) => return None,
        };
        let fits = (1..=MOST_ROWS).contains(&rows)
            && depth > 0
            && matrices <= usize::from(u16::MAX)
            && a.dtype == b.dtype
            && (b.meta.strides()[batch + 1] == 1 || columns == 1)
            && output.is_contiguous();
        fits.then(|| Self {
            matrices,
            rows,
            depth,
            columns,
            a: [
                between[0],
                a.meta.strides()[batch],
                a.meta.strides()[batch + 1],
            ],
            b: [between[1], b.meta.strides()[batch]],
        })
    }
}

/// `sum + bias + residual` of an element of a product: that of the bias is at `column`, that of the residual at `to`.
#[cube]
pub fn with_addends<T: Float>(
    sum: f32,
    bias: &ComptimeOption<Array<T>>,
    residual: &ComptimeOption<Array<T>>,
    column: usize,
    to: usize,
) -> f32 {
    let mut sum = sum;
    #[comptime]
    if let ComptimeOption::Some(bias) = bias {
        sum += f32::cast_from(bias[column]);
    }
    #[comptime]
    if let ComptimeOption::Some(residual) = residual {
        sum += f32::cast_from(residual[to]);
    }
    sum
}

/// Each cube computes `WIDTH` columns of all rows: its units sum every `lanes`-th product of a column in f32, and
/// these sums are added in a tree.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn few_rows<T: Float, O: Float>(
    a: &Array<T>,
    b: &Array<T>,
    bias: &ComptimeOption<Array<T>>,
    residual: &ComptimeOption<Array<T>>,
    gate: &ComptimeOption<Array<T>>,
    gate_bias: &ComptimeOption<Array<T>>,
    output: &mut Array<O>,
    depth: usize,
    columns: usize,
    a_matrix: usize,
    a_row: usize,
    a_column: usize,
    b_matrix: usize,
    b_row: usize,
    #[comptime] rows: usize,
    #[comptime] lanes: usize,
    #[comptime] activation: Option<Activation>,
    #[define(T)] _kind: StorageType,
    #[define(O)] _output_kind: StorageType,
) {
    let matrix = CUBE_POS_Y as usize;
    let column = CUBE_POS_X as usize * WIDTH + UNIT_POS_X as usize;
    let lane = UNIT_POS_Y as usize;
    let mut partial = SharedMemory::<f32>::new(rows * lanes * WIDTH);
    let mut sums = Array::<f32>::new(rows);
    let mut gates = Array::<f32>::new(rows);
    #[unroll]
    for row in 0..rows {
        sums[row] = 0.0;
        gates[row] = 0.0;
    }
    if column < columns {
        let a_first = matrix * a_matrix;
        let b_first = matrix * b_matrix + column;
        let mut at = lane;
        while at < depth {
            let right = f32::cast_from(b[b_first + at * b_row]);
            #[unroll]
            for row in 0..rows {
                let left = f32::cast_from(a[a_first + row * a_row + at * a_column]);
                sums[row] += left * right;
            }
            #[comptime]
            if let ComptimeOption::Some(gate) = gate {
                let right = f32::cast_from(gate[b_first + at * b_row]);
                #[unroll]
                for row in 0..rows {
                    let left = f32::cast_from(a[a_first + row * a_row + at * a_column]);
                    gates[row] += left * right;
                }
            }
            at += lanes;
        }
    }
    let x = UNIT_POS_X as usize;
    #[comptime]
    if let ComptimeOption::Some(_) = gate {
        sum_over_lanes(&gates, &mut partial, lane, x, rows, lanes, WIDTH);
        #[unroll]
        for row in 0..rows {
            gates[row] = partial[row * lanes * WIDTH + x];
        }
        // Before the memory is written again.
        sync_cube();
    }
    sum_over_lanes(&sums, &mut partial, lane, x, rows, lanes, WIDTH);
    if lane == 0 && column < columns {
        #[unroll]
        for row in 0..rows {
            let to = (matrix * rows + row) * columns + column;
            let sum = partial[row * lanes * WIDTH + x];
            let sum = with_addends(sum, bias, residual, column, to);
            #[comptime]
            if let ComptimeOption::Some(_) = gate {
                let mut of_gate = gates[row];
                #[comptime]
                if let ComptimeOption::Some(bias) = gate_bias {
                    of_gate += f32::cast_from(bias[column]);
                }
                let factor = linear_factor(sum, activation);
                output[to] = O::cast_from(activated(of_gate, activation) * factor);
            } else {
                output[to] = O::cast_from(activated(sum, activation));
            }
        }
    }
}
