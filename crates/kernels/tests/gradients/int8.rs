//! Maps with weights of 8 bits, against the same map with the weights that those stand for.

use burn::backend::Autodiff;
use burn::tensor::{Tensor, TensorData};
use emberlm_kernels::{Backend, LinearInputs, Precision, ops, reference};

use crate::compare::{
    Reference, assert_all_close, assert_close, constant, host, numbers, primitive, tracked, typed,
    with_gradients,
};

/// The weight as it lies, or turned; its 8 bits are the nearest, and its map's output and gradient by `x` are theirs.
fn linear_int8<B: Backend>(
    [tokens, width, out]: [usize; 3],
    parts: [bool; 2],
    turned: bool,
    seed: u64,
) {
    let weight = match turned {
        true => constant::<B, 2>(&numbers(seed, [width, out])).transpose(),
        false => constant::<B, 2>(&numbers(seed, [out, width])),
    };
    let (values, scales) = ops::quantize_rows(weight.clone());
    let held = values.clone().float() * scales.clone().unsqueeze_dim::<2>(1);
    let held = held.into_data();
    for (row, scale) in host(scales.clone()).into_iter().enumerate() {
        let row = row * width..(row + 1) * width;
        let pairs = host(weight.clone()).into_iter().zip(held.iter::<f32>());
        for (weight, held) in pairs.skip(row.start).take(width) {
            let off = (weight - held).abs() / scale;
            assert!(
                off <= 0.5001,
                "{weight} is held as {held}, {off} of {scale} away"
            );
        }
    }

    let shapes = [[tokens, width], [1, out], [tokens, out]];
    let data = [0, 1, 2].map(|n| numbers(seed + 1 + n as u64, shapes[n]));
    let (bias, residual) = (&data[1], &data[2]);
    let row = |bias: Tensor<B, 2>| bias.reshape([out]);
    let plain = ops::linear_int8(
        constant::<B, 2>(&data[0]),
        (values.clone(), scales.clone()),
        parts[0].then(|| row(constant(bias))),
        parts[1].then(|| constant(residual)),
    );
    let x = tracked::<Autodiff<B>, 2>(&data[0]);
    let y = ops::linear_int8(
        x.clone(),
        (Tensor::from_inner(values), Tensor::from_inner(scales)),
        parts[0].then(|| constant::<Autodiff<B>, 2>(bias).reshape([out])),
        parts[1].then(|| constant(residual)),
    );
    let found = with_gradients(y, &[&x]);

    let x = tracked::<Reference, 2>(&data[0]);
    let inputs = LinearInputs {
        x: primitive(x.clone()),
        weight: primitive(constant::<Reference, 2>(&held).transpose()),
        bias: parts[0].then(|| primitive(constant::<Reference, 2>(bias).reshape([out]))),
        residual: parts[1].then(|| primitive(constant::<Reference, 2>(residual))),
    };
    let y = reference::linear::<Reference>(inputs, Precision::F32);
    let expected = with_gradients(typed::<Reference, 2>(y), &[&x]);
    assert_close("plain", &host(plain), &expected[0]);
    assert_all_close("differentiated", &found, &expected);
}

#[test]
fn rows_of_zeros_stay_zeros() {
    fn check<B: Backend>() {
        let weight = Tensor::<B, 2>::zeros([3, 5], &Default::default());
        let (values, scales) = ops::quantize_rows(weight);
        let x = constant::<B, 2>(&numbers(1, [2, 5]));
        assert_eq!(
            host(ops::linear_int8(x, (values, scales), None, None)),
            [0.0; 6]
        );
    }
    check::<burn_flex::Flex>();
    check::<burn_ndarray::NdArray>();
}

#[test]
fn what_is_no_number_stays_none() {
    fn check<B: Backend>() {
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut weight: Vec<f32> = numbers(1, [4, 6]).iter::<f32>().collect();
            weight[9] = broken;
            let weight = constant::<B, 2>(&TensorData::new(weight, [4, 6]));
            let x = constant::<B, 2>(&numbers(2, [3, 6]));
            let y = host(ops::linear_int8(x, ops::quantize_rows(weight), None, None));
            for (at, y) in y.into_iter().enumerate() {
                assert_eq!(y.is_finite(), at % 4 != 1, "{broken} {at}");
            }
        }
    }
    check::<burn_flex::Flex>();
    check::<burn_ndarray::NdArray>();
}

/// What is a part of a larger tensor, and lies elsewhere than at its beginning.
#[test]
fn a_part_of_the_rows_is_their_map() {
    fn check<B: Backend>() {
        let weight = constant::<B, 2>(&numbers(1, [7, 5]));
        let x = constant::<B, 2>(&numbers(2, [3, 11])).narrow(1, 4, 5);
        let (values, scales) = ops::quantize_rows(weight.clone());
        let part = (values.narrow(0, 2, 3), scales.narrow(0, 2, 3));
        let found = ops::linear_int8(x.clone(), part, None, None);
        let (values, scales) = ops::quantize_rows(weight.narrow(0, 2, 3));
        let held = values.float() * scales.unsqueeze_dim::<2>(1);
        let expected = ops::linear(x, held.transpose(), None, None, Precision::F32);
        assert_close("part", &host(found), &host(expected));
    }
    check::<burn_flex::Flex>();
    check::<burn_ndarray::NdArray>();
}

crate::on_backends! {
    linear_int8(
        shape in [1_usize..24, 1..70, 1..120],
        parts in [any::<bool>(), any::<bool>()],
        turned in any::<bool>(),
        seed in 0..u64::MAX - 4,
    );
}
