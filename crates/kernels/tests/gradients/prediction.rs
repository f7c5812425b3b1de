//! A weight that only predicts: the same numbers, and the same map within rounding.

use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::{Backend, Precision, ops};

use crate::compare::{assert_close, constant, host, numbers};

fn check<B: Backend>([rows, width, out]: [usize; 3]) {
    let weight = || constant::<B, 2>(&numbers(1, [width, out]));
    let x = || constant::<B, 2>(&numbers(2, [rows, width]));
    let held = ops::weight_for_prediction(weight());
    assert_eq!(held.dims(), [width, out]);
    assert_eq!(host(held.clone()), host(weight()));
    let [found, expected] =
        [held, weight()].map(|weight| host(ops::linear(x(), weight, None, None, Precision::F32)));
    assert_close("linear", &found, &expected);
}

#[test]
fn a_weight_for_prediction_makes_the_same_map() {
    for sizes in [
        [1, 1, 1],
        [1, 33, 65],
        [3, 100, 7],
        [20, 64, 96],
        [1, 300, 1],
    ] {
        check::<Flex>(sizes);
        check::<NdArray>(sizes);
    }
}
