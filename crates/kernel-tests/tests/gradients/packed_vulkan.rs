//! Compares packed weights on a Vulkan device with the CPU's: values and bytes to the bit, products with those of the
//! unpacked weight in f32.

use burn::backend::{Autodiff, Vulkan};
use burn::module::AutodiffModule;
use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_kernels::cpu::packed::{PackedMatrix, unpack};
use emberlm_kernels::{Activation, PackedFormat, PackedWeight, Precision, ops};

use crate::compare::{assert_close, constant, host, numbers};
use crate::packed;

/// Shapes with odd numbers of rows, several blocks per row and, for formats without blocks, odd numbers of columns.
fn shapes(format: PackedFormat) -> Vec<[usize; 2]> {
    match format.block_len() {
        1 => vec![[7, 1], [5, 7], [3, 70], [9, 513]],
        block => vec![[5, block], [7, 512], [3, 768]],
    }
}

/// A weight of arbitrary bytes, which have every level and scale, infinite ones and NaN included. Only subnormal scales of
/// mxfp4, which devices may round to 0, are replaced by the smallest normal one.
fn arbitrary(format: PackedFormat, shape: [usize; 2], seed: u64) -> PackedMatrix {
    let drawn = numbers(seed, [format.bytes(shape)]);
    let mut bytes: Vec<u8> = drawn
        .iter::<f32>()
        .map(|x| (x.to_bits() >> 4) as u8)
        .collect();
    if format == PackedFormat::Mxfp4 {
        for block in bytes.chunks_mut(format.block_bytes()) {
            block[0] = block[0].max(2);
        }
    }
    PackedMatrix::new(format, shape, bytes).unwrap()
}

fn on_vulkan(matrix: &PackedMatrix) -> PackedWeight<Vulkan> {
    ops::packed_from_host(matrix.clone(), &Default::default())
}

fn unpacked(matrix: &PackedMatrix) -> Vec<f32> {
    let mut values = vec![0.0; matrix.shape().iter().product()];
    unpack(matrix.view(), &mut values);
    values
}

/// Asserts that two lists have the same bits, except in NaN.
fn assert_same_bits(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        assert!(same, "{what}: {found:e} at {at}, not {expected:e}");
    }
}

#[test]
fn values_and_bytes_equal_the_cpus() {
    for format in PackedFormat::ALL {
        for (seed, shape) in shapes(format).into_iter().enumerate() {
            let what = format!("{} {shape:?}", format.name());
            let matrix = arbitrary(format, shape, seed as u64);
            let packed = on_vulkan(&matrix);
            assert_eq!(packed.shape(), shape);
            assert_eq!(packed.to_host(), matrix, "{what}");
            let expected = unpacked(&matrix);
            assert_same_bits(&what, &host(ops::unpack(packed.clone())), &expected);

            let [rows, columns] = shape;
            let ids: Vec<i32> = [0, rows - 1, 1, 1, rows / 2, 0].map(|id| id as i32).into();
            let looked_up = ids.iter().flat_map(|&id| {
                let start = id as usize * columns;
                expected[start..start + columns].to_vec()
            });
            let data = TensorData::new(ids.clone(), [2, 3]);
            let ids = Tensor::<Vulkan, 2, Int>::from_data(data, &Default::default());
            let looked_up: Vec<f32> = looked_up.collect();
            let found = host(ops::embedding_packed(packed.clone(), ids.clone()));
            assert_same_bits(&what, &found, &looked_up);
            let packed = PackedWeight::<Autodiff<Vulkan>>::from_inner(packed);
            let found = host(ops::embedding_packed(packed, Tensor::from_inner(ids)));
            assert_same_bits(&what, &found, &looked_up);
        }
    }
}

