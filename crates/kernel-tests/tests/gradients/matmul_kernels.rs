//! Tests every candidate kernel rather than only the chosen one, since the fastest kernel varies between runs.

use burn::backend::wgpu::WgpuRuntime;
use burn::tensor::{DType, Tensor, TensorData, TensorPrimitive};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use emberlm_kernels::products_by_every_kernel;
use emberlm_system::random::split_mix;

/// A backend without fusion.
type Device = CubeBackend<WgpuRuntime, f32, i32, u8>;

/// `[matrices, rows, depth, columns]`. The depths cover odd and even numbers of stages of each length, partial
/// stages, and 1.
const SHAPES: [[usize; 4]; 15] = [
    [3, 40, 8, 40],
    [3, 16, 24, 8],
    [2, 40, 40, 32],
    [2, 33, 17, 5],
    [2, 64, 1, 3],
    [3, 1, 64, 96],
    [2, 96, 32, 1],
    [2, 1, 1, 1],
    // Few rows: a long depth, columns beyond a whole cube, several matrices.
    [1, 1, 3000, 100],
    [3, 4, 70, 130],
    [1, 8, 700, 33],
    // Large enough for double-buffered kernels, which are correct only for an even number of stages.
    [2, 520, 40, 24],
    [2, 520, 24, 24],
    [2, 520, 256, 24],
    [1, 24, 768, 16],
];

/// Uniform numbers in ±2.
fn numbers(seed: u64, shape: [usize; 3]) -> TensorData {
    let number = |i| (split_mix(split_mix(seed) ^ i as u64) >> 40) as f32 / (1 << 22) as f32 - 2.0;
    TensorData::new((0..shape.iter().product()).map(number).collect(), shape)
}

/// Uploads matrices, stored row by row or, if `transposed`, column by column.
fn on_device(data: TensorData, transposed: bool, kind: DType) -> CubeTensor<WgpuRuntime> {
    let device = Default::default();
    let tensor = Tensor::<Device, 3>::from_data(data, &device).cast(kind);
    let tensor = match transposed {
        true => {
            let columns = tensor.swap_dims(1, 2).into_data();
            Tensor::from_data(columns, (&device, kind)).swap_dims(1, 2)
        }
        false => tensor,
    };
    tensor.into_primitive().tensor()
}

fn host(tensor: CubeTensor<WgpuRuntime>) -> Vec<f64> {
    let tensor = Tensor::<Device, 3>::from_primitive(TensorPrimitive::Float(tensor));
    tensor.into_data().iter::<f64>().collect()
}

/// `a b` in f64.
fn expected(a: &[f64], b: &[f64], [count, rows, depth, columns]: [usize; 4]) -> Vec<f64> {
    let mut product = Vec::with_capacity(count * rows * columns);
    for i in 0..count * rows {
        for j in 0..columns {
            let row = &a[i * depth..][..depth];
            let column = b[i / rows * depth * columns + j..].iter().step_by(columns);
            product.push(row.iter().zip(column).map(|(a, b)| a * b).sum());
        }
    }
    product
}

/// The relative error `‖a - b‖ / ‖b‖`.
fn error(actual: &[f64], expected: &[f64]) -> f64 {
    let squares = |of: &mut dyn Iterator<Item = f64>| of.map(|x| x * x).sum::<f64>();
    let off = squares(&mut actual.iter().zip(expected).map(|(a, b)| a - b));
    (off / squares(&mut expected.iter().copied())).sqrt()
}

/// Multiplies some of the shapes with every kernel, and returns the number of products.
fn products(shapes: impl Iterator<Item = usize>, kind: DType, tolerance: f64) -> usize {
    let mut used = 0;
    for index in shapes {
        let shape = SHAPES[index];
        let [count, rows, depth, columns] = shape;
        let round = usize::from(kind != DType::F32);
        let transposed = [[false, false], [false, true], [true, false]][(index + round) % 3];
        let tensor = |[seed, rows, columns]: [usize; 3], transposed| {
            let numbers = numbers(seed as u64, [count, rows, columns]);
            on_device(numbers, transposed, kind)
        };
        let a = tensor([index, rows, depth], transposed[0]);
        let b = tensor([index + 100, depth, columns], transposed[1]);
        let expected = expected(&host(a.clone()), &host(b.clone()), shape);
        // Products of narrow operands have narrow results and results in f32.
        let result = [kind, DType::F32][index % 2];
        for (name, product) in products_by_every_kernel(&a, &b, result) {
            used += 1;
            let off = error(&host(product), &expected);
            assert!(
                off < tolerance,
                "{name} of {shape:?}, {kind:?}, {transposed:?}: {off:.2e}"
            );
        }
    }
    used
}

// Two tests of half of the shapes, which run side by side: a software device compiles each kernel for seconds.

#[test]
fn every_kernel_of_f32_is_correct_or_rejects_the_shapes_on_vulkan() {
    let used = products((0..SHAPES.len()).step_by(2), DType::F32, 1e-6);
    // At least two kernels for each of the shapes.
    assert!(used >= 16, "{used}");
}

#[test]
fn every_kernel_of_f32_is_correct_or_rejects_further_shapes_on_vulkan() {
    let used = products((1..SHAPES.len()).step_by(2), DType::F32, 1e-6);
    assert!(used >= 14, "{used}");
}

/// Only devices that support f16 run it. The kernels are those of f32; each reads it with shapes of each transposition.
#[test]
fn every_kernel_of_f16_is_correct_or_rejects_the_shapes_on_vulkan() {
    products([3, 6, 8, 10, 12, 13, 14].into_iter(), DType::F16, 1e-3);
}
