//! The transformer of Stanford's CS336.
//!
//! ```text
//! x = E[token]
//! x = x + Wo · attention(rope(q), rope(k), v)       q, k, v = W · rms₁(x); interleaved rotary layout
//! x = x + W₂ · (silu(W₁ · rms₂(x)) ∘ W₃ · rms₂(x))  ⌊8 · d_model / 3⌋ wide
//! logits = H · rms(x)                               RMSNorm with a gain, ε 1e-5; no biases, H untied
//! ```

use super::prelude::*;
use crate::weights::names::{as_is, linear, query_key_value};

pub(super) const EXCHANGE: Option<Exchange> = None;

pub(super) fn presets() -> Vec<Preset> {
    presets! {
        "cs336", "the course's model at its TinyStories size: 4 layers of width 512, a vocabulary of 10,000" => ModelConfig {
            vocab_size: Some(10_000),
            seq_len: 256,
            d_model: 512,
            n_layers: 4,
            heads: 16,
            position: rotary(None, 10_000.0, RotaryLayout::Interleaved),
            feed_forward: FeedForward::gated(Activation::Silu).with_expansion(8.0 / 3.0),
            init: Init::TruncatedXavier,
            ..common(Family::Cs336)
        };
    }
}

/// Tensor names of the assignment's `state_dict`.
pub(super) const NAMES: Names<'static> = Names {
    model: &[
        as_is("tokens", "embedding.weights"),
        as_is("norm_final.gain", "norm.gamma_weights"),
        as_is("head", "linear.weights"),
    ],
    block: "blocks.*",
    blocks: &[&[
        as_is("norm1.gain", "norm1.gamma_weights"),
        as_is("norm2.gain", "norm2.gamma_weights"),
        query_key_value(
            "attention.qkv.weight",
            ["MHA.W_Q.weights", "MHA.W_K.weights", "MHA.W_V.weights"],
        ),
        linear("attention.out.weight", "MHA.W_O.weights"),
        linear("feed_forward.gate.weight", "FFN.weight1.weights"),
        linear("feed_forward.down.weight", "FFN.weight2.weights"),
        linear("feed_forward.up.weight", "FFN.weight3.weights"),
    ]],
};
