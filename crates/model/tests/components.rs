//! Builds and uses each component of a model separately through the public API.

mod attention;
mod encoder_decoder;
mod refused;

use burn::module::{Module, Param};
use burn::tensor::{Distribution, Tensor};
use burn_flex::Flex;
use emberlm_model::config::{FeedForwardKind, Norm, Wiring};
use emberlm_model::nn::{
    AddedPositionsConfig, AttentionConfig, AttentionContext, AttentionMask, BlockConfig,
    EmbeddingsConfig, FeedForwardConfig, LinearConfig, LmHeadConfig, Mechanism, NormConfig, Reach,
    RotaryConfig, StackConfig,
};
use emberlm_model::{Activation, Tokens};

const D: usize = 16;

fn random(shape: [usize; 3]) -> Tensor<Flex, 3> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Default::default())
}

fn assert_close(found: Tensor<Flex, 3>, expected: Tensor<Flex, 3>) {
    assert_eq!(found.dims(), expected.dims());
    let error = (found - expected.clone()).abs().max().into_scalar();
    let largest = expected.abs().max().into_scalar();
    assert!(error < 1e-5 * largest, "{error} of {largest}");
}

fn block() -> BlockConfig {
    let feed_forward = FeedForwardConfig {
        kind: FeedForwardKind::Gated,
        activation: Activation::GeluTanh,
        bias: true,
        ..FeedForwardConfig::new(D, 40)
    };
    BlockConfig::new(AttentionConfig::new(D, 4), feed_forward)
}

#[test]
fn sandwich_normalizes_before_and_after_each_sublayer() {
    let config = BlockConfig {
        norm: Norm::OffsetRms { epsilon: 1e-6 },
        wiring: Wiring::Sandwich,
        ..block()
    };
    let device = Default::default();
    let mut block = config.init::<Flex>(&device);
    let after = block.norm1_after.as_mut().unwrap();
    let gain = Tensor::random([D], Distribution::Normal(0.0, 0.3), &device);
    after.gain = Some(Param::from_tensor(gain));
    let x = random([2, 5, D]);
    let attended = block
        .attention
        .forward(
            block.norm1.as_ref().unwrap().forward(x.clone()),
            AttentionContext::default(),
            None,
        )
        .unwrap();
    let y = x.clone() + block.norm1_after.as_ref().unwrap().forward(attended);
    let fed = block.norm2.as_ref().unwrap().forward(y.clone());
    let fed = block.feed_forward.forward(fed, None, None);
    let expected = y + block.norm2_after.as_ref().unwrap().forward(fed);
    let found = block.forward(x, AttentionContext::default()).unwrap();
    assert_close(found, expected);
}

#[test]
fn offset_gain_is_one_plus_parameter() {
    let device = Default::default();
    let epsilon = 1e-6;
    let mut offset = NormConfig::new(Norm::OffsetRms { epsilon }, D).init::<Flex>(&device);
    let mut plain = NormConfig::new(Norm::Rms { epsilon }, D).init::<Flex>(&device);
    let x = random([2, 3, D]);
    assert_close(offset.forward(x.clone()), plain.forward(x.clone()));
    let gain = Tensor::random([D], Distribution::Normal(0.0, 0.5), &device);
    offset.gain = Some(Param::from_tensor(gain.clone()));
    plain.gain = Some(Param::from_tensor(gain + 1.0));
    assert_close(offset.forward(x.clone()), plain.forward(x));
}

#[test]
fn stack_has_window_except_in_full_layers() {
    let reach = Reach::Window {
        tokens: 2,
        global_tokens: 1,
    };
    let mut block = block();
    block.attention = block.attention.with_reach(reach);
    let config = StackConfig {
        full_layers: vec![1],
        rotary: Some(RotaryConfig::new(8, 4)),
        ..StackConfig::new(3, block)
    };
    let reaches: Vec<Reach> = (0..3)
        .map(|layer| match config.attention(layer).mechanism {
            Mechanism::Softmax { reach, .. } => reach,
            Mechanism::Linear { .. } | Mechanism::Delta(_) => panic!("a softmax"),
        })
        .collect();
    assert_eq!(reaches, [reach, Reach::Causal, reach]);
    let stack = config.init::<Flex>(&Default::default());
    // Only the attention of block 0: the last token attends to the first one, its predecessor and itself.
    let weights = stack.blocks[0]
        .attention_weights(random([1, 5, D]), None, AttentionMask::default())
        .unwrap();
    let last: Vec<f32> = weights
        .slice([0..1, 0..1, 4..5, 0..5])
        .into_data()
        .to_vec()
        .unwrap();
    let seen: Vec<bool> = last.iter().map(|&weight| weight > 0.0).collect();
    assert_eq!(seen, [true, false, false, true, true]);
}

#[test]
fn embeddings_stack_and_head_form_a_model() {
    let device = Default::default();
    let (vocab_size, seq_len) = (11, 8);
    let embeddings = EmbeddingsConfig {
        positions: AddedPositionsConfig::Learned { seq_len },
        ..EmbeddingsConfig::new(vocab_size, D)
    };
    let embeddings = embeddings.init::<Flex>(&device);
    let stack = StackConfig::new(2, block()).init::<Flex>(&device);
    let head = LmHeadConfig {
        tied: true,
        soft_cap: Some(2.0),
        ..LmHeadConfig::new(vocab_size, D)
    };
    let head = head.init::<Flex>(&device);
    assert_eq!(head.num_params(), 0);
    let ids = Tensor::from_ints([[1, 2, 3], [4, 5, 10]], &device);
    let x = embeddings.forward(&Tokens::from(ids), 0);
    let logits = head.forward(
        stack.forward(x, AttentionMask::default(), None).unwrap(),
        &embeddings.tokens,
    );
    assert_eq!(logits.dims(), [2, 3, vocab_size]);
    assert!(logits.abs().max().into_scalar() <= 2.0);
}

#[test]
fn modules_of_one_configuration_have_different_initial_weights() {
    let config = LinearConfig::new(D, 40).with_bias(true);
    let device = Default::default();
    let [one, other] = [(); 2].map(|()| config.init::<Flex>(&device));
    let weights = |linear: &emberlm_model::nn::Linear<Flex>| {
        linear.weight.val().into_data().to_vec::<f32>().unwrap()
    };
    assert_ne!(weights(&one), weights(&other));
    let bound = 1.0 / (D as f32).sqrt();
    let weights = weights(&one);
    assert!(weights.iter().all(|weight| weight.abs() <= bound));
    assert!(weights.iter().any(|weight| weight.abs() > 0.9 * bound));
}
