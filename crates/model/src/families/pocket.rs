//! PocketTransformer: a small model of modern parts.
//!
//! ```text
//! x = norm(E[token])                      norm(x) = x / (√mean(x²) + 1e-8), no parameters
//! x = x + Wo · attention(rope(q), rope(k), v)       q, k, v = W · norm(x): 6 query heads on 2 key-value heads
//! x = x + W₂ · relu(W₁ · norm(x))²
//! logits = H · norm(x)                    H untied; no biases anywhere
//! ```

use emberlm_kernels::{Activation, RotaryLayout};

use super::{Family, Preset};
use crate::checked::DecoderConfig;
use crate::config::{
    AttentionKind, Biases, DropoutSite, FeedForward, Head, Init, ModelConfig, Norm, Position,
    RotaryScaling, Wiring,
};
use crate::weights::map::{Source, block_path};

pub(super) fn presets() -> Vec<Preset> {
    vec![
        Preset {
            name: "pocket",
            about: "PocketTransformer as published: 48,034,560 parameters with the GPT-2 vocabulary",
            config: ModelConfig {
                vocab_size: 50_257,
                ..sized(256, 384, 6, 6, 2)
            },
        },
        Preset {
            name: "pocket-tales",
            about: "a PocketTransformer that learns the built-in tales in two minutes on two CPU cores",
            config: sized(256, 96, 4, 6, 2),
        },
    ]
}

/// The published parts at other sizes; the hidden width is 4 · d_model rounded up to a multiple of 64.
fn sized(
    seq_len: usize,
    d_model: usize,
    n_layers: usize,
    heads: usize,
    kv_heads: usize,
) -> ModelConfig {
    ModelConfig {
        family: Family::Pocket,
        vocab_size: 0,
        seq_len,
        d_model,
        n_layers,
        heads,
        kv_heads,
        head_dim: 0,
        window: 0,
        global_tokens: 0,
        attention: AttentionKind::Softmax,
        qk_norm: false,
        dropout: 0.0,
        dropout_sites: vec![
            DropoutSite::Attention,
            DropoutSite::Hidden,
            DropoutSite::Residual,
        ],
        norm_embedding: true,
        bias: Biases::all(false),
        norm: Norm::UnitRms { epsilon: 1e-8 },
        position: Position::Rotary {
            dims: 0,
            base: 10_000.0,
            layout: RotaryLayout::HalfSplit,
            scaling: RotaryScaling::None,
        },
        feed_forward: FeedForward::Dense {
            activation: Activation::ReluSquared,
            width: (4 * d_model).next_multiple_of(64),
        },
        wiring: Wiring::PreNorm,
        head: Head {
            tied: false,
            bias: false,
            soft_cap: 0.0,
        },
        init: Init::FanIn,
    }
}

/// The names of the published code's `state_dict`.
pub(super) fn source(_config: &DecoderConfig, path: &str) -> Option<Source> {
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
            let maps = ["gqa.Wq", "gqa.Wk", "gqa.Wv"];
            Some(Source::transposed_each(maps.map(at)))
        }
        "attention.out.weight" => Some(Source::transposed(at("gqa.Wo"))),
        "feed_forward.up.weight" => Some(Source::transposed(at("ffn.fc1"))),
        "feed_forward.down.weight" => Some(Source::transposed(at("ffn.fc2"))),
        _ => None,
    }
}
