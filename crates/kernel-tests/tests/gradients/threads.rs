//! Tests that results are bit-identical for any number of threads, by training a small network with the trait's
//! operations in pools of one, two and three threads.

use burn::backend::Autodiff;
use burn::tensor::backend::Backend as _;
use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_kernels::ops::{self, Angles};
use emberlm_kernels::{
    Activation, AdamWStep, AttentionMask, AttentionOptions, HeadLossOptions, Normalization,
    Precision, RotaryLayout, SelfAttention,
};
use rayon::ThreadPoolBuilder;

use crate::compare::{causal, random_state};

type Tracked = Autodiff<Flex>;

const STEPS: u64 = 2;
const BATCH: usize = 3;
const SEQ: usize = 130;
const WIDTH: usize = 96;
const HIDDEN: usize = 250;
const VOCAB: usize = 1031;
const CONFIG: SelfAttention = SelfAttention {
    heads: 6,
    kv_heads: 2,
    head_dim: 16,
    options: AttentionOptions {
        dropout: 0.1,
        ..causal(0.25)
    },
};
const NORM: Normalization = Normalization::Layer { epsilon: 1e-5 };
const QKV: usize = (CONFIG.heads + 2 * CONFIG.kv_heads) * CONFIG.head_dim;
/// The shapes of the parameters, in the order in which [`loss`] reads them.
const SHAPES: [[usize; 2]; 14] = [
    [VOCAB, WIDTH],
    [1, WIDTH],
    [1, WIDTH],
    [WIDTH, QKV],
    [1, QKV],
    [WIDTH, WIDTH],
    [1, WIDTH],
    [WIDTH, HIDDEN],
    [WIDTH, HIDDEN],
    [HIDDEN, WIDTH],
    [WIDTH, HIDDEN],
    [HIDDEN, WIDTH],
    [1, WIDTH],
    [VOCAB, WIDTH],
];

#[test]
fn training_is_bit_identical_on_one_two_and_three_threads() {
    for precision in [Precision::F32, Precision::Bf16] {
        let [one, two, three] = [1, 2, 3].map(|threads| steps_on(threads, precision));
        let finite = one.iter().all(|&bits| f32::from_bits(bits).is_finite());
        assert!(finite, "{precision:?}");
        assert!(one == two, "{precision:?}: two threads differ from one");
        assert!(one == three, "{precision:?}: three threads differ from one");
    }
}

/// Runs all steps in one pool and returns the bits of the losses and of the final parameters.
fn steps_on(threads: usize, precision: Precision) -> Vec<u32> {
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    pool.unwrap().install(|| {
        assert_eq!(rayon::current_num_threads(), threads);
        steps(precision)
    })
}

fn steps(precision: Precision) -> Vec<u32> {
    let _drawing = random_state();
    // The seed of the dropout.
    Flex::seed(&Default::default(), 7);
    let mut parameters: Vec<Tensor<Flex, 2>> = (0..)
        .zip(SHAPES)
        .map(|(seed, shape)| numbers(seed, shape))
        .collect();
    let mut moments: Vec<_> = parameters
        .iter()
        .map(|p| (p.zeros_like(), p.zeros_like()))
        .collect();
    let mut bits = Vec::new();
    for step in 1..=STEPS {
        let tracked: Vec<Tensor<Tracked, 2>> = parameters
            .into_iter()
            .map(|p| Tensor::from_inner(p).require_grad())
            .collect();
        let loss = loss(&tracked, precision);
        let gradients = loss.backward();
        bits.extend(bits_of(loss.inner()));
        let gradients: Vec<_> = tracked
            .iter()
            .map(|p| p.grad(&gradients).unwrap())
            .collect();
        let factor = clip(&gradients);
        let numbers = AdamWStep {
            rate: 1e-2,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            decay: 0.1,
            cautious: false,
            step,
        };
        let updated = tracked.into_iter().zip(gradients).zip(moments);
        (parameters, moments) = updated
            .map(|((p, grad), moments)| {
                ops::adamw(p.inner(), grad, moments, Some(factor.clone()), numbers)
            })
            .unzip();
    }
    bits.extend(parameters.into_iter().flat_map(bits_of));
    bits
}

