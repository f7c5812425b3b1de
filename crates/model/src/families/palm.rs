//! PaLM (Chowdhery et al. 2022).
//!
//! ```text
//! h = ln(x)                                         LayerNorm with a gain and no bias, ε 1e-5
//! x = x + Wo · attention(rope(q), rope(k), v) + W₂ · (silu(W₁ · h) ∘ W₃ · h)
//! q, k, v = W · h                                   one key-value head for all query heads; 4 · d_model wide
//! logits = E · ln_f(x) / √d_model                   tied to the embedding; no biases
//! ```
//!
//! The paper does not say which elements of a head its rotary positions pair, nor its ε: here the halves, and 1e-5.

use emberlm_kernels::Activation;

use super::{Definition, Family, Preset, common};
use crate::checked::DecoderConfig;
use crate::config::{FeedForward, Head, Init, ModelConfig, Norm, Wiring};
use crate::weights::map::{Source, block_path};

pub(super) const DEFINITION: Definition = Definition {
    name: "palm",
    presets,
    source,
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
        kv_heads: 1,
        head_dim: Some(256),
        norm: Norm::Layer {
            bias: false,
            epsilon: 1e-5,
        },
        feed_forward: FeedForward::gated(Activation::Silu).with_width(4 * d_model),
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

/// No checkpoint was published: the names are this project's reference's.
fn source(config: &DecoderConfig, path: &str) -> Option<Source> {
    let Some((layer, rest)) = block_path(path) else {
        return match path {
            "tokens" => Some(Source::as_is("embedding.weight")),
            "norm_final.gain" => Some(Source::as_is("norm.weight")),
            _ => None,
        };
    };
    let at = |name: &str| format!("blocks.{layer}.{name}.weight");
    match rest {
        "norm1.gain" => Some(Source::as_is(at("norm"))),
        "attention.qkv.weight" => {
            let names = ["attention.q", "attention.k", "attention.v"].map(at);
            Some(Source::query_key_value(config, names))
        }
        _ => {
            let map = rest.strip_suffix(".weight")?;
            Some(Source::transposed(at(map)))
        }
    }
}
