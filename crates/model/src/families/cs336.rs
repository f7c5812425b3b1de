//! The transformer of Stanford's CS336.
//!
//! ```text
//! x = E[token]
//! x = x + Wo · attention(rope(q), rope(k), v)       q, k, v = W · rms₁(x); neighbouring elements form a pair
//! x = x + W₂ · (silu(W₁ · rms₂(x)) ∘ W₃ · rms₂(x))  ⌊8 · d_model / 3⌋ wide
//! logits = H · rms(x)                               RMSNorm with a gain, ε 1e-5; no biases, H untied
//! ```

use emberlm_kernels::{Activation, RotaryLayout};

use super::{Definition, Family, Preset, common, rotary};
use crate::checked::DecoderConfig;
use crate::config::{FeedForward, Init, ModelConfig};
use crate::weights::map::{Source, block_path};

pub(super) const DEFINITION: Definition = Definition {
    name: "cs336",
    presets,
    source,
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
            kv_heads: 16,
            position: rotary(None, 10_000.0, RotaryLayout::Interleaved),
            feed_forward: FeedForward::gated(Activation::Silu).with_width(512 * 8 / 3),
            init: Init::TruncatedXavier,
            ..common(Family::Cs336)
        },
    )]
}

/// The names of the document's `state_dict`.
fn source(config: &DecoderConfig, path: &str) -> Option<Source> {
    let Some((layer, rest)) = block_path(path) else {
        return match path {
            "tokens" => Some(Source::as_is("embedding.weights")),
            "norm_final.gain" => Some(Source::as_is("norm.gamma_weights")),
            "head" => Some(Source::as_is("linear.weights")),
            _ => None,
        };
    };
    let at = |name: &str| format!("blocks.{layer}.{name}");
    match rest {
        "norm1.gain" => Some(Source::as_is(at("norm1.gamma_weights"))),
        "norm2.gain" => Some(Source::as_is(at("norm2.gamma_weights"))),
        "attention.qkv.weight" => {
            let names = ["MHA.W_Q.weights", "MHA.W_K.weights", "MHA.W_V.weights"].map(at);
            Some(Source::query_key_value(config, names))
        }
        "attention.out.weight" => Some(Source::transposed(at("MHA.W_O.weights"))),
        "feed_forward.gate.weight" => Some(Source::transposed(at("FFN.weight1.weights"))),
        "feed_forward.down.weight" => Some(Source::transposed(at("FFN.weight2.weights"))),
        "feed_forward.up.weight" => Some(Source::transposed(at("FFN.weight3.weights"))),
        _ => None,
    }
}
