//! The head with its loss.

use burn::tensor::Shape;
use burn_flex::{Flex, FlexTensor};

use super::buffer::{all_filled, dense, elements, integers, is_f32, number, width};
use crate::cpu::head_loss::{self, HeadLossTask};
use crate::{HeadLossGradients, HeadLossInputs, Precision, reference};

pub(super) fn head_loss(weight: FlexTensor, inputs: HeadLossInputs<Flex>) -> FlexTensor {
    with_task(weight, inputs, |task, _| number(head_loss::head_loss(task)))
}

pub(super) fn head_loss_gradients(
    weight: FlexTensor,
    inputs: HeadLossInputs<Flex>,
) -> HeadLossGradients<Flex> {
    with_task(weight, inputs, |task, shapes| {
        let mut loss = 0.0;
        let [hidden, weight] = all_filled(shapes, |[hidden, weight]| {
            loss = head_loss::head_loss_gradients(task, hidden, weight);
        });
        HeadLossGradients {
            loss: number(loss),
            hidden,
            weights: vec![weight],
        }
    })
}

pub(super) fn head_loss_hidden_gradient(
    weight: FlexTensor,
    inputs: HeadLossInputs<Flex>,
) -> (FlexTensor, FlexTensor) {
    with_task(weight, inputs, |task, [shape, _]| {
        let mut loss = 0.0;
        let [hidden] = all_filled([shape], |[hidden]| {
            loss = head_loss::head_loss_hidden_gradient(task, hidden);
        });
        (number(loss), hidden)
    })
}

/// The weight, if the kernel supports the inputs, which requires a single part and f32.
pub(super) fn single_part(inputs: &HeadLossInputs<Flex>) -> Option<FlexTensor> {
    match inputs.weights.as_slice() {
        [weight] => is_f32(&[&inputs.hidden, weight]).then(|| weight.clone()),
        _ => None,
    }
}

/// The inputs for the reference implementation, and the rows of its blocks.
pub(super) fn in_blocks(mut inputs: HeadLossInputs<Flex>) -> (HeadLossInputs<Flex>, usize) {
    if !is_f32(&[&inputs.hidden]) {
        inputs.precision = Precision::F32;
    }
    reference::in_blocks::<Flex>(inputs)
}

/// Calls the CPU kernel with dense inputs, and the shapes of hidden states and weight.
fn with_task<T>(
    weight: FlexTensor,
    inputs: HeadLossInputs<Flex>,
    compute: impl FnOnce(&HeadLossTask<'_>, [Shape; 2]) -> T,
) -> T {
    let (hidden, weight) = (dense(inputs.hidden), dense(weight));
    let targets = integers(&inputs.targets);
    let task = HeadLossTask {
        hidden: elements(&hidden),
        weight: elements(&weight),
        targets: &targets,
        width: width(&hidden),
        vocab: weight.layout().shape()[0],
        options: inputs.options,
        precision: inputs.precision,
    };
    compute(
        &task,
        [&hidden, &weight].map(|of| of.layout().shape().clone()),
    )
}
