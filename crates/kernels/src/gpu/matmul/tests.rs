//! Tests every candidate kernel rather than only the chosen one, since the fastest kernel varies between runs.

use burn::backend::wgpu::WgpuRuntime;
use burn::tensor::{DType, Shape, Tensor, TensorData, TensorPrimitive};
use burn_cubecl::CubeBackend;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use emberlm_system::random::split_mix;

use super::kernels;
use super::key::Key;

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

#[test]
fn every_kernel_is_correct_or_rejects_the_shapes_on_vulkan() {
    let mut used = 0;
    for (round, (kind, tolerance)) in [(DType::F32, 1e-6), (DType::F16, 1e-3)]
        .into_iter()
        .enumerate()
    {
        for (index, shape) in SHAPES.into_iter().enumerate() {
            let [count, rows, depth, columns] = shape;
            let transposed = [[false, false], [false, true], [true, false]][(index + round) % 3];
            let tensor = |[seed, rows, columns]: [usize; 3], transposed| {
                let numbers = numbers(seed as u64, [count, rows, columns]);
                on_device(numbers, transposed, kind)
            };
            let a = tensor([index, rows, depth], transposed[0]);
            let b = tensor([index + 100, depth, columns], transposed[1]);
            let expected = expected(&host(a.clone()), &host(b.clone()), shape);
            for kernel in kernels::all() {
                // Products of narrow operands have narrow results and results in f32.
                let result = [kind, DType::F32][index % 2];
                let output = empty_device_contiguous_dtype(
                    a.client.clone(),
                    a.device.clone(),
                    Shape::new([count, rows, columns]),
                    result,
                );
                let key = Key::between(&a, &b, &output);
                let is_tried = kernel.class.priority(&key) >= 0 && kernel.priority(&key) >= 0;
                if is_tried
                    && kernels::launch(&kernel.method, a.clone(), b.clone(), output.clone()).is_ok()
                {
                    used += 1;
                    let off = error(&host(output), &expected);
                    let method = &kernel.method;
                    assert!(
                        off < tolerance,
                        "{method} of {shape:?}, {kind:?}, {transposed:?}: {off:.2e}"
                    );
                }
            }
        }
    }
    // At least two kernels for each of the 15 shapes in f32; f16 only runs on devices that support it.
    assert!(used >= 30, "{used}");
}
