//! A pre-norm transformer (Xiong et al. 2020) with learned positions.
//!
//! ```text
//! x = E[token] + P[position]
//! x = x + Wo · attention(W · ln₁(x))                ln: LayerNorm, ε 1e-5
//! x = x + W₂ · gelu(W₁ · ln₂(x))                    exact GELU (error function)
//! logits = H · ln_f(x)                              biases in the blocks, none in the untied head
//! ```

use super::prelude::*;
use crate::weights::names::{as_is, linear, query_key_value};

pub(super) const EXCHANGE: Option<Exchange> = None;

pub(super) fn presets() -> Vec<Preset> {
    presets! {
        "prenorm", "norms first, learned positions, GELU: the seed's sizes, its feed-forward part 2048 wide" => ModelConfig {
            vocab_size: Some(50_257),
            dropout_sites: vec![DropoutSite::Residual],
            bias: Biases::all(true),
            norm: layer_norm(1e-5),
            position: Position::Learned,
            feed_forward: FeedForward::dense(Activation::Gelu).with_expansion(2048.0 / 768.0),
            init: Init::FanIn,
            ..common(Family::Prenorm)
        };
    }
}

/// Tensor names of the reference document's `state_dict`.
pub(super) const NAMES: Names<'static> = Names {
    model: &[
        as_is("tokens", "token_embedding.weight"),
        as_is("positions.weight", "position_embedding.weight"),
        as_is("norm_final", "ln_final"),
        as_is("head", "lm_head.weight"),
    ],
    block: "transformer_blocks.*",
    blocks: &[&[
        as_is("norm1", "ln1"),
        as_is("norm2", "ln2"),
        query_key_value(
            "attention.qkv",
            ["attention.W_q", "attention.W_k", "attention.W_v"],
        ),
        linear("attention.out", "attention.W_o"),
        linear("feed_forward.up", "ffn.0"),
        linear("feed_forward.down", "ffn.2"),
    ]],
};
