//! A transformer with its norms first (Xiong et al. 2020) and learned positions.
//!
//! ```text
//! x = E[token] + P[position]
//! x = x + Wo · attention(W · ln₁(x))                ln: LayerNorm, ε 1e-5
//! x = x + W₂ · gelu(W₁ · ln₂(x))                    GELU by the error function
//! logits = H · ln_f(x)                              biases in the blocks, none in the untied head
//! ```

use emberlm_kernels::Activation;

use super::{Definition, Family, Preset, common};
use crate::checked::DecoderConfig;
use crate::config::{Biases, DropoutSite, FeedForward, Init, ModelConfig, Norm, Position};
use crate::weights::map::{Source, block_path};

pub(super) const DEFINITION: Definition = Definition {
    name: "prenorm",
    presets,
    source,
    exchange: None,
};

fn presets() -> Vec<Preset> {
    vec![Preset::new(
        "prenorm",
        "norms first, learned positions, GELU: the seed's sizes, its feed-forward part 2048 wide",
        ModelConfig {
            vocab_size: Some(50_257),
            dropout_sites: vec![DropoutSite::Residual],
            bias: Biases::all(true),
            norm: Norm::Layer {
                bias: true,
                epsilon: 1e-5,
            },
            position: Position::Learned,
            feed_forward: FeedForward::dense(Activation::Gelu).with_width(2048),
            init: Init::FanIn,
            ..common(Family::Prenorm)
        },
    )]
}

/// The names of the document's `state_dict`.
fn source(config: &DecoderConfig, path: &str) -> Option<Source> {
    let Some((layer, rest)) = block_path(path) else {
        return match path {
            "tokens" => Some(Source::as_is("token_embedding.weight")),
            "positions.weight" => Some(Source::as_is("position_embedding.weight")),
            "norm_final.gain" => Some(Source::as_is("ln_final.weight")),
            "norm_final.bias" => Some(Source::as_is("ln_final.bias")),
            "head" => Some(Source::as_is("lm_head.weight")),
            _ => None,
        };
    };
    let at = |name: String| format!("transformer_blocks.{layer}.{name}");
    let (part, parameter) = rest.rsplit_once('.')?;
    let norm = |name: &str| match parameter {
        "gain" => Source::as_is(at(format!("{name}.weight"))),
        _ => Source::as_is(at(format!("{name}.bias"))),
    };
    let map = |name: &str| Source::transposed(at(format!("{name}.{parameter}")));
    match part {
        "norm1" => Some(norm("ln1")),
        "norm2" => Some(norm("ln2")),
        "attention.qkv" => {
            let names = ["q", "k", "v"].map(|n| at(format!("attention.W_{n}.{parameter}")));
            Some(Source::query_key_value(config, names))
        }
        "attention.out" => Some(map("attention.W_o")),
        "feed_forward.up" => Some(map("ffn.0")),
        "feed_forward.down" => Some(map("ffn.2")),
        _ => None,
    }
}
