//! Compares the head's loss, whole and in blocks of any size, with its reference implementation in a single block
//! differentiated by Burn. Some targets are ignored. `pytorch` compares it with PyTorch.

use burn::backend::Autodiff;
use burn::tensor::{Int, Tensor, TensorData};
use emberlm_kernels::{
    Backend, HeadLossGradients, HeadLossInputs, HeadLossOptions, Precision, ops, reference,
};
use proptest::prelude::Strategy;
use proptest::sample::select;

use crate::compare::{
    Reference, assert_all_close, assert_close, assert_same, constant, host, numbers, primitive,
    tracked, typed, with_gradients,
};

/// The inputs of a case.
pub struct Case {
    pub hidden: TensorData,
    pub weight: TensorData,
    targets: TensorData,
    options: HeadLossOptions,
}

impl Case {
    pub fn new([tokens, width, vocab]: [usize; 3], options: HeadLossOptions, seed: u64) -> Self {
        let target = |i: u64| match seed.wrapping_add(i) % 3 {
            0 => -1,
            _ => ((seed ^ i.wrapping_mul(0x9e37_79b9)) % vocab as u64) as i64,
        };
        let targets = (0..tokens as u64).map(target);
        Self {
            hidden: numbers(seed, [tokens, width]),
            weight: numbers(seed + 1, [vocab, width]),
            targets: TensorData::new(targets.collect(), [tokens]),
            options,
        }
    }

    pub fn targets<B: Backend>(&self) -> Tensor<B, 1, Int> {
        Tensor::from_data(self.targets.clone(), &Default::default())
    }

    /// Output and gradients of the reference implementation with all tokens in one block.
    pub fn expected(&self) -> Vec<Vec<f32>> {
        let hidden = tracked::<Reference, 2>(&self.hidden);
        let weight = tracked::<Reference, 2>(&self.weight);
        let made = reference::head_loss::<Reference>(
            HeadLossInputs {
                hidden: primitive(hidden.clone()),
                weights: vec![primitive(weight.clone())],
                targets: self.targets::<Reference>().into_primitive(),
                options: self.options,
                precision: Precision::F32,
            },
            usize::MAX,
        );
        with_gradients(typed::<Reference, 1>(made), &[&hidden, &weight])
    }
}

/// Every combination of options.
pub fn options() -> impl Strategy<Value = HeadLossOptions> {
    let terms = (
        select(vec![0.0, 0.1, 0.6]),
        select(vec![0.0, 1e-4, 0.05]),
        select(vec![0.0, 3.0, 30.0]),
    );
    terms.prop_map(|(label_smoothing, z_loss, soft_cap)| HeadLossOptions {
        label_smoothing,
        z_loss,
        soft_cap,
    })
}

pub fn head_loss<B: Backend>(shape: [usize; 3], options: HeadLossOptions, seed: u64) {
    let case = Case::new(shape, options, seed);
    let actual = outcome::<B>(&case);
    assert_all_close(&format!("{options:?}"), &actual, &case.expected());
}

/// Loss and gradients through the operation that the model calls.
fn outcome<B: Backend>(case: &Case) -> Vec<Vec<f32>> {
    let hidden = tracked::<Autodiff<B>, 2>(&case.hidden);
    let weight = tracked::<Autodiff<B>, 2>(&case.weight);
    let (h, w) = (hidden.clone(), weight.clone());
    let loss = ops::head_loss(h, vec![w], case.targets(), case.options, Precision::F32);
    with_gradients(loss, &[&hidden, &weight])
}

fn blocks<B: Backend>(shape: [usize; 3], rows: usize, options: HeadLossOptions, seed: u64) {
    let case = Case::new(shape, options, seed);
    let made = |rows| -> HeadLossGradients<B> {
        reference::head_loss_gradients::<B>(
            HeadLossInputs {
                hidden: primitive(constant::<B, 2>(&case.hidden)),
                weights: vec![primitive(constant::<B, 2>(&case.weight))],
                targets: case.targets::<B>().into_primitive(),
                options,
                precision: Precision::F32,
            },
            rows,
        )
    };
    let (in_blocks, whole) = (made(rows), made(usize::MAX));
    let parts = |made: HeadLossGradients<B>| {
        let loss = host(typed::<B, 1>(made.loss));
        let hidden = host(typed::<B, 2>(made.hidden));
        let [weight] = <[_; 1]>::try_from(made.weights).unwrap();
        vec![loss, hidden, host(typed::<B, 2>(weight))]
    };
    assert_all_close("blocks", &parts(in_blocks), &parts(whole));
    let loss = reference::head_loss::<B>(
        HeadLossInputs {
            hidden: primitive(constant::<B, 2>(&case.hidden)),
            weights: vec![primitive(constant::<B, 2>(&case.weight))],
            targets: case.targets::<B>().into_primitive(),
            options,
            precision: Precision::F32,
        },
        rows,
    );
    let loss = host(typed::<B, 1>(loss));
    assert_close("only the loss, in blocks", &loss, &case.expected()[0]);
}

