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

use super::prelude::*;
use crate::weights::names::{as_is, linear, query_key_value};

pub(super) const EXCHANGE: Option<Exchange> = None;

pub(super) fn presets() -> Vec<Preset> {
    presets! {
        "palm-8b", "PaLM's smallest size" => sized(4096, 32, 16);
        "palm-62b", "PaLM's middle size" => sized(8192, 64, 32);
        "palm-540b", "PaLM's largest size" => sized(18_432, 118, 48);
    }
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
pub(super) const NAMES: Names<'static> = Names {
    model: &[
        as_is("tokens", "embedding.weight"),
        as_is("norm_final.gain", "norm.weight"),
    ],
    block: "blocks.*",
    blocks: &[&[
        as_is("norm1.gain", "norm.weight"),
        query_key_value(
            "attention.qkv.weight",
            [
                "attention.q.weight",
                "attention.k.weight",
                "attention.v.weight",
            ],
        ),
        linear("attention.out.weight", "attention.out.weight"),
        linear("feed_forward.gate.weight", "feed_forward.gate.weight"),
        linear("feed_forward.up.weight", "feed_forward.up.weight"),
        linear("feed_forward.down.weight", "feed_forward.down.weight"),
    ]],
};
