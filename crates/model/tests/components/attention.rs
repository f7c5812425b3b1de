//! Compares attention modules with padding, additive biases and a memory, including all gradients, with PyTorch's
//! `scaled_dot_product_attention` in float64. `crates/model/tests/fixtures/make.py` generates the fixture.

use burn::backend::Autodiff;
use burn::module::Param;
use burn::tensor::{Bool, Int, Tensor, TensorData};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::Backend;
use emberlm_model::nn::{
    Attention, AttentionConfig, AttentionContext, AttentionMask, BlockConfig, CrossAttention,
    CrossAttentionConfig, FeedForwardConfig, Linear, LinearWeight, Reach, RotaryConfig,
    StackConfig,
};
use safetensors::SafeTensors;

use crate::components::{assert_close, random};
use crate::decoder::gradients::one_at_a_time;

/// Tolerance for `‖a - b‖ / ‖b‖`.
const TOLERANCE: f64 = 1e-5;
const D: usize = 12;

type A<B> = Autodiff<B>;

/// Tensors of one test case.
pub(crate) struct Fixture<'a> {
    case: &'static str,
    tensors: SafeTensors<'a>,
}

impl Fixture<'_> {
    fn of(case: &'static str) -> Self {
        Self::within(include_bytes!("../fixtures/attention.safetensors"), case)
    }

    /// Opens the fixture of a stack with cross-attention.
    pub(crate) fn of_decoder(case: &'static str) -> Self {
        Self::within(
            include_bytes!("../fixtures/encoder_decoder.safetensors"),
            case,
        )
    }

    fn within(bytes: &'static [u8], case: &'static str) -> Self {
        Fixture {
            case,
            tensors: SafeTensors::deserialize(bytes).unwrap(),
        }
    }

    pub(crate) fn data(&self, name: &str) -> TensorData {
        let view = self
            .tensors
            .tensor(&format!("{}.{name}", self.case))
            .unwrap();
        let (chunks, _) = view.data().as_chunks::<4>();
        let values = chunks.iter().map(|bytes| f32::from_le_bytes(*bytes));
        TensorData::new(values.collect(), view.shape().to_vec())
    }

    pub(crate) fn tracked<B: Backend, const N: usize>(&self, name: &str) -> Tensor<A<B>, N> {
        Tensor::from_data(self.data(name), &Default::default()).require_grad()
    }

    /// Replaces a layer's initial weights with the fixture's.
    fn fill<B: Backend>(&self, layer: &str, linear: &mut Linear<A<B>>) {
        let weight = self.tracked(&format!("{layer}.weight"));
        assert_eq!(weight.dims(), linear.shape(), "{layer}");
        linear.weight = LinearWeight::Float(Param::from_tensor(weight));
        if linear.bias.is_some() {
            let bias = self.tracked(&format!("{layer}.bias"));
            linear.bias = Some(Param::from_tensor(bias));
        }
    }

    pub(crate) fn padding<B: Backend>(&self) -> Tensor<A<B>, 2, Bool> {
        let view = self
            .tensors
            .tensor(&format!("{}.padding", self.case))
            .unwrap();
        let seen = view
            .data()
            .iter()
            .map(|&byte| byte != 0)
            .collect::<Vec<_>>();
        Tensor::from_data(
            TensorData::new(seen, view.shape().to_vec()),
            &Default::default(),
        )
    }

    /// Compares the output, and the gradients of `Σ output · probe` with respect to the layers' parameters and other
    /// inputs.
    fn check<B: Backend>(
        &self,
        output: Tensor<A<B>, 3>,
        layers: &[(&str, &Linear<A<B>>)],
        inputs: &[(&str, &Tensor<A<B>, 3>)],
    ) {
        let _guard = one_at_a_time();
        compare("output", output.to_data(), self.data("output"));
        let probe = Tensor::from_data(self.data("probe"), &Default::default());
        let grads = (output * probe).sum().backward();
        let gradient = |name: &str, found: TensorData| {
            let what = format!("{}: gradient of {name}", self.case);
            compare(&what, found, self.data(&format!("grad.{name}")));
        };
        for (name, input) in inputs {
            gradient(name, input.grad(&grads).unwrap().into_data());
        }
        for (layer, linear) in layers {
            let weight = linear.weight.val().grad(&grads).unwrap();
            gradient(&format!("{layer}.weight"), weight.into_data());
            if let Some(bias) = &linear.bias {
                let bias = bias.val().grad(&grads).unwrap();
                gradient(&format!("{layer}.bias"), bias.into_data());
            }
        }
    }
}

