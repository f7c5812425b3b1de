//! Compares lookups in a table split into parts, and the head's loss with it, with the reference implementation
//! for the whole table differentiated by Burn, over random shapes and splits.

use burn::backend::Autodiff;
use burn::tensor::{Int, Tensor, TensorData};
use emberlm_kernels::{Backend, HeadLossInputs, HeadLossOptions, Precision, ops, reference};
use proptest::collection::vec;
use proptest::prelude::Strategy;

use crate::compare::{
    Reference, assert_all_close, constant, host, numbers, primitive, tracked, typed, with_gradients,
};
use crate::head_loss::{Case, options};

/// Draws the number of rows of two to four parts.
fn part_sizes() -> impl Strategy<Value = Vec<usize>> {
    vec(1_usize..9, 2..5)
}

/// Splits a table into separate tensors of consecutive rows.
fn split<B: burn::tensor::backend::AutodiffBackend + Backend>(
    table: &TensorData,
    rows: &[usize],
) -> Vec<Tensor<B, 2>> {
    let whole = constant::<B, 2>(table);
    let mut start = 0;
    let part = |&count: &usize| {
        let part = whole.clone().narrow(0, start, count).into_data();
        start += count;
        tracked::<B, 2>(&part)
    };
    rows.iter().map(part).collect()
}

/// The output, the gradient of `hidden`, and the concatenated gradients of the parts.
fn with_parts<B: Backend, const D: usize>(
    output: Tensor<Autodiff<B>, D>,
    hidden: Option<&Tensor<Autodiff<B>, 2>>,
    parts: &[Tensor<Autodiff<B>, 2>],
) -> Vec<Vec<f32>> {
    let inputs: Vec<_> = hidden.into_iter().chain(parts).collect();
    let mut actual = with_gradients(output, &inputs);
    let table = actual.split_off(actual.len() - parts.len());
    actual.push(table.concat());
    actual
}

pub fn head_loss_in_parts<B: Backend>(
    tokens: usize,
    width: usize,
    rows: Vec<usize>,
    options: HeadLossOptions,
    seed: u64,
) {
    let case = Case::new([tokens, width, rows.iter().sum()], options, seed);
    let hidden = tracked::<Autodiff<B>, 2>(&case.hidden);
    let parts = split::<Autodiff<B>>(&case.weight, &rows);
    let targets = case.targets();
    let loss = ops::head_loss(
        hidden.clone(),
        parts.clone(),
        targets,
        options,
        Precision::F32,
    );
    let actual = with_parts::<B, 1>(loss, Some(&hidden), &parts);
    assert_all_close(&format!("{options:?}"), &actual, &case.expected());
    // Also without gradients, and in blocks of rows.
    let alone = reference::head_loss::<B>(
        HeadLossInputs {
            hidden: primitive(constant::<B, 2>(&case.hidden)),
            weights: split::<Autodiff<B>>(&case.weight, &rows)
                .into_iter()
                .map(|part| primitive(part.inner()))
                .collect(),
            targets: case.targets::<B>().into_primitive(),
            options,
            precision: Precision::F32,
        },
        1 + tokens / 2,
    );
    let alone = host(typed::<B, 1>(alone));
    assert_all_close("only the loss", &[alone], &case.expected()[..1]);
}

fn lookup_in_parts<B: Backend>(shape: [usize; 2], width: usize, rows: Vec<usize>, seed: u64) {
    let count: usize = rows.iter().sum();
    let table = numbers(seed, [count, width]);
    let id = |i: u64| ((seed ^ i.wrapping_mul(0x9e37_79b9)) % count as u64) as i64;
    let ids = (0..(shape[0] * shape[1]) as u64).map(id).collect();
    let ids = TensorData::new(ids, shape);
    let whole = tracked::<Reference, 2>(&table);
    let of = Tensor::<Reference, 2, Int>::from_data(ids.clone(), &Default::default());
    let expected = ops::embedding(whole.clone(), of);
    let expected = with_gradients(expected, &[&whole]);
    let parts = split::<Autodiff<B>>(&table, &rows);
    let of = Tensor::<Autodiff<B>, 2, Int>::from_data(ids, &Default::default());
    let actual = with_parts::<B, 3>(ops::embedding_parts(parts.clone(), of), None, &parts);
    assert_eq!(actual[0], expected[0], "rows are copied");
    assert_all_close("look-up", &actual, &expected);
}

/// Non-finite values in one part do not affect lookups in another.
pub fn non_finite_rows_stay_in_their_part<B: Backend>() {
    let device = Default::default();
    let nan = f32::NAN;
    let parts = [[[nan, nan], [1.0, 2.0]], [[nan, 0.0], [3.0, 4.0]]];
    let parts = parts.map(|rows| Tensor::<B, 2>::from_floats(rows, &device));
    let ids = Tensor::<B, 2, Int>::from_data([[1, 3, 1]], &device);
    let actual = host(ops::embedding_parts(parts.to_vec(), ids));
    assert_eq!(actual, [1.0, 2.0, 3.0, 4.0, 1.0, 2.0]);
}

/// For products of rounded operands, the parts are rounded like the whole table.
pub fn rounded_like_the_whole_table<B: Backend>(precision: Precision) {
    if !B::multiplies_in(precision, &Default::default()) {
        return;
    }
    let options = HeadLossOptions::default();
    let case = Case::new([6, 16, 24], options, 5);
    let hidden = || primitive(constant::<B, 2>(&case.hidden));
    let targets = || case.targets::<B>().into_primitive();
    let whole = reference::head_loss_gradients::<B>(
        HeadLossInputs {
            hidden: hidden(),
            weights: vec![primitive(constant::<B, 2>(&case.weight))],
            targets: targets(),
            options,
            precision,
        },
        usize::MAX,
    );
    let parts = split::<Autodiff<B>>(&case.weight, &[10, 9, 5]).into_iter();
    let parts = reference::head_loss_gradients::<B>(
        HeadLossInputs {
            hidden: hidden(),
            weights: parts.map(|part| primitive(part.inner())).collect(),
            targets: targets(),
            options,
            precision,
        },
        usize::MAX,
    );
    let weights = parts
        .weights
        .into_iter()
        .map(|part| host(typed::<B, 2>(part)));
    let actual = [
        host(typed::<B, 1>(parts.loss)),
        weights.collect::<Vec<_>>().concat(),
    ];
    let expected = [
        host(typed::<B, 1>(whole.loss)),
        host(typed::<B, 2>(whole.weights[0].clone())),
    ];
    // Each row of the weight and each logit is the same product, but sums over the vocabulary have a different
    // order.
    assert_all_close(precision.name(), &actual, &expected);
}

crate::on_backends! {
    head_loss_in_parts(
        tokens in 1_usize..12,
        width in 1_usize..10,
        rows in part_sizes(),
        options in options(),
        seed in 0..u64::MAX - 1,
    );
    lookup_in_parts(
        shape in [1_usize..4, 1_usize..6],
        width in 1_usize..10,
        rows in part_sizes(),
        seed in 0..u64::MAX - 1,
    );
}
