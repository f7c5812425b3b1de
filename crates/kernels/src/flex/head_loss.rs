//! The head's loss.

use burn_flex::{Flex, FlexTensor};

use super::buffer::{dense, dims, elements, filled, integers, number, width};
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
    let (mut loss, mut weight_grad) = (0.0, None);
    let hidden_grad = filled(dims(&hidden), |hidden_out| {
        weight_grad = Some(filled(dims(&weight), |weight_out| {
            loss = head_loss::head_loss_gradients(&task, hidden_out, weight_out);
        }));
    });
    HeadLossGradients {
        loss: number(loss),
        weight: weight_grad.unwrap_or_else(|| hidden_grad.clone()),
        hidden: hidden_grad,
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
