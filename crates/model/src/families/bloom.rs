//! BLOOM (BigScience 2022, [2211.05100](https://arxiv.org/abs/2211.05100)).
//!
//! ```text
//! x = ln_e(E[token])
//! x = x + Wo · attention(q, k, v)                   q, k, v = W · ln₁(x); scores q kᵀ / √head_dim - slope · distance
//! x = x + W₂ · gelu(W₁ · ln₂(x))                    GELU by tanh
//! logits = E · ln_f(x)                              LayerNorm, ε 1e-5; biases in the blocks; tied
//! ```
//!
//! A head's slope is fixed (Press et al. 2021, "ALiBi", [2108.12409](https://arxiv.org/abs/2108.12409)); there are no other positions. W is stored head
//! by head: a head's queries, keys and values.

use super::prelude::*;
use crate::weights::names::{as_is, fused_per_group, linear};

pub(super) fn presets() -> Vec<Preset> {
    let model = |d_model, n_layers, heads| ModelConfig {
        vocab_size: Some(250_880),
        ..sized(d_model, n_layers, heads)
    };
    presets! {
        "bloom-560m", "BLOOM, 560M parameters, tied" => model(1024, 24, 16);
        "bloom-1b1", "BLOOM, 1.1B parameters, tied" => model(1536, 24, 16);
        "bloom-7b1", "BLOOM, 7.1B parameters, tied" => model(4096, 30, 32);
    }
}

fn sized(d_model: usize, n_layers: usize, heads: usize) -> ModelConfig {
    ModelConfig {
        seq_len: 2048,
        d_model,
        n_layers,
        heads,
        norm_embedding: true,
        bias: Biases::all(true),
        norm: layer_norm(1e-5),
        position: Position::Alibi,
        feed_forward: FeedForward::dense(Activation::GeluTanh),
        head: head(true),
        ..common(Family::Bloom)
    }
}

pub(super) const EXCHANGE: Option<Exchange> = Some(Exchange {
    further_blocks: false,
    within: &[],
    model_type: "bloom",
    architecture: "BloomForCausalLM",
    prefix: "transformer.",
    embedding: "transformer.word_embeddings.weight",
    head: "lm_head.weight",
    constant: |_| false,
    read,
    write,
    complete: |raw| {
        raw.bias = Biases::all(true);
        complete_norms(raw);
    },
});

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.only(
        "apply_residual_connection_post_layernorm",
        false,
        "residuals after the norm are not computed",
    )?;
    let d_model = fields.size_by_names(["n_embed", "hidden_size"], 64)?;
    let n_layers = fields.size_by_names(["n_layer", "num_hidden_layers"], 2)?;
    let heads = fields.size_by_names(["n_head", "num_attention_heads"], 8)?;
    let raw = sized(d_model, n_layers, heads);
    fields.divides("n_head", heads, "hidden_size", d_model)?;
    Ok(ModelConfig {
        vocab_size: Some(fields.size("vocab_size", 250_880)?),
        seq_len: fields.size("seq_length", raw.seq_len)?,
        norm: layer_norm(fields.number("layer_norm_epsilon", 1e-5)?),
        head: head(fields.flag("tie_word_embeddings", true)?),
        init: normal(fields.number("initializer_range", 0.02)?),
        ..raw
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    // The type has no field for a context; published models have this one.
    set("seq_length", json!(config.seq_len()));
    set("hidden_size", json!(config.d_model()));
    set("n_layer", json!(config.n_layers()));
    set("n_head", json!(config.heads()));
    set("layer_norm_epsilon", json!(config.norm_epsilon()));
    fields
}

/// Tensor names of Hugging Face checkpoints.
pub(super) const NAMES: Names<'static> = Names {
    model: &[
        as_is("tokens", "transformer.word_embeddings.weight"),
        as_is("norm_embedding", "transformer.word_embeddings_layernorm"),
        as_is("norm_final", "transformer.ln_f"),
        as_is("head", "lm_head.weight"),
    ],
    block: "transformer.h.*",
    blocks: &[&[
        as_is("norm1", "input_layernorm"),
        as_is("norm2", "post_attention_layernorm"),
        fused_per_group("attention.qkv", "self_attention.query_key_value"),
        linear("attention.out", "self_attention.dense"),
        linear("feed_forward.up", "mlp.dense_h_to_4h"),
        linear("feed_forward.down", "mlp.dense_4h_to_h"),
    ]],
};
