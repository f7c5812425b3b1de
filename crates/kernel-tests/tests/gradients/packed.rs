//! Compares linear layers with packed weights with the same layers with the unpacked weights.

use burn::backend::Autodiff;
use burn::tensor::{Tensor, TensorData};
use emberlm_kernels::cpu::packed::split_int8;
use emberlm_kernels::{Backend, LinearInputs, PackedFormat, Precision, ops, reference};

use crate::compare::{
    Reference, assert_all_close, assert_close, constant, host, numbers, primitive, tracked, typed,
    with_gradients,
};

/// Each weight, row-major or transposed, is rounded to the nearest int8 value. The layer's output and the
/// gradient of `x` are those of the rounded weights.
pub fn linear_int8<B: Backend>(
    [tokens, width, out]: [usize; 3],
    parts: [bool; 2],
    transposed: bool,
    seed: u64,
) {
    let weight = match transposed {
        true => constant::<B, 2>(&numbers(seed, [width, out])).transpose(),
        false => constant::<B, 2>(&numbers(seed, [out, width])),
    };
    let packed = ops::pack(weight.clone(), PackedFormat::Int8);
    assert_eq!(packed.shape(), [out, width]);
    let unpacked = ops::unpack(packed.clone()).into_data();
    let matrix = packed.to_host();
    for row in 0..out {
        let (scale, _) = split_int8(matrix.view().row(row));
        let row = row * width..(row + 1) * width;
        let pairs = host(weight.clone()).into_iter().zip(unpacked.iter::<f32>());
        for (weight, unpacked) in pairs.skip(row.start).take(width) {
            let error = (weight - unpacked).abs() / scale;
            assert!(
                error <= 0.5001,
                "{weight} is packed as {unpacked}, {error} of {scale} off"
            );
        }
    }

    let shapes = [[tokens, width], [1, out], [tokens, out]];
    let data = [0, 1, 2].map(|n| numbers(seed + 1 + n as u64, shapes[n]));
    let (bias, residual) = (&data[1], &data[2]);
    let row = |bias: Tensor<B, 2>| bias.reshape([out]);
    let plain = ops::linear_packed(
        constant::<B, 2>(&data[0]),
        packed,
        parts[0].then(|| row(constant(bias))),
        parts[1].then(|| constant(residual)),
        Precision::F32,
    );
    let x = tracked::<Autodiff<B>, 2>(&data[0]);
    let weight = Tensor::from_inner(weight);
    let y = ops::linear_packed(
        x.clone(),
        ops::pack::<Autodiff<B>>(weight, PackedFormat::Int8),
        parts[0].then(|| constant::<Autodiff<B>, 2>(bias).reshape([out])),
        parts[1].then(|| constant(residual)),
        Precision::F32,
    );
    let actual = with_gradients(y, &[&x]);

    let x = tracked::<Reference, 2>(&data[0]);
    let inputs = LinearInputs {
        x: primitive(x.clone()),
        weight: primitive(constant::<Reference, 2>(&unpacked).transpose()),
        bias: parts[0].then(|| primitive(constant::<Reference, 2>(bias).reshape([out]))),
        residual: parts[1].then(|| primitive(constant::<Reference, 2>(residual))),
    };
    let y = reference::linear::<Reference>(inputs, Precision::F32);
    let expected = with_gradients(typed::<Reference, 2>(y), &[&x]);
    assert_close("plain", &host(plain), &expected[0]);
    assert_all_close("differentiated", &actual, &expected);
}

#[test]
fn rows_of_zeros_stay_zeros() {
    fn check<B: Backend>() {
        for format in PackedFormat::ALL {
            let weight = Tensor::<B, 2>::zeros([3, 256], &Default::default());
            let x = constant::<B, 2>(&numbers(1, [2, 256]));
            let y = ops::linear_packed(x, ops::pack(weight, format), None, None, Precision::F32);
            // The smallest scale of mxfp4 is 2^-128, so that a sum may be off by subnormal numbers.
            let is_zero = |y: &f32| {
                y.abs() < f32::MIN_POSITIVE && (*y == 0.0 || format == PackedFormat::Mxfp4)
            };
            assert!(host(y).iter().all(is_zero), "{format:?}");
        }
    }
    check::<burn_flex::Flex>();
    check::<burn_ndarray::NdArray>();
}

#[test]
fn non_finite_weights_give_non_finite_outputs() {
    fn check<B: Backend>(format: PackedFormat) {
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut weight: Vec<f32> = numbers(1, [4, 256]).iter::<f32>().collect();
            weight[300] = broken;
            let weight = constant::<B, 2>(&TensorData::new(weight, [4, 256]));
            let x = constant::<B, 2>(&numbers(2, [3, 256]));
            let y = host(ops::linear_packed(
                x,
                ops::pack(weight, format),
                None,
                None,
                Precision::F32,
            ));
            for (at, y) in y.into_iter().enumerate() {
                assert_eq!(y.is_finite(), at % 4 != 1, "{broken} {at}");
            }
        }
    }
    for format in PackedFormat::ALL {
        check::<burn_flex::Flex>(format);
        check::<burn_ndarray::NdArray>(format);
    }
}

