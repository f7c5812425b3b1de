//! A pre-norm transformer (Xiong et al. 2020) with learned positions.
//!
//! ```text
//! x = E[token] + P[position]
//! x = x + Wo · attention(W · ln₁(x))                ln: LayerNorm, ε 1e-5
//! x = x + W₂ · gelu(W₁ · ln₂(x))                    exact GELU (error function)
//! logits = H · ln_f(x)                              biases in the blocks, none in the untied head
//! ```

use emberlm_kernels::Activation;

use super::{Definition, Family, Preset, common};
use crate::config::{Biases, DropoutSite, FeedForward, Init, ModelConfig, Norm, Position};
use crate::weights::names::{TensorName, as_is, linear, query_key_value};

pub(super) const DEFINITION: Definition = Definition {
    name: "prenorm",
    presets,
    names: NAMES,
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
            feed_forward: FeedForward::dense(Activation::Gelu).with_expansion(2048.0 / 768.0),
            init: Init::FanIn,
            ..common(Family::Prenorm)
        },
    )]
}

/// Tensor names of the reference document's `state_dict`.
const NAMES: &[TensorName] = &[
    as_is("tokens", "token_embedding.weight"),
    as_is("positions.weight", "position_embedding.weight"),
    as_is("norm_final", "ln_final"),
    as_is("head", "lm_head.weight"),
    as_is("blocks.*.norm1", "transformer_blocks.*.ln1"),
    as_is("blocks.*.norm2", "transformer_blocks.*.ln2"),
    query_key_value(
        "blocks.*.attention.qkv",
        [
            "transformer_blocks.*.attention.W_q",
            "transformer_blocks.*.attention.W_k",
            "transformer_blocks.*.attention.W_v",
        ],
    ),
    linear(
        "blocks.*.attention.out",
        "transformer_blocks.*.attention.W_o",
    ),
    linear("blocks.*.feed_forward.up", "transformer_blocks.*.ffn.0"),
    linear("blocks.*.feed_forward.down", "transformer_blocks.*.ffn.2"),
];
