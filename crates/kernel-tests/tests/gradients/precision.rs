//! Tests products of rounded operands: their error is that of the rounding, no more and not much less, and they
//! are bit-identical to f32 on devices without support for the precision.
//!
//! Rounding an operand has a relative error of up to `u`, 2^-11 in f16 and 2^-8 in bf16. The error of a product
//! is then about `√2 u` times the norm of its terms. Products of random numbers have a comparable norm, and
//! rounding the product adds another `u`. Attention scores of up to 3 scale the errors of the weights
//! accordingly, and its gradients are two or three such products in sequence.

use burn::backend::Autodiff;
use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_kernels::reference::{self, AttentionBlocks};
use emberlm_kernels::{
    AttentionMask, AttentionOptions, Backend, HeadLossGradients, HeadLossInputs, HeadLossOptions,
    LinearInputs, Precision, ops,
};

use crate::compare::{causal, constant, host, numbers, primitive, tracked, typed, with_gradients};

/// The narrow precisions with their units of rounding.
pub const NARROW: [(Precision, f64); 2] = [
    (Precision::F16, 1.0 / 2048.0),
    (Precision::Bf16, 1.0 / 256.0),
];

/// An output and its gradients.
type Outcome = Vec<Vec<f32>>;

/// The relative error `‖a - b‖ / ‖b‖`.
fn error(actual: &[f32], expected: &[f32]) -> f64 {
    let pairs = actual.iter().zip(expected);
    let squared: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let norm: f64 = expected.iter().map(|b| f64::from(*b).powi(2)).sum();
    (squared / norm).sqrt()
}

/// Asserts that each part has a rounding error, and that it is at most `max` units.
pub fn assert_rounded(what: &str, actual: &[Vec<f32>], expected: &[Vec<f32>], unit: f64, max: f64) {
    assert_eq!(actual.len(), expected.len());
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let off = error(actual, expected) / unit;
        assert!(off < max, "{what}, part {index}: {off:.2} roundings");
        assert!(off > 0.01, "{what}, part {index}: not rounded, {off:.2e}");
    }
}

fn linear<B: Backend>(precision: Precision) -> Outcome {
    let inputs = || LinearInputs::<B> {
        x: primitive(constant::<B, 2>(&numbers(1, [24, 40]))),
        weight: primitive(constant::<B, 2>(&numbers(2, [40, 33]))),
        bias: None,
        residual: None,
    };
    let grad = primitive(constant::<B, 2>(&numbers(3, [24, 33])));
    let LinearInputs { x, weight, .. } = inputs();
    let wanted = [true, true, false];
    let made = reference::linear_backward::<B>(x, weight, grad, None, wanted, precision);
    let output = reference::linear::<B>(inputs(), precision);
    let made = [Some(output), made.x, made.weight];
    let made = made.into_iter().flatten();
    made.map(|x| host(typed::<B, 2>(x))).collect()
}

fn options(precision: Precision) -> AttentionOptions {
    AttentionOptions {
        precision,
        ..causal(0.3)
    }
}

fn attention<B: Backend>(precision: Precision, blocks: Option<AttentionBlocks>) -> Outcome {
    let q = primitive(constant::<B, 4>(&numbers(1, [2, 4, 40, 8])));
    let [k, v] = [2, 3].map(|seed| primitive(constant::<B, 4>(&numbers(seed, [2, 2, 40, 8]))));
    let options = options(precision);
    let grad = primitive(constant::<B, 4>(&numbers(4, [2, 4, 40, 8])));
    let mask = AttentionMask::default();
    let (output, made) = match blocks {
        Some(_) => {
            let (output, state) =
                reference::blocked_attention_training::<B>(q, k, v, mask, options, blocks);
            let made =
                reference::blocked_attention_backward::<B>(state, grad, options, false, blocks);
            (output, made)
        }
        None => {
            let (output, state) = reference::attention_training::<B>(q, k, v, mask, options);
            let made = reference::attention_backward::<B>(state, grad, options, false);
            (output, made)
        }
    };
    let made = [output, made.q, made.k, made.v];
    made.into_iter().map(|x| host(typed::<B, 4>(x))).collect()
}

