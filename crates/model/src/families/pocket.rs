//! PocketTransformer: a small model with modern components.
//!
//! ```text
//! x = norm(E[token])                      norm(x) = x / (√mean(x²) + 1e-8), no parameters
//! x = x + Wo · attention(rope(q), rope(k), v)       q, k, v = W · norm(x): 6 query heads, 2 key-value heads
//! x = x + W₂ · relu(W₁ · norm(x))²
//! logits = H · norm(x)                    H untied; no biases anywhere
//! ```

use super::prelude::*;
use crate::weights::names::{as_is, linear, query_key_value};

pub(super) const EXCHANGE: Option<Exchange> = None;

pub(super) fn presets() -> Vec<Preset> {
    presets! {
        "pocket", "PocketTransformer as published: 48,034,560 parameters with the GPT-2 vocabulary" => ModelConfig {
            vocab_size: Some(50_257),
            ..sized(384, 6)
        };
        "pocket-tales", "a PocketTransformer that learns the built-in tales in half a minute on two CPU cores" => sized(96, 4);
        "char-fast", "for characters, reaches the loss of char-nano in an eighth of its steps" => char_fast();
        "bpe-fast", "for small byte-pair vocabularies on a CPU, learns in half the time of nanoGPT's recipe" => fast(64, 128, 4, 4);
        "pocket-fast", "the components of bpe-fast in the sizes of pocket" => fast(256, 384, 6, 6);
        "gpt2-fast", "the components of bpe-fast in the sizes of GPT-2" => ModelConfig {
            vocab_size: Some(50_257),
            ..fast(1024, 768, 12, 12)
        };
    }
}

/// The published components at the given sizes.
fn sized(d_model: usize, n_layers: usize) -> ModelConfig {
    ModelConfig {
        seq_len: 256,
        d_model,
        n_layers,
        heads: 6,
        kv_heads: Some(2),
        dropout_sites: vec![
            DropoutSite::Attention,
            DropoutSite::Hidden,
            DropoutSite::Residual,
        ],
        norm_embedding: true,
        norm: Norm::UnitRms { epsilon: 1e-8 },
        feed_forward: FeedForward::dense(Activation::ReluSquared),
        init: Init::FanIn,
        ..common(Family::Pocket)
    }
}

/// A model of the given sizes with the components that reach a loss soonest, by the ablations of docs/results/recipes.md.
fn fast(seq_len: usize, d_model: usize, n_layers: usize, heads: usize) -> ModelConfig {
    ModelConfig {
        seq_len,
        d_model,
        n_layers,
        heads,
        qk_norm: true,
        feed_forward: FeedForward::dense(Activation::Gelu),
        head: head(true),
        init: Init::Normal {
            std: 0.02,
            scale_residual: true,
        },
        residual_mix: Some(ResidualMix::default()),
        ..common(Family::Pocket)
    }
}

/// The sizes of `char-nano`. With so few characters, value embeddings add few parameters.
fn char_fast() -> ModelConfig {
    ModelConfig {
        value_embeddings: Some(ValueEmbeddings {
            layers: FullLayers::Every { every: 1 },
            gate_inputs: None,
        }),
        ..fast(64, 128, 4, 4)
    }
}

/// Tensor names of the published code's `state_dict`.
pub(super) const NAMES: Names<'static> = Names {
    model: &[
        as_is("tokens", "embedding.weight"),
        as_is("head", "head.weight"),
    ],
    block: "blocks.*",
    blocks: &[&[
        query_key_value(
            "attention.qkv.weight",
            ["gqa.Wq.weight", "gqa.Wk.weight", "gqa.Wv.weight"],
        ),
        linear("attention.out.weight", "gqa.Wo.weight"),
        linear("feed_forward.up.weight", "ffn.fc1.weight"),
        linear("feed_forward.down.weight", "ffn.fc2.weight"),
    ]],
};