/// Rounds each 32 elements to 8 bits, as products with blocks of integers do on `flex`.
fn rounded_to_8_bits<B: Backend>(format: PackedFormat, x: Tensor<B, 2>) -> Tensor<B, 2> {
    if format.block_len() == 1 {
        return x;
    }
    let shape = x.dims();
    let mut values = host(x);
    for block in values.chunks_mut(32) {
        let largest = block.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        for x in block {
            *x = (*x * (127.0 / largest)).round_ties_even() * (largest / 127.0);
        }
    }
    constant(&TensorData::new(values, shape))
}

/// Tests rows of a larger weight and an input that do not start at the beginning of their memory.
#[test]
fn narrowed_rows_are_an_independent_weight() {
    fn check<B: Backend>(format: PackedFormat, rounded: impl Fn(Tensor<B, 2>) -> Tensor<B, 2>) {
        let weight = constant::<B, 2>(&numbers(1, [7, 512]));
        let x = constant::<B, 2>(&numbers(2, [3, 519])).narrow(1, 4, 512);
        let rows = ops::pack(weight.clone(), format).narrow_rows(2, 3);
        assert_eq!(rows.shape(), [3, 512]);
        let actual = ops::linear_packed(x.clone(), rows, None, None, Precision::F32);
        let unpacked = ops::unpack(ops::pack(weight.narrow(0, 2, 3), format));
        let x = rounded(x);
        let expected = ops::linear(x, unpacked.transpose(), None, None, Precision::F32);
        assert_close("rows", &host(actual), &host(expected));
    }
    for format in PackedFormat::ALL {
        check::<burn_flex::Flex>(format, |x| rounded_to_8_bits(format, x));
        check::<burn_ndarray::NdArray>(format, |x| x);
    }
}

/// All backends hold the same rounded weights.
#[test]
fn backends_round_alike() {
    for format in PackedFormat::ALL {
        let weight = numbers(3, [37, 256]);
        let flex = ops::unpack(ops::pack(constant::<burn_flex::Flex, 2>(&weight), format));
        let ndarray = ops::pack(constant::<burn_ndarray::NdArray, 2>(&weight), format);
        assert_eq!(host(flex), host(ops::unpack(ndarray)), "{}", format.name());
    }
}

/// The kernels for one, two and many rows of `x` agree with the product of the unpacked weight.
#[test]
fn products_equal_those_of_the_unpacked_weight() {
    use burn_flex::Flex;
    for format in PackedFormat::ALL {
        let packed = ops::pack(constant::<Flex, 2>(&numbers(1, [101, 512])), format);
        let unpacked = ops::unpack(packed.clone()).transpose();
        for rows in [1, 2, 5, 130] {
            let x = constant::<Flex, 2>(&numbers(2, [rows, 512]));
            let found = ops::linear_packed(x.clone(), packed.clone(), None, None, Precision::F32);
            let x = rounded_to_8_bits(format, x);
            let expected = ops::linear(x, unpacked.clone(), None, None, Precision::F32);
            assert_close(format.name(), &host(found), &host(expected));
        }
    }
}

/// A frozen layer under an adapter computes in the precision of the run: as if its weight were not packed.
#[test]
fn training_rounds_factors_to_the_precision() {
    fn check<B: Backend>(precision: Precision) {
        let weight = ops::pack(
            constant::<Autodiff<B>, 2>(&numbers(1, [70, 64])),
            PackedFormat::Q8_0,
        );
        let unpacked = ops::unpack(weight.clone()).transpose();
        let data = numbers(2, [40, 64]);
        let x = tracked::<Autodiff<B>, 2>(&data);
        let found = with_gradients(
            ops::linear_packed(x.clone(), weight, None, None, precision),
            &[&x],
        );
        let x = tracked::<Autodiff<B>, 2>(&data);
        let expected = with_gradients(
            ops::linear(x.clone(), unpacked, None, None, precision),
            &[&x],
        );
        assert_all_close(precision.name(), &found, &expected);
    }
    for precision in [Precision::F32, Precision::Bf16] {
        check::<burn_flex::Flex>(precision);
        check::<burn_ndarray::NdArray>(precision);
    }
}

crate::on_backends! {
    linear_int8(
        shape in [1_usize..24, 1..70, 1..120],
        parts in [any::<bool>(), any::<bool>()],
        transposed in any::<bool>(),
        seed in 0..u64::MAX - 4,
    );
}