/// An implementation of the head's loss and gradients, in blocks of the given number of tokens.
type Head<B> = fn(HeadLossInputs<B>, usize) -> HeadLossGradients<B>;

/// The reference implementation.
pub fn reference_head<B: Backend>(inputs: HeadLossInputs<B>, rows: usize) -> HeadLossGradients<B> {
    reference::head_loss_gradients::<B>(inputs, rows)
}

/// The backend's implementation, which chooses its blocks.
#[cfg(feature = "vulkan")]
pub fn own_head<B: Backend>(inputs: HeadLossInputs<B>, _rows: usize) -> HeadLossGradients<B> {
    B::head_loss_gradients(inputs)
}

/// The head's loss and gradients for 12 tokens over a vocabulary of 300, in blocks of 5 tokens.
fn head<B: Backend>(through: Head<B>, precision: Precision, options: HeadLossOptions) -> Outcome {
    let hidden = || primitive(constant::<B, 2>(&numbers(1, [12, 24])));
    let weight = || vec![primitive(constant::<B, 2>(&numbers(2, [300, 24])))];
    let targets = (0..12).map(|i| (i * 77 % 301) - 1).collect::<Vec<i64>>();
    let targets = || {
        let data = TensorData::new(targets.clone(), [12]);
        Tensor::<B, 1, Int>::from_data(data, &Default::default()).into_primitive()
    };
    let inputs = HeadLossInputs {
        hidden: hidden(),
        weights: weight(),
        targets: targets(),
        options,
        precision,
    };
    let alone = reference::head_loss::<B>(inputs.clone(), 5);
    let made = through(inputs, 5);
    let mut outcome = vec![host(typed::<B, 1>(alone)), host(typed::<B, 1>(made.loss))];
    outcome.extend([made.hidden, made.weights[0].clone()].map(|x| host(typed::<B, 2>(x))));
    outcome
}

pub fn rounded_within_bounds<B: Backend>(precision: Precision, unit: f64) {
    let all = Precision::F32;
    assert_rounded(
        "linear",
        &linear::<B>(precision),
        &linear::<Flex>(all),
        unit,
        3.0,
    );
    let expected = attention::<Flex>(all, None);
    for queries in [None, Some(16)] {
        let blocks = queries.map(|queries| AttentionBlocks {
            sequences: 1,
            queries,
        });
        let actual = attention::<B>(precision, blocks);
        assert_rounded("attention", &actual, &expected, unit, 8.0);
    }
    head_is_rounded_within_bounds::<B>(reference_head::<B>, precision, unit);
}

pub fn head_is_rounded_within_bounds<B: Backend>(
    through: Head<B>,
    precision: Precision,
    unit: f64,
) {
    for options in [
        HeadLossOptions::default(),
        HeadLossOptions {
            label_smoothing: 0.1,
            z_loss: 1e-3,
            soft_cap: 20.0,
        },
    ] {
        let actual = head::<B>(through, precision, options);
        let expected = head::<Flex>(reference_head::<Flex>, Precision::F32, options);
        // The losses are sums whose rounding errors cancel.
        for index in [0, 1] {
            let off = error(&actual[index], &expected[index]);
            assert!(off < unit, "loss: {off:.2e}");
        }
        // Rounding errors of logits grow with their magnitude of up to 20, and affect the probabilities.
        assert_rounded("head", &actual[2..], &expected[2..], unit, 30.0);
    }
}

