//! The decoder of "Attention Is All You Need" (Vaswani et al. 2017) as a language model.
//!
//! ```text
//! x = √d_model · E[token] + sinusoid[position]
//! x = ln₁(x + Wo · attention(W · x))                ln: LayerNorm, ε 1e-5
//! x = ln₂(x + W₂ · relu(W₁ · x))
//! logits = H · ln_f(x) + b                          biases throughout
//! ```
//!
//! The document it is taken from builds its mask the wrong way round, so that a token sees those after it and not
//! itself: such a model reads what it is to predict. This one is causal.

use emberlm_kernels::Activation;

use super::{Definition, Family, Preset, common};
use crate::checked::DecoderConfig;
use crate::config::{
    Biases, DropoutSite, FeedForward, Head, Init, ModelConfig, Norm, Position, Wiring,
};
use crate::weights::map::{Source, block_path};

pub(super) const DEFINITION: Definition = Definition {
    name: "vanilla",
    presets,
    source,
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

/// The names of the document's `state_dict`.
fn source(config: &DecoderConfig, path: &str) -> Option<Source> {
    let Some((layer, rest)) = block_path(path) else {
        return match path {
            "tokens" => Some(Source::as_is("embedding.weight")),
            "norm_final.gain" => Some(Source::as_is("ln_f.weight")),
            "norm_final.bias" => Some(Source::as_is("ln_f.bias")),
            "head" => Some(Source::as_is("head.weight")),
            "head_bias" => Some(Source::as_is("head.bias")),
            _ => None,
        };
    };
    let at = |name: &str| format!("blocks.{layer}.{name}");
    let (part, parameter) = rest.rsplit_once('.')?;
    match (part, parameter) {
        ("norm1" | "norm2", "gain") => Some(Source::as_is(at(&format!("{part}.weight")))),
        ("norm1" | "norm2", "bias") => Some(Source::as_is(at(&format!("{part}.bias")))),
        ("attention.qkv", _) => {
            let names = ["q", "k", "v"].map(|n| at(&format!("attention.{n}_linear.{parameter}")));
            Some(Source::query_key_value(config, names))
        }
        _ => {
            let name = match part {
                "attention.out" => "attention.out_linear",
                "feed_forward.up" => "feed_forward.0",
                "feed_forward.down" => "feed_forward.2",
                _ => return None,
            };
            Some(Source::transposed(at(&format!("{name}.{parameter}"))))
        }
    }
}