/// The losses of the tokens, each with its own gradient, whose logits the backward pass computes again in blocks.
pub fn head_losses<B: Backend>(shape: [usize; 3], options: HeadLossOptions, seed: u64) {
    let case = Case::new(shape, options, seed);
    assert_same::<B, _, 2, _>(
        &format!("{options:?}"),
        &[case.hidden.clone(), case.weight.clone()],
        |[hidden, weight]| {
            let weights = vec![weight];
            let losses = ops::head_losses(hidden, weights, case.targets(), options, Precision::F32);
            let sum: f32 = host(losses.clone().inner()).iter().sum();
            assert_close("the sum", &[sum], &case.expected()[0]);
            losses
        },
        |[hidden, weight]| {
            typed(reference::head_losses::<Reference>(
                HeadLossInputs {
                    hidden: primitive(hidden),
                    weights: vec![primitive(weight)],
                    targets: case.targets::<Reference>().into_primitive(),
                    options,
                    precision: Precision::F32,
                },
                usize::MAX,
            ))
        },
    );
}

/// If all targets are ignored, the loss and all gradients are 0 rather than NaN. Blocks in which all rows are
/// ignored occur in the properties.
pub fn all_ignored<B: Backend>(shape: [usize; 3], options: HeadLossOptions, seed: u64) {
    let mut case = Case::new(shape, options, seed);
    case.targets = TensorData::new(vec![-1_i64; shape[0]], [shape[0]]);
    let actual = outcome::<B>(&case);
    assert!(actual.iter().flatten().all(|&x| x == 0.0), "{actual:?}");
}

/// A weight that is not trained: the loss and the gradient of the hidden states, of the sum and of each token's loss.
pub fn untrained_weight<B: Backend>(shape: [usize; 3], options: HeadLossOptions, seed: u64) {
    let case = Case::new(shape, options, seed);
    let expected = &case.expected()[..2];
    let weight = || vec![constant::<Autodiff<B>, 2>(&case.weight)];
    let hidden = tracked::<Autodiff<B>, 2>(&case.hidden);
    let targets = case.targets();
    let loss = ops::head_loss(hidden.clone(), weight(), targets, options, Precision::F32);
    assert_all_close("the sum", &with_gradients(loss, &[&hidden]), expected);
    let targets = case.targets();
    let losses = ops::head_losses(hidden.clone(), weight(), targets, options, Precision::F32);
    let actual = with_gradients(losses.sum(), &[&hidden]);
    assert_all_close("the tokens", &actual, expected);
}

/// Two calls give the same bits, and inputs that are stored by columns the same numbers.
#[cfg(feature = "vulkan")]
pub fn same_again<B: Backend>(shape: [usize; 3], options: HeadLossOptions, seed: u64) {
    let case = Case::new(shape, options, seed);
    let first = outcome::<B>(&case);
    assert_eq!(first, outcome::<B>(&case), "{options:?}");
    let by_columns = |data: &TensorData| {
        let columns = constant::<B, 2>(data).transpose().into_data();
        let stored = primitive(constant::<B, 2>(&columns));
        typed::<B, 2>(stored).transpose()
    };
    let made = B::head_loss_gradients(HeadLossInputs {
        hidden: primitive(by_columns(&case.hidden)),
        weights: vec![primitive(by_columns(&case.weight))],
        targets: case.targets::<B>().into_primitive(),
        options,
        precision: Precision::F32,
    });
    let loss = host(typed::<B, 1>(made.loss));
    assert_close("by columns: loss", &loss, &case.expected()[0]);
}

/// A NaN in a hidden state makes the token's loss NaN, and no other.
#[cfg(feature = "vulkan")]
pub fn nan_stays_in_its_row<B: Backend>() {
    let mut case = Case::new([4, 3, 67], HeadLossOptions::default(), 1);
    case.targets = TensorData::new(vec![5_i64, 66, 0, 7], [4]);
    let mut hidden = case.hidden.to_vec::<f32>().unwrap();
    hidden[4] = f32::NAN;
    let losses = ops::head_losses(
        Tensor::<B, 2>::from_data(TensorData::new(hidden, [4, 3]), &Default::default()),
        vec![constant::<B, 2>(&case.weight)],
        case.targets(),
        case.options,
        Precision::F32,
    );
    let is_nan: Vec<bool> = host(losses).into_iter().map(f32::is_nan).collect();
    assert_eq!(is_nan, [false, true, false, false]);
}

crate::on_backends! {
    // With a vocabulary of one, the loss and the gradients are 0.
    head_loss(shape in [1_usize..12, 1..10, 2..30], options in options(), seed in 0..u64::MAX - 1);
    head_losses(shape in [1_usize..12, 1..10, 2..30], options in options(), seed in 0..u64::MAX - 1);
    untrained_weight(
        shape in [1_usize..12, 1..10, 2..30],
        options in options(),
        seed in 0..u64::MAX - 1,
    );
    all_ignored(shape in [1_usize..6, 1..6, 2..9], options in options(), seed in 0..u64::MAX - 1);
    blocks(
        shape in [1_usize..12, 1..10, 2..30],
        rows in 1_usize..13,
        options in options(),
        seed in 0..u64::MAX - 1,
    );
}
