//! Products of a device's library, compared with those of the CPU.

use burn::cubecl::Runtime;
use burn::cubecl::cuda::{CudaDevice, CudaRuntime};
use burn::tensor::{DType, Shape, TensorData};
use burn_cubecl::ops::permute;
use burn_cubecl::tensor::CubeTensor;

use super::library::Library;
use super::products::{run as multiply, task_of};

/// Rows, depth and columns: odd ones, and multiples of the tiles of tensor cores, which the library has to support.
const SIZES: [[usize; 3]; 2] = [[17, 33, 9], [128, 192, 64]];

/// The types of operands and products, and the error of a sum and of its rounding, relative to the sum of absolute products.
/// TF32 is about 3·10⁻⁵ off.
const TYPES: [(DType, DType, f64); 5] = [
    (DType::F32, DType::F32, 5e-6),
    (DType::BF16, DType::F32, 2e-5),
    (DType::BF16, DType::BF16, 4e-3),
    (DType::F16, DType::F32, 2e-5),
    (DType::F16, DType::F16, 6e-4),
];

const MATRICES: usize = 2;

/// Multiplies operands of every type in all memory layouts.
///
/// # Errors
/// A product is wrong, or a call fails.
pub fn run(library: &mut Library, device: &CudaDevice) -> Result<(), String> {
    for (size, [rows, depth, columns]) in SIZES.into_iter().enumerate() {
        for (kind, output_kind, tolerance) in TYPES {
            for layout in 0..4 {
                let (a, a_values) = matrices(device, [rows, depth], kind, layout & 1 == 1);
                let (b, b_values) = matrices(device, [depth, columns], kind, layout & 2 == 2);
                let described = || {
                    let (kind, output_kind) = (kind.name(), output_kind.name());
                    format!(
                        "self-test: {rows}×{depth}×{columns}, {kind} to {output_kind}, layout {layout}"
                    )
                };
                let task = task_of(&a, &b, output_kind).ok_or_else(described)?;
                let Some(product) = multiply(library, &task, &a, &b)? else {
                    match size {
                        0 => continue,
                        _ => return Err(format!("{}: not supported", described())),
                    }
                };
                let bytes = product.client.read_one(product.handle);
                let bytes = bytes.map_err(|error| format!("{}: {error:?}", described()))?;
                let product =
                    TensorData::from_bytes(bytes, product.meta.shape().clone(), output_kind);
                let expected = product_of(&a_values, &b_values, [rows, depth, columns]);
                let mut pairs = product.iter::<f64>().zip(expected);
                if !pairs.all(|(x, (sum, scale))| (x - sum).abs() <= tolerance * scale) {
                    return Err(format!("{}: wrong", described()));
                }
            }
        }
    }
    Ok(())
}

/// Matrices `[MATRICES, rows, columns]` on the device, and their rounded values.
fn matrices(
    device: &CudaDevice,
    [rows, columns]: [usize; 2],
    kind: DType,
    is_transposed: bool,
) -> (CubeTensor<CudaRuntime>, Vec<f64>) {
    // Multiples of an irrational number have bits in all places, which TF32 would lose.
    let value = |n: usize| ((n + rows) as f64 * 0.618_033_988_749_895).fract() as f32 - 0.5;
    let (lines, length) = match is_transposed {
        true => (columns, rows),
        false => (rows, columns),
    };
    let shape = [MATRICES, lines, length];
    let values: Vec<f32> = (0..MATRICES * rows * columns).map(value).collect();
    let data = TensorData::new(values, shape).convert_dtype(kind);
    let client = CudaRuntime::client(device);
    let handle = client.create_from_slice(data.as_bytes());
    let tensor =
        CubeTensor::new_contiguous(client, device.clone(), Shape::from(shape), handle, kind);
    let stored: Vec<f64> = data.iter::<f64>().collect();
    if !is_transposed {
        return (tensor, stored);
    }
    let places = (0..stored.len()).map(|place| {
        let (matrix, rest) = (place / (rows * columns), place % (rows * columns));
        let (row, column) = (rest / columns, rest % columns);
        (matrix * columns + column) * rows + row
    });
    let values = places.map(|place| stored[place]).collect();
    (permute(tensor, &[0, 2, 1]), values)
}

/// The elements of the products, and the sums of absolute values of their terms.
fn product_of(a: &[f64], b: &[f64], [rows, depth, columns]: [usize; 3]) -> Vec<(f64, f64)> {
    let element = |place: usize| {
        let (row, column) = (place / columns, place % columns);
        let b = &b[row / rows * depth * columns..];
        let terms = (0..depth).map(|n| a[row * depth + n] * b[n * columns + column]);
        terms.fold((0.0, 0.0), |(sum, scale), term| {
            (sum + term, scale + term.abs())
        })
    };
    (0..MATRICES * rows * columns).map(element).collect()
}
