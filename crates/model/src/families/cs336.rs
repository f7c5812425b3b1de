//! The transformer of Stanford's CS336.
//!
//! ```text
//! x = E[token]
//! x = x + Wo · attention(rope(q), rope(k), v)       q, k, v = W · rms₁(x); interleaved rotary layout
//! x = x + W₂ · (silu(W₁ · rms₂(x)) ∘ W₃ · rms₂(x))  ⌊8 · d_model / 3⌋ wide
//! logits = H · rms(x)                               RMSNorm with a gain, ε 1e-5; no biases, H untied
//! ```

use emberlm_kernels::{Activation, RotaryLayout};

use super::{Definition, Family, Preset, common, rotary};
use crate::config::{FeedForward, Init, ModelConfig};
use crate::weights::names::{TensorName, as_is, linear, query_key_value};

pub(super) const DEFINITION: Definition = Definition {
    name: "cs336",
    presets,
    names: NAMES,
    exchange: None,
};

fn presets() -> Vec<Preset> {
    vec![Preset::new(
        "cs336",
        "the course's model at its TinyStories size: 4 layers of width 512, a vocabulary of 10,000",
        ModelConfig {
            vocab_size: Some(10_000),
            seq_len: 256,
            d_model: 512,
            n_layers: 4,
            heads: 16,
            position: rotary(None, 10_000.0, RotaryLayout::Interleaved),
            feed_forward: FeedForward::gated(Activation::Silu).with_expansion(8.0 / 3.0),
            init: Init::TruncatedXavier,
            ..common(Family::Cs336)
        },
    )]
}

/// Tensor names of the assignment's `state_dict`.
const NAMES: &[TensorName] = &[
    as_is("tokens", "embedding.weights"),
    as_is("norm_final.gain", "norm.gamma_weights"),
    as_is("head", "linear.weights"),
    as_is("blocks.*.norm1.gain", "blocks.*.norm1.gamma_weights"),
    as_is("blocks.*.norm2.gain", "blocks.*.norm2.gamma_weights"),
    query_key_value(
        "blocks.*.attention.qkv.weight",
        [
            "blocks.*.MHA.W_Q.weights",
            "blocks.*.MHA.W_K.weights",
            "blocks.*.MHA.W_V.weights",
        ],
    ),
    linear("blocks.*.attention.out.weight", "blocks.*.MHA.W_O.weights"),
    linear(
        "blocks.*.feed_forward.gate.weight",
        "blocks.*.FFN.weight1.weights",
    ),
    linear(
        "blocks.*.feed_forward.down.weight",
        "blocks.*.FFN.weight2.weights",
    ),
    linear(
        "blocks.*.feed_forward.up.weight",
        "blocks.*.FFN.weight3.weights",
    ),
];