/// A token that the model predicts with near certainty. The probabilities of the other tokens are about 1e-7,
/// where f16 has one digit or none, and the gradient of the target's logit is 2e-4, the difference of almost
/// equal numbers. The gradient of each token is compared separately.
pub fn small_probabilities_keep_their_gradients<B: Backend>(
    through: Head<B>,
    precision: Precision,
    unit: f64,
) {
    let (vocab, width) = (512, 8);
    // Exactly representable in both types, so only the gradients are rounded.
    let hidden: Vec<f32> = (0..width).map(|i| [2.0, 1.0][i % 2]).collect();
    let mut weight: Vec<f32> = (0..vocab * width)
        .map(|at| ((at * 37 % 17) as f32 - 8.0) / 16.0)
        .collect();
    weight[3 * width..4 * width].fill(1.25);
    let actual = head_of_one::<B>(through, precision, &hidden, &weight);
    let expected = head_of_one::<Flex>(reference_head::<Flex>, Precision::F32, &hidden, &weight);
    let words = actual[1].chunks(width).zip(expected[1].chunks(width));
    for (word, (actual, expected)) in words.enumerate() {
        let off = error(actual, expected) / unit;
        // The target's p - 1 of -2e-4 is as accurate as the f32 sum that p is divided by, whose order depends on
        // the device.
        let summed = match word {
            3 => (vocab - 1) as f64 * f64::from(f32::EPSILON) / 2.0 / 2e-4,
            _ => 0.0,
        };
        assert!(
            off < 3.0 + summed / unit,
            "{precision:?}, word {word}: {off:.1} roundings of {expected:?}"
        );
    }
    // Flex sums 512 terms in f16 itself. Without the target as part of the product, its row would be off by 2000
    // units.
    let off = error(&actual[0], &expected[0]) / unit;
    assert!(
        off < 100.0,
        "{precision:?}, hidden: {off:.1} roundings of {:?}",
        expected[0]
    );
}

/// The gradients of the hidden state and the weight for a single token.
fn head_of_one<B: Backend>(
    through: Head<B>,
    precision: Precision,
    hidden: &[f32],
    weight: &[f32],
) -> [Vec<f32>; 2] {
    let width = hidden.len();
    let hidden = TensorData::new(hidden.to_vec(), [1, width]);
    let weight = TensorData::new(weight.to_vec(), [weight.len() / width, width]);
    let target = Tensor::<B, 1, Int>::from_data([3], &Default::default());
    let inputs = HeadLossInputs {
        hidden: primitive(constant::<B, 2>(&hidden)),
        weights: vec![primitive(constant::<B, 2>(&weight))],
        targets: target.into_primitive(),
        options: HeadLossOptions::default(),
        precision,
    };
    let made = through(inputs, 1);
    [made.hidden, made.weights[0].clone()].map(|x| host(typed::<B, 2>(x)))
}

/// On a backend without support for the precision, the trait's results are bit-identical to f32.
pub fn unsupported_precision_uses_f32<B: Backend>(precision: Precision) {
    assert!(!B::multiplies_in(precision, &Default::default()));
    let expected = through_the_trait::<B>(Precision::F32);
    assert_eq!(through_the_trait::<B>(precision), expected, "{precision:?}");
}

fn through_the_trait<B: Backend>(precision: Precision) -> Outcome {
    let inputs = [1, 2, 3].map(|seed| tracked::<Autodiff<B>, 4>(&numbers(seed, [1, 2, 9, 4])));
    let [q, k, v] = inputs.clone();
    let output = ops::attention(q, k, v, AttentionMask::default(), options(precision));
    let mut all = with_gradients(output, &[&inputs[0], &inputs[1], &inputs[2]]);
    let [x, weight] = [4, 5].map(|seed| tracked::<Autodiff<B>, 2>(&numbers(seed, [6, 6])));
    let y = ops::linear(x.clone(), weight.clone(), None, None, precision);
    all.extend(with_gradients(y, &[&x, &weight]));
    let targets = Tensor::from_data([0, 3, 1, 5, 2, 4], &Default::default());
    let (h, w) = (x.clone(), vec![weight.clone()]);
    let loss = ops::head_loss(h, w, targets, HeadLossOptions::default(), precision);
    all.extend(with_gradients(loss, &[&x, &weight]));
    all
}