pub(crate) fn compare(what: &str, found: TensorData, expected: TensorData) {
    assert_eq!(found.shape, expected.shape, "{what}");
    let pairs = || found.iter::<f64>().zip(expected.iter::<f64>());
    let difference: f64 = pairs().map(|(a, b)| (a - b).powi(2)).sum();
    let norm: f64 = pairs().map(|(_, b)| b * b).sum();
    let error = (difference / norm).sqrt();
    assert!(error <= TOLERANCE, "{what}: relative error {error:.2e}");
}

fn self_attention<B: Backend>(fixture: &Fixture<'_>, config: AttentionConfig) -> Attention<A<B>> {
    let mut attention = config.init::<A<B>>(&Default::default());
    fixture.fill("qkv", &mut attention.qkv);
    fixture.fill("out", &mut attention.out);
    attention
}

fn check_encoder<B: Backend>() {
    let fixture = Fixture::of("encoder");
    let config = AttentionConfig {
        qkv_bias: true,
        out_bias: true,
        ..AttentionConfig::new(D, 3).with_reach(Reach::Full)
    };
    let attention = self_attention::<B>(&fixture, config);
    let x = fixture.tracked("x");
    let context = AttentionContext {
        mask: AttentionMask {
            padding: Some(fixture.padding()),
            ..AttentionMask::default()
        },
        ..AttentionContext::default()
    };
    let output = attention.forward(x.clone(), context, None).unwrap();
    let layers = [("qkv", &attention.qkv), ("out", &attention.out)];
    fixture.check::<B>(output, &layers, &[("x", &x)]);
}

fn check_causal<B: Backend>() {
    let fixture = Fixture::of("causal");
    let config = AttentionConfig {
        kv_heads: 2,
        head_dim: 4,
        ..AttentionConfig::new(16, 4)
    };
    let attention = self_attention::<B>(
        &fixture,
        AttentionConfig {
            d_model: D,
            ..config
        },
    );
    let (x, bias) = (fixture.tracked("x"), fixture.tracked("mask.bias"));
    let context = AttentionContext {
        mask: AttentionMask {
            padding: Some(fixture.padding()),
            bias: Some(bias.clone()),
            documents: None,
            sinks: None,
        },
        ..AttentionContext::default()
    };
    let output = attention.forward(x.clone(), context, None).unwrap();
    let layers = [("qkv", &attention.qkv), ("out", &attention.out)];
    fixture.check::<B>(output, &layers, &[("x", &x), ("mask.bias", &bias)]);
}

fn check_cross<B: Backend>() {
    let fixture = Fixture::of("cross");
    let config = CrossAttentionConfig {
        d_model: D,
        d_memory: 10,
        kv_heads: 2,
        q_bias: true,
        kv_bias: true,
        out_bias: true,
        ..CrossAttentionConfig::new(16, 4)
    };
    let mut attention: CrossAttention<A<B>> = config.init(&Default::default());
    fixture.fill("q", &mut attention.q);
    fixture.fill("kv", &mut attention.kv);
    fixture.fill("out", &mut attention.out);
    let [x, memory, bias] = ["x", "memory", "mask.bias"].map(|name| fixture.tracked(name));
    let mask = AttentionMask {
        padding: Some(fixture.padding()),
        bias: Some(bias.clone()),
        documents: None,
        sinks: None,
    };
    let projected = attention.project_memory(memory.clone());
    let output = attention.forward(x.clone(), &projected, mask, None);
    let layers = [
        ("q", &attention.q),
        ("kv", &attention.kv),
        ("out", &attention.out),
    ];
    let inputs = [("x", &x), ("memory", &memory), ("mask.bias", &bias)];
    fixture.check::<B>(output, &layers, &inputs);
}

#[test]
fn padded_encoder_attention_matches_pytorch() {
    check_encoder::<Flex>();
    check_encoder::<NdArray>();
}

#[test]
fn causal_attention_with_bias_and_padding_matches_pytorch() {
    check_causal::<Flex>();
    check_causal::<NdArray>();
}

#[test]
fn cross_attention_with_bias_and_padding_matches_pytorch() {
    check_cross::<Flex>();
    check_cross::<NdArray>();
}

