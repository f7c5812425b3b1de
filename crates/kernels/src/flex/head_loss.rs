//! The head's loss.

use burn_flex::{Flex, FlexTensor};

use super::buffer::{all_filled, dense, elements, integers, number, width};
use crate::cpu::head_loss::{self, HeadLossTask};
use crate::{HeadLossGradients, HeadLossOptions, Precision};

pub(super) fn head_loss(
    hidden: FlexTensor,
    weight: FlexTensor,
    targets: FlexTensor,
    options: HeadLossOptions,
    precision: Precision,
) -> FlexTensor {
    let (hidden, weight) = (dense(hidden), dense(weight));
    let targets = integers(&targets);
    number(head_loss::head_loss(&task(
        &hidden, &weight, &targets, options, precision,
    )))
}

pub(super) fn head_loss_gradients(
    hidden: FlexTensor,
    weight: FlexTensor,
    targets: FlexTensor,
    options: HeadLossOptions,
    precision: Precision,
) -> HeadLossGradients<Flex> {
    let (hidden, weight) = (dense(hidden), dense(weight));
    let targets = integers(&targets);
    let task = task(&hidden, &weight, &targets, options, precision);
    let mut loss = 0.0;
    let shapes = [&hidden, &weight].map(|of| of.layout().shape().clone());
    let [hidden, weight] = all_filled(shapes, |[hidden, weight]| {
        loss = head_loss::head_loss_gradients(&task, hidden, weight);
    });
    HeadLossGradients {
        loss: number(loss),
        hidden,
        weight,
    }
}

/// Of dense tensors.
fn task<'a>(
    hidden: &'a FlexTensor,
    weight: &'a FlexTensor,
    targets: &'a [i32],
    options: HeadLossOptions,
    precision: Precision,
) -> HeadLossTask<'a> {
    HeadLossTask {
        hidden: elements(hidden),
        weight: elements(weight),
        targets,
        width: width(hidden),
        vocab: weight.layout().shape()[0],
        options,
        precision,
    }
}
