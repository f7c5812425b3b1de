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

use super::prelude::*;
use crate::weights::names::{as_is, linear, query_key_value};

pub(super) const EXCHANGE: Option<Exchange> = None;

pub(super) fn presets() -> Vec<Preset> {
    presets! {
        "vanilla", "the original transformer's decoder at GPT-2 small's size: norms after, sinusoidal positions" => ModelConfig {
            vocab_size: Some(50_257),
            dropout_sites: vec![DropoutSite::Residual],
            scale_embedding: true,
            bias: Biases::all(true),
            norm: layer_norm(1e-5),
            position: Position::Sinusoidal,
            feed_forward: FeedForward::dense(Activation::Relu),
            wiring: Wiring::PostNorm,
            head: Head {
                bias: true,
                ..common(Family::Vanilla).head
            },
            init: Init::FanIn,
            ..common(Family::Vanilla)
        };
    }
}

/// Tensor names of the reference document's `state_dict`.
pub(super) const NAMES: Names<'static> = Names {
    model: &[
        as_is("tokens", "embedding.weight"),
        as_is("norm_final", "ln_f"),
        as_is("head", "head.weight"),
        as_is("head_bias", "head.bias"),
    ],
    block: "blocks.*",
    blocks: &[&[
        as_is("norm1", "norm1"),
        as_is("norm2", "norm2"),
        query_key_value(
            "attention.qkv",
            [
                "attention.q_linear",
                "attention.k_linear",
                "attention.v_linear",
            ],
        ),
        linear("attention.out", "attention.out_linear"),
        linear("feed_forward.up", "feed_forward.0"),
        linear("feed_forward.down", "feed_forward.2"),
    ]],
};
