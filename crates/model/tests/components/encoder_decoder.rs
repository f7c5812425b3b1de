//! Checks stacks with cross-attention, the decoder of an encoder–decoder: against PyTorch in float64 with all
//! gradients (`crates/model/tests/fixtures/make.py` generates the fixture), against their separate sublayers, and in
//! cached decoding.

use std::collections::BTreeSet;

use burn::backend::Autodiff;
use burn::backend::autodiff::grads::Gradients;
use burn::module::ParamId;
use burn::tensor::Tensor;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::Backend;
use emberlm_model::Activation;
use emberlm_model::config::{Norm, Wiring};
use emberlm_model::nn::{
    AttentionConfig, AttentionContext, AttentionMask, Block, BlockConfig, BlockContext,
    BlockMemory, CrossAttentionConfig, FeedForwardConfig, RotaryConfig, Stack, StackConfig,
    StackContext,
};
use emberlm_model::weights::{ParamMapper, ParamVisitor, map_params, visit_params};

use crate::components::attention::{Fixture, compare};
use crate::components::{assert_close, random};
use crate::decoder::gradients::one_at_a_time;

const D: usize = 12;
const D_MEMORY: usize = 10;

type A<B> = Autodiff<B>;

/// A block whose memory is narrower than `d_model`.
fn block(wiring: Wiring) -> BlockConfig {
    let attention = AttentionConfig {
        d_model: D,
        kv_heads: 2,
        qkv_bias: true,
        out_bias: true,
        ..AttentionConfig::new(16, 4)
    };
    let cross_attention = CrossAttentionConfig {
        d_model: D,
        d_memory: D_MEMORY,
        kv_heads: 2,
        q_bias: true,
        kv_bias: true,
        out_bias: true,
        ..CrossAttentionConfig::new(16, 4)
    };
    let feed_forward = FeedForwardConfig {
        activation: Activation::Gelu,
        bias: true,
        ..FeedForwardConfig::new(D, 20)
    };
    BlockConfig {
        cross_attention: Some(cross_attention),
        norm: Norm::Layer {
            bias: true,
            epsilon: 1e-5,
        },
        wiring,
        ..BlockConfig::new(attention, feed_forward)
    }
}

/// Replaces initial weights with the fixture's.
struct Fill<'a>(&'a Fixture<'a>);

impl<B: Backend> ParamMapper<A<B>> for Fill<'_> {
    fn map<const N: usize>(
        &mut self,
        path: &str,
        _id: ParamId,
        value: Tensor<A<B>, N>,
    ) -> Tensor<A<B>, N> {
        let filled = self.0.tracked::<B, N>(path);
        assert_eq!(filled.dims(), value.dims(), "{path}");
        filled
    }
}

/// Compares every parameter's gradient with the fixture's.
struct Check<'a> {
    fixture: &'a Fixture<'a>,
    grads: Gradients,
    compared: BTreeSet<String>,
}

impl<B: Backend> ParamVisitor<A<B>> for Check<'_> {
    fn visit<const N: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<A<B>, N>) {
        let found = value.grad(&self.grads).unwrap().into_data();
        let expected = self.fixture.data(&format!("grad.{path}"));
        compare(&format!("gradient of {path}"), found, expected);
        self.compared.insert(path.to_owned());
    }
}

fn check<B: Backend>(case: &'static str, wiring: Wiring) {
    let _guard = one_at_a_time();
    let fixture = Fixture::of_decoder(case);
    let config = StackConfig::new(2, block(wiring));
    let stack: Stack<A<B>> = config.init(&Default::default());
    let stack = map_params(stack, &mut Fill(&fixture));
    let [x, memory] = ["x", "memory"].map(|name| fixture.tracked::<B, 3>(name));
    let projected = stack
        .project_memory(memory.clone(), Some(fixture.padding()))
        .unwrap();
    let context = StackContext {
        memory: Some(&projected),
        ..StackContext::default()
    };
    let output = stack.forward(x.clone(), context, None).unwrap();
    compare(case, output.to_data(), fixture.data("output"));
    let probe = Tensor::from_data(fixture.data("probe"), &Default::default());
    let grads = (output * probe).sum().backward();
    for (name, input) in [("x", &x), ("memory", &memory)] {
        let found = input.grad(&grads).unwrap().into_data();
        compare(name, found, fixture.data(&format!("grad.{name}")));
    }
    let mut check = Check {
        fixture: &fixture,
        grads,
        compared: BTreeSet::new(),
    };
    visit_params(&stack, &mut check);
    // Per block, two for each of 3 norms and 7 linear layers; two for the final norm.
    assert_eq!(check.compared.len(), 2 * (2 * (3 + 7) + 1));
}

