//! The decoder of "Attention Is All You Need" (Vaswani et al. 2017) as a language model.
//!
//! ```text
//! x = √d_model · E[token] + sinusoid[position]
//! x = ln₁(x + Wo · attention(W · x))                ln: LayerNorm, ε 1e-5
//! x = ln₂(x + W₂ · relu(W₁ · x))
//! logits = H · ln_f(x) + b                          biases throughout
//! ```
//!
//! This model is causal. The reference document inverts its mask, so that tokens attend to later tokens and not to
//! themselves, which lets the model read its targets.

use emberlm_kernels::Activation;

use super::{Definition, Family, Preset, common};
use crate::config::{
    Biases, DropoutSite, FeedForward, Head, Init, ModelConfig, Norm, Position, Wiring,
};
use crate::weights::names::{TensorName, as_is, linear, query_key_value};

pub(super) const DEFINITION: Definition = Definition {
    name: "vanilla",
    presets,
    names: NAMES,
    exchange: None,
};

fn presets() -> Vec<Preset> {
    vec![Preset::new(
        "vanilla",
        "the original transformer's decoder at GPT-2 small's size: norms after, sinusoidal positions",
        ModelConfig {
            vocab_size: Some(50_257),
            dropout_sites: vec![DropoutSite::Residual],
            scale_embedding: true,
            bias: Biases::all(true),
            norm: Norm::Layer {
                bias: true,
                epsilon: 1e-5,
            },
            position: Position::Sinusoidal,
            feed_forward: FeedForward::dense(Activation::Relu),
            wiring: Wiring::PostNorm,
            head: Head {
                bias: true,
                ..common(Family::Vanilla).head
            },
            init: Init::FanIn,
            ..common(Family::Vanilla)
        },
    )]
}

/// Tensor names of the reference document's `state_dict`.
const NAMES: &[TensorName] = &[
    as_is("tokens", "embedding.weight"),
    as_is("norm_final", "ln_f"),
    as_is("head", "head.weight"),
    as_is("head_bias", "head.bias"),
    as_is("blocks.*.norm1", "blocks.*.norm1"),
    as_is("blocks.*.norm2", "blocks.*.norm2"),
    query_key_value(
        "blocks.*.attention.qkv",
        [
            "blocks.*.attention.q_linear",
            "blocks.*.attention.k_linear",
            "blocks.*.attention.v_linear",
        ],
    ),
    linear("blocks.*.attention.out", "blocks.*.attention.out_linear"),
    linear("blocks.*.feed_forward.up", "blocks.*.feed_forward.0"),
    linear("blocks.*.feed_forward.down", "blocks.*.feed_forward.2"),
];