/// A network with a block for each kind of feed-forward layer, and the head.
fn loss(parameters: &[Tensor<Tracked, 2>], precision: Precision) -> Tensor<Tracked, 1> {
    let mut rest = parameters.iter().cloned();
    let mut matrix = || rest.next().unwrap();
    let row = |matrix: Tensor<Tracked, 2>| {
        let [_, width] = matrix.dims();
        Some(matrix.reshape([width]))
    };
    let x = ops::embedding(matrix(), ids([BATCH, SEQ], 1));

    let normed = ops::normalize(NORM, x.clone(), row(matrix()), row(matrix()));
    let qkv = ops::linear(normed, matrix(), row(matrix()), None, precision);
    let angle = |f: fn(f32) -> f32| {
        let pairs = CONFIG.head_dim / 2;
        let angles = (0..SEQ * pairs).map(|n| f((n / pairs) as f32 / (1 + n % pairs) as f32));
        Tensor::from_data(
            TensorData::new(angles.collect(), [SEQ, pairs]),
            &Default::default(),
        )
    };
    let angles = Angles {
        layout: RotaryLayout::HalfSplit,
        cos: angle(f32::cos),
        sin: angle(f32::sin),
    };
    let attended = ops::self_attention(qkv, Some(angles), AttentionMask::default(), CONFIG);
    let x = ops::linear(attended, matrix(), row(matrix()), Some(x), precision);

    let gate = ops::linear(x.clone(), matrix(), None, None, precision);
    let up = ops::linear(x.clone(), matrix(), None, None, precision);
    let gated = ops::gated(Activation::Silu, gate, up);
    let x = ops::linear(gated, matrix(), None, Some(x), precision);

    let up = ops::linear(x.clone(), matrix(), None, None, precision);
    let up = ops::activation(Activation::Gelu, up);
    let x = ops::linear(up, matrix(), None, Some(x), precision);

    let x = ops::normalize(Normalization::Rms { epsilon: 1e-5 }, x, row(matrix()), None);
    let tokens = BATCH * SEQ;
    ops::head_loss(
        x.reshape([tokens, WIDTH]),
        vec![matrix()],
        ids([tokens], 2),
        HeadLossOptions::default(),
        precision,
    ) / tokens as f64
}

/// The factor that clips the norm of the gradients to 1.
fn clip(gradients: &[Tensor<Flex, 2>]) -> Tensor<Flex, 1> {
    let squares = gradients.iter().cloned().map(ops::sum_of_squares);
    let sum = squares.reduce(|sum, square| sum + square).unwrap();
    sum.sqrt().clamp_min(1.0).recip()
}

/// Numbers around 0, determined by the seed.
fn numbers(seed: u32, shape: [usize; 2]) -> Tensor<Flex, 2> {
    let count = (shape[0] * shape[1]) as u32;
    let of = |n: u32| {
        let mixed = (n ^ seed << 24).wrapping_mul(0x9e37_79b9);
        let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b);
        ((mixed >> 8) as f32 / (1 << 23) as f32 - 1.0) / 8.0
    };
    Tensor::from_data(
        TensorData::new((0..count).map(of).collect(), shape),
        &Default::default(),
    )
}

/// Ids with repetitions.
fn ids<const D: usize>(shape: [usize; D], factor: usize) -> Tensor<Tracked, D, Int> {
    let of = |n| (n * n * factor % VOCAB) as i64;
    let all: Vec<i64> = (0..shape.iter().product()).map(of).collect();
    Tensor::from_data(TensorData::new(all, shape), &Default::default())
}

fn bits_of<const D: usize>(tensor: Tensor<Flex, D>) -> Vec<u32> {
    tensor.into_data().iter::<f32>().map(f32::to_bits).collect()
}