#[test]
fn pre_norm_decoder_with_padded_memory_matches_pytorch() {
    check::<Flex>("pre_norm", Wiring::PreNorm);
    check::<NdArray>("pre_norm", Wiring::PreNorm);
}

#[test]
fn post_norm_decoder_with_padded_memory_matches_pytorch() {
    check::<Flex>("post_norm", Wiring::PostNorm);
    check::<NdArray>("post_norm", Wiring::PostNorm);
}

/// Compares a block with its self-attention, cross-attention and feed-forward layer as wired by the caller.
fn check_wiring(
    wiring: Wiring,
    expected: impl FnOnce(&Block<Flex>, Tensor<Flex, 3>, [Sublayer<'_>; 3]) -> Tensor<Flex, 3>,
) {
    let block = block(wiring).init::<Flex>(&Default::default());
    let cross = &block.cross.as_ref().unwrap().attention;
    let (x, memory) = (random([2, 5, D]), random([2, 7, D_MEMORY]));
    let heads = &cross.project_memory(memory);
    let attend = |x| {
        let context = AttentionContext::default();
        block.attention.forward(x, context, None).unwrap()
    };
    let cross = |x| cross.forward(x, heads, AttentionMask::default(), None);
    let feed = |x| block.feed_forward.forward(x, None, None);
    let expected = expected(&block, x.clone(), [&attend, &cross, &feed]);
    let context = BlockContext {
        memory: Some(BlockMemory {
            heads,
            padding: None,
        }),
        ..AttentionContext::default().into()
    };
    assert_close(block.forward(x, context).unwrap(), expected);
}

type Sublayer<'a> = &'a dyn Fn(Tensor<Flex, 3>) -> Tensor<Flex, 3>;

#[test]
fn sandwich_normalizes_before_and_after_cross_attention() {
    check_wiring(Wiring::Sandwich, |block, x, [attend, cross, feed]| {
        let sublayer = block.cross.as_ref().unwrap();
        let after = |norm: &Option<_>, x| {
            let norm: &emberlm_model::nn::Norm<Flex> = norm.as_ref().unwrap();
            norm.forward(x)
        };
        let x = x.clone()
            + after(
                &block.norm1_after,
                attend(block.norm1.as_ref().unwrap().forward(x)),
            );
        let normed = after(&sublayer.norm, x.clone());
        let x = x + after(&sublayer.norm_after, cross(normed));
        x.clone() + after(&block.norm2_after, feed(after(&block.norm2, x)))
    });
}

#[test]
fn cross_attention_of_parallel_block_is_third_branch() {
    for shared_norm in [true, false] {
        check_wiring(
            Wiring::Parallel { shared_norm },
            |block, x, [attend, cross, feed]| {
                let own = &block.cross.as_ref().unwrap().norm;
                assert_eq!(own.is_none(), shared_norm);
                let normed = |norm: &Option<emberlm_model::nn::Norm<Flex>>| {
                    norm.as_ref()
                        .or(block.norm1.as_ref())
                        .unwrap()
                        .forward(x.clone())
                };
                let attended = attend(block.norm1.as_ref().unwrap().forward(x.clone()));
                x.clone() + attended + cross(normed(own)) + feed(normed(&block.norm2))
            },
        );
    }
}

/// Projects the memory once and decodes each token with the cache.
#[test]
fn cached_decoding_with_projected_memory_equals_full_pass() {
    let device = Default::default();
    let config = StackConfig {
        rotary: Some(RotaryConfig::new(8, 4)),
        ..StackConfig::new(2, block(Wiring::PreNorm))
    };
    let stack = config.init::<Flex>(&device);
    let memory = stack
        .project_memory(random([2, 7, D_MEMORY]), None)
        .unwrap();
    let context = StackContext {
        memory: Some(&memory),
        ..StackContext::default()
    };
    let x = random([2, 6, D]);
    let whole = stack.forward(x.clone(), context.clone(), None).unwrap();
    let mut cache = config.cache(2, 6, &device);
    let tokens = (0..6).map(|i| {
        let token = x.clone().narrow(1, i, 1);
        stack
            .forward(token, context.clone(), Some(&mut cache))
            .unwrap()
    });
    assert_close(Tensor::cat(tokens.collect(), 1), whole);
    assert_eq!(cache.len(), 6);
}
