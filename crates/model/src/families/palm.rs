//! PaLM (Chowdhery et al. 2022).
//!
//! ```text
//! h = ln(x)                                         LayerNorm with a gain and no bias, ε 1e-5
//! x = x + Wo · attention(rope(q), rope(k), v) + W₂ · (silu(W₁ · h) ∘ W₃ · h)
//! q, k, v = W · h                                   one key-value head for all query heads; 4 · d_model wide
//! logits = E · ln_f(x) / √d_model                   tied to the embedding; no biases
//! ```
//!
//! The paper does not specify the rotary layout and ε; this project uses half-split and 1e-5.

use emberlm_kernels::Activation;

use super::{Definition, Family, Preset, common};
use crate::config::{FeedForward, Head, Init, ModelConfig, Norm, Wiring};
use crate::weights::names::{TensorName, as_is, linear, query_key_value};

pub(super) const DEFINITION: Definition = Definition {
    name: "palm",
    presets,
    names: NAMES,
    exchange: None,
};

fn presets() -> Vec<Preset> {
    vec![
        Preset::new("palm-8b", "PaLM's smallest size", sized(4096, 32, 16)),
        Preset::new("palm-62b", "PaLM's middle size", sized(8192, 64, 32)),
        Preset::new("palm-540b", "PaLM's largest size", sized(18_432, 118, 48)),
    ]
}

fn sized(d_model: usize, n_layers: usize, heads: usize) -> ModelConfig {
    ModelConfig {
        vocab_size: Some(256_000),
        seq_len: 2048,
        d_model,
        n_layers,
        heads,
        kv_heads: Some(1),
        head_dim: Some(256),
        norm: Norm::Layer {
            bias: false,
            epsilon: 1e-5,
        },
        feed_forward: FeedForward::gated(Activation::Silu),
        wiring: Wiring::Parallel { shared_norm: true },
        head: Head {
            tied: true,
            scaled: true,
            ..common(Family::Palm).head
        },
        init: Init::LeCun,
        ..common(Family::Palm)
    }
}

/// Tensor names of this project's reference implementation; no checkpoint was published.
const NAMES: &[TensorName] = &[
    as_is("tokens", "embedding.weight"),
    as_is("norm_final.gain", "norm.weight"),
    as_is("blocks.*.norm1.gain", "blocks.*.norm.weight"),
    query_key_value(
        "blocks.*.attention.qkv.weight",
        [
            "blocks.*.attention.q.weight",
            "blocks.*.attention.k.weight",
            "blocks.*.attention.v.weight",
        ],
    ),
    linear(
        "blocks.*.attention.out.weight",
        "blocks.*.attention.out.weight",
    ),
    linear(
        "blocks.*.feed_forward.gate.weight",
        "blocks.*.feed_forward.gate.weight",
    ),
    linear(
        "blocks.*.feed_forward.up.weight",
        "blocks.*.feed_forward.up.weight",
    ),
    linear(
        "blocks.*.feed_forward.down.weight",
        "blocks.*.feed_forward.down.weight",
    ),
];
