//! The head with its loss.

use burn_flex::{Flex, FlexTensor};

use super::buffer::{all_filled, dense, elements, integers, is_f32, number, width};
use crate::base_ops::usable;
use crate::cpu::head_loss::{self, HeadLossTask};
use crate::{HeadLossGradients, HeadLossOptions, Precision, reference};

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
        weights: vec![weight],
    }
}

pub(super) fn head_loss_hidden_gradient(
    hidden: FlexTensor,
    weight: FlexTensor,
    targets: FlexTensor,
    options: HeadLossOptions,
    precision: Precision,
) -> (FlexTensor, FlexTensor) {
    let (hidden, weight) = (dense(hidden), dense(weight));
    let targets = integers(&targets);
    let task = task(&hidden, &weight, &targets, options, precision);
    let mut loss = 0.0;
    let [hidden] = all_filled([hidden.layout().shape().clone()], |[hidden]| {
        loss = head_loss::head_loss_hidden_gradient(&task, hidden);
    });
    (number(loss), hidden)
}

/// Returns the weight if the kernel supports it, which requires a single part in f32, and the parts unchanged
/// otherwise.
pub(super) fn single_part(
    hidden: &FlexTensor,
    weights: Vec<FlexTensor>,
) -> Result<FlexTensor, Vec<FlexTensor>> {
    match <[_; 1]>::try_from(weights) {
        Ok([weight]) if is_f32(&[hidden, &weight]) => Ok(weight),
        other => Err(other.map_or_else(|parts| parts, Vec::from)),
    }
}

/// The rows per block and the precision for the reference implementation.
pub(super) fn reference_settings(
    hidden: &FlexTensor,
    weights: &[FlexTensor],
    precision: Precision,
) -> (usize, Precision) {
    let rows = weights.iter().map(|part| part.layout().shape()[0]).sum();
    let precision = match is_f32(&[hidden]) {
        true => usable::<Flex>(precision, hidden),
        false => Precision::F32,
    };
    (
        reference::rows_per_block(rows, reference::BLOCK_BYTES),
        precision,
    )
}

/// Collects dense tensors into the arguments of the CPU kernel.
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
