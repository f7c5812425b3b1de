//! PocketTransformer: a small model of modern parts.
//!
//! ```text
//! x = norm(E[token])                      norm(x) = x / (√mean(x²) + 1e-8), no parameters
//! x = x + Wo · attention(rope(q), rope(k), v)       q, k, v = W · norm(x): 6 query heads on 2 key-value heads
//! x = x + W₂ · relu(W₁ · norm(x))²
//! logits = H · norm(x)                    H untied; no biases anywhere
//! ```

use emberlm_kernels::Activation;

use super::{Definition, Family, Preset, common};
use crate::checked::DecoderConfig;
use crate::config::{DropoutSite, FeedForward, Init, ModelConfig, Norm};
use crate::weights::map::{Source, block_path};

pub(super) const DEFINITION: Definition = Definition {
    name: "pocket",
    presets,
    source,
    exchange: None,
};

fn presets() -> Vec<Preset> {
    vec![
        Preset::new(
            "pocket",
            "PocketTransformer as published: 48,034,560 parameters with the GPT-2 vocabulary",
            ModelConfig {
                vocab_size: Some(50_257),
                ..sized(384, 6)
            },
        ),
        Preset::new(
            "pocket-tales",
            "a PocketTransformer that learns the built-in tales in two minutes on two CPU cores",
            sized(96, 4),
        ),
    ]
}

/// The published parts at other sizes; the hidden width is 4 · d_model rounded up to a multiple of 64.
fn sized(d_model: usize, n_layers: usize) -> ModelConfig {
    ModelConfig {
        seq_len: 256,
        d_model,
        n_layers,
        heads: 6,
        kv_heads: 2,
        dropout_sites: vec![
            DropoutSite::Attention,
            DropoutSite::Hidden,
            DropoutSite::Residual,
        ],
        norm_embedding: true,
        norm: Norm::UnitRms { epsilon: 1e-8 },
        feed_forward: FeedForward::dense(Activation::ReluSquared)
            .with_width((4 * d_model).next_multiple_of(64)),
        init: Init::FanIn,
        ..common(Family::Pocket)
    }
}

/// The names of the published code's `state_dict`.
fn source(config: &DecoderConfig, path: &str) -> Option<Source> {
    let Some((layer, rest)) = block_path(path) else {
        return match path {
            "tokens" => Some(Source::as_is("embedding.weight")),
            "head" => Some(Source::as_is("head.weight")),
            _ => None,
        };
    };
    let at = |name: &str| format!("blocks.{layer}.{name}.weight");
    match rest {
        "attention.qkv.weight" => {
            let names = ["gqa.Wq", "gqa.Wk", "gqa.Wv"].map(at);
            Some(Source::query_key_value(config, names))
        }
        "attention.out.weight" => Some(Source::transposed(at("gqa.Wo"))),
        "feed_forward.up.weight" => Some(Source::transposed(at("ffn.fc1"))),
        "feed_forward.down.weight" => Some(Source::transposed(at("ffn.fc2"))),
        _ => None,
    }
}
