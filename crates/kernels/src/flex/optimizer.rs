//! The AdamW update, in place where tensors are not shared, and the operations of gradient clipping.

use burn_flex::{Flex, FlexTensor};

use super::buffer::{dense, elements, elements_mut, filled, number};
use crate::cpu::{adamw, reduce};
use crate::{AdamWInputs, AdamWOutputs};

pub(super) fn adamw(inputs: AdamWInputs<Flex>, factor: Option<FlexTensor>) -> AdamWOutputs<Flex> {
    let AdamWInputs {
        parameter,
        grad,
        moments: (moment1, moment2),
        step,
    } = inputs;
    let [mut parameter, grad, mut moment1, mut moment2] =
        [parameter, grad, moment1, moment2].map(dense);
    let factor = factor.map_or(1.0, |factor| elements(&dense(factor))[0]);
    if factor < 0.0 {
        return (parameter, moment1, moment2);
    }
    adamw::adamw(
        elements_mut(&mut parameter),
        elements(&grad),
        elements_mut(&mut moment1),
        elements_mut(&mut moment2),
        factor,
        step,
    );
    (parameter, moment1, moment2)
}

pub(super) fn sum_of_squares(x: FlexTensor) -> FlexTensor {
    number(adamw::sum_of_squares(elements(&dense(x))))
}

pub(super) fn chunk_sums_of_squares(x: FlexTensor) -> FlexTensor {
    let x = dense(x);
    let sums = adamw::chunk_sums_of_squares(elements(&x));
    filled([sums.len()], |out| out.copy_from_slice(&sums))
}

pub(super) fn scaled(x: FlexTensor, factor: FlexTensor) -> FlexTensor {
    let factor = elements(&dense(factor))[0];
    if factor == 1.0 {
        return x;
    }
    let mut x = dense(x);
    reduce::scale_in_place(elements_mut(&mut x), factor);
    x
}