/// Numbers of rows of one cube and of several, and of the product of the unpacked weight.
#[test]
fn products_equal_those_of_the_unpacked_weight() {
    for (n, format) in PackedFormat::ALL.into_iter().enumerate() {
        let columns = if format.block_len() == 1 { 203 } else { 768 };
        let weight = numbers(1, [33, columns]);
        let weight = ops::pack(constant::<Flex, 2>(&weight), format).to_host();
        let values = TensorData::new(unpacked(&weight), weight.shape());
        let packed = on_vulkan(&weight);
        // A device compiles a kernel for each number of rows.
        let all = [1, 3, 8, 9, 17, 33];
        let some = [1, [3, 8, 17][n % 3], 33];
        let rows: &[usize] = if n % 5 == 0 { &all } else { &some };
        for &rows in rows {
            let data = [numbers(2, [rows, columns]), numbers(3, [rows, 33])];
            let bias = numbers(4, [33]);
            let of_vulkan = || {
                let [x, residual] = [0, 1].map(|n| constant::<Vulkan, 2>(&data[n]));
                let y = ops::linear_packed(
                    x,
                    packed.clone(),
                    Some(constant(&bias)),
                    Some(residual),
                    Precision::F32,
                );
                host(y)
            };
            let [x, residual] = [0, 1].map(|n| constant::<Flex, 2>(&data[n]));
            let w = constant::<Flex, 2>(&values).transpose();
            let expected = ops::linear(x, w, Some(constant(&bias)), Some(residual), Precision::F32);
            let what = format!("{}, {rows} rows", format.name());
            let found = of_vulkan();
            assert_close(&what, &found, &host(expected));
            assert_eq!(found, of_vulkan(), "{what} in two runs");
        }
    }
}

#[test]
fn activations_are_applied() {
    let weight = ops::pack(
        constant::<Flex, 2>(&numbers(1, [5, 64])),
        PackedFormat::Q5_1,
    )
    .to_host();
    let values = TensorData::new(unpacked(&weight), weight.shape());
    for (rows, kind) in [1, 20]
        .into_iter()
        .zip([Activation::Gelu, Activation::Silu])
    {
        let (x, bias) = (numbers(2, [rows, 64]), numbers(3, [5]));
        let bias_on_vulkan = Some(constant(&bias));
        let x_on_vulkan = constant::<Vulkan, 2>(&x);
        let packed = on_vulkan(&weight);
        let found = ops::linear_packed_activation(
            kind,
            x_on_vulkan,
            packed,
            bias_on_vulkan,
            Precision::F32,
        );
        let w = constant::<Flex, 2>(&values).transpose();
        let bias = Some(constant(&bias));
        let x = constant::<Flex, 2>(&x);
        let expected = ops::linear_activation(kind, x, w, bias, Precision::F32);
        assert_close("activation", &host(found), &host(expected));
    }
}

#[test]
fn narrowed_rows_keep_their_bytes_and_values() {
    for format in [
        PackedFormat::Int8,
        PackedFormat::Q4_0,
        PackedFormat::Mxfp4,
        PackedFormat::Q6K,
    ] {
        let matrix = arbitrary(format, [9, 256], 1);
        let rows = on_vulkan(&matrix).narrow_rows(3, 5);
        assert_eq!(rows.shape(), [5, 256]);
        let bytes = &matrix.bytes()[format.bytes([3, 256])..format.bytes([8, 256])];
        assert_eq!(rows.to_host().bytes(), bytes, "{}", format.name());
        let expected = &unpacked(&matrix)[3 * 256..8 * 256];
        assert_same_bits(format.name(), &host(ops::unpack(rows.clone())), expected);
        let x = constant::<Vulkan, 2>(&numbers(2, [2, 256]));
        let whole = ops::linear_packed(x.clone(), on_vulkan(&matrix), None, None, Precision::F32);
        let part = ops::linear_packed(x, rows, None, None, Precision::F32);
        assert_same_bits(format.name(), &host(part), &host(whole.narrow(1, 3, 5)));
    }
}

/// A row with an odd number of bytes, and the gradient of the input.
#[test]
fn layers_are_differentiated() {
    packed::linear_int8::<Vulkan>([3, 41, 21], [true, true], false, 1);
    packed::linear_int8::<Vulkan>([20, 7, 5], [true, false], true, 2);
}
