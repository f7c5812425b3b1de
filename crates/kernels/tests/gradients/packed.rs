//! Compares linear layers with packed weights with the same layers with the unpacked weights.

use burn::backend::Autodiff;
use burn::tensor::{Tensor, TensorData};
use emberlm_kernels::{Backend, LinearInputs, PackedFormat, Precision, ops, reference};

use crate::compare::{
    Reference, assert_all_close, assert_close, constant, host, numbers, primitive, tracked, typed,
    with_gradients,
};

/// Each weight, row-major or transposed, is rounded to the nearest int8 value. The layer's output and the
/// gradient of `x` are those of the rounded weights.
fn linear_int8<B: Backend>(
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
    let (values, scales) = packed.clone().into_tensors();
    assert_eq!(unpacked, (values.float() * scales.clone()).into_data());
    for (row, scale) in host(scales).into_iter().enumerate() {
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
    );
    let x = tracked::<Autodiff<B>, 2>(&data[0]);
    let weight = Tensor::from_inner(weight);
    let y = ops::linear_packed(
        x.clone(),
        ops::pack::<Autodiff<B>>(weight, PackedFormat::Int8),
        parts[0].then(|| constant::<Autodiff<B>, 2>(bias).reshape([out])),
        parts[1].then(|| constant(residual)),
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
            let weight = Tensor::<B, 2>::zeros([3, 5], &Default::default());
            let x = constant::<B, 2>(&numbers(1, [2, 5]));
            let y = ops::linear_packed(x, ops::pack(weight, format), None, None);
            assert_eq!(host(y), [0.0; 6]);
        }
    }
    check::<burn_flex::Flex>();
    check::<burn_ndarray::NdArray>();
}

#[test]
fn non_finite_weights_give_non_finite_outputs() {
    fn check<B: Backend>(format: PackedFormat) {
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut weight: Vec<f32> = numbers(1, [4, 6]).iter::<f32>().collect();
            weight[9] = broken;
            let weight = constant::<B, 2>(&TensorData::new(weight, [4, 6]));
            let x = constant::<B, 2>(&numbers(2, [3, 6]));
            let y = host(ops::linear_packed(x, ops::pack(weight, format), None, None));
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

/// Tests rows of a larger weight and an input that do not start at the beginning of their memory.
#[test]
fn narrowed_rows_are_an_independent_weight() {
    fn check<B: Backend>(format: PackedFormat) {
        let weight = constant::<B, 2>(&numbers(1, [7, 5]));
        let x = constant::<B, 2>(&numbers(2, [3, 11])).narrow(1, 4, 5);
        let rows = ops::pack(weight.clone(), format).narrow_rows(2, 3);
        assert_eq!(rows.shape(), [3, 5]);
        let actual = ops::linear_packed(x.clone(), rows, None, None);
        let unpacked = ops::unpack(ops::pack(weight.narrow(0, 2, 3), format));
        let expected = ops::linear(x, unpacked.transpose(), None, None, Precision::F32);
        assert_close("rows", &host(actual), &host(expected));
    }
    for format in PackedFormat::ALL {
        check::<burn_flex::Flex>(format);
        check::<burn_ndarray::NdArray>(format);
    }
}

/// The kernels of flex unpack and multiply like the reference implementation.
#[test]
fn flex_unpacks_like_the_reference() {
    use burn_flex::Flex;
    for format in PackedFormat::ALL {
        let weight = constant::<Flex, 2>(&numbers(3, [37, 91]));
        let packed = ops::pack(weight.clone(), format);
        let reference = reference::unpack::<Flex>(packed.clone());
        let reference = typed::<Flex, 2>(reference).into_data();
        assert_eq!(ops::unpack(packed).into_data(), reference);
        // One divides and the other multiplies by the inverse, so ties may round in either direction.
        let composed = reference::pack::<Flex>(primitive(weight.clone()), format);
        let composed = host(ops::unpack(composed));
        for ((a, b), w) in composed
            .iter()
            .zip(reference.iter::<f32>())
            .zip(host(weight))
        {
            assert!(((a - w).abs() - (b - w).abs()).abs() < 1e-5, "{a} {b} {w}");
        }
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