#[test]
fn cross_attention_adds_residual_and_reuses_memory() {
    let device = Default::default();
    let attention = CrossAttentionConfig::new(16, 4).init::<Flex>(&device);
    let memory = attention.project_memory(random([2, 7, 16]));
    let (x, residual) = (random([2, 3, 16]), random([2, 3, 16]));
    let whole = attention.forward(
        x.clone(),
        &memory,
        AttentionMask::default(),
        Some(residual.clone()),
    );
    let rows = (0..3).map(|i| {
        let row = x.clone().narrow(1, i, 1);
        attention.forward(row, &memory, AttentionMask::default(), None)
    });
    assert_close(whole, Tensor::cat(rows.collect(), 1) + residual);
    let weights = attention.weights(x, &memory, AttentionMask::default());
    assert_eq!(weights.dims(), [2, 4, 3, 7]);
    let sums = weights.sum_dim(3);
    assert!((sums - 1.0).abs().max().into_scalar() < 1e-5);
}

fn encoder() -> StackConfig {
    let attention = AttentionConfig::new(16, 4).with_reach(Reach::Full);
    let block = BlockConfig::new(attention, FeedForwardConfig::new(16, 40));
    StackConfig {
        rotary: Some(RotaryConfig::new(8, 4)),
        ..StackConfig::new(2, block)
    }
}

/// Padding at the end of a sequence does not change its encoding, regardless of its content.
#[test]
fn encoder_stack_ignores_padding() {
    let device = Default::default();
    let stack = encoder().init::<Flex>(&device);
    let x = random([2, 5, 16]);
    let expected = stack
        .forward(x.clone(), AttentionMask::default(), None)
        .unwrap();
    let padding: Vec<bool> = (0..2 * 8).map(|at| at % 8 < 5).collect();
    let padding = Tensor::from_data(TensorData::new(padding, [2, 8]), &device);
    let mask = AttentionMask {
        padding: Some(padding),
        ..AttentionMask::default()
    };
    let padded = Tensor::cat(vec![x, random([2, 3, 16])], 1);
    let found = stack.forward(padded.clone(), mask.clone(), None).unwrap();
    assert_close(found.narrow(1, 0, 5), expected);
    for weights in stack.attention_weights(padded, mask).unwrap() {
        let hidden = weights.narrow(3, 5, 3);
        assert_eq!(hidden.abs().max().into_scalar(), 0.0);
    }
}

/// The first token of an encoder attends to the last one; that of a decoder does not.
#[test]
fn encoder_stack_attends_to_later_tokens() {
    let device = Default::default();
    let x = random([1, 5, 16]);
    let last = Tensor::cat(vec![x.clone().narrow(1, 0, 4), random([1, 1, 16])], 1);
    for (config, sees) in [(Reach::Full, true), (Reach::Causal, false)].map(|(reach, sees)| {
        let mut config = encoder();
        config.block.attention = config.block.attention.with_reach(reach);
        (config, sees)
    }) {
        let stack = config.init::<Flex>(&device);
        let [one, other] = [&x, &last].map(|x| {
            let y = stack
                .forward(x.clone(), AttentionMask::default(), None)
                .unwrap();
            y.narrow(1, 0, 1)
        });
        let difference = (one - other).abs().max().into_scalar();
        assert_eq!(difference > 0.0, sees, "{difference}");
    }
}

/// Isolated documents give the same results as in separate batch rows.
#[test]
fn block_isolates_documents() {
    let device = Default::default();
    let attention = AttentionConfig::new(16, 4);
    let config = BlockConfig::new(attention, FeedForwardConfig::new(16, 40));
    let block = config.init::<Flex>(&device);
    let x = random([1, 6, 16]);
    let documents = Tensor::<Flex, 2, Int>::from_ints([[0, 0, 2, 2, 2, 2]], &device);
    let context = AttentionContext {
        mask: AttentionMask::of_documents(Some(documents)),
        ..AttentionContext::default()
    };
    let found = block.forward(x.clone(), context).unwrap();
    let expected = [(0, 2), (2, 4)].map(|(start, len)| {
        let document = x.clone().narrow(1, start, len);
        block
            .forward(document, AttentionContext::default())
            .unwrap()
    });
    assert_close(found, Tensor::cat(expected.to_vec(), 1));
}
