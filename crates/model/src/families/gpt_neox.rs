//! GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023).
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v) + W₂ · gelu(W₁ · ln₂(x))  parallel, one norm per branch
//! q, k, v = W · ln₁(x)                              a quarter of each head is rotated, in half-split layout
//! logits = H · ln_f(x)                              LayerNorm, ε 1e-5; biases in the blocks; H untied
//! ```
//!
//! Without `use_parallel_residual`, the block is pre-norm. W is stored head by head: the queries, keys and values of
//! one head, then those of the next.

use super::prelude::*;
use crate::weights::names::{as_is, fused_per_group, linear};

pub(super) fn presets() -> Vec<Preset> {
    let model = |vocab_size, d_model, n_layers, heads| ModelConfig {
        vocab_size: Some(vocab_size),
        ..sized(2048, d_model, n_layers, heads)
    };
    presets! {
        "pythia-70m", "Pythia, 70M parameters" => model(50_304, 512, 6, 8);
        "pythia-160m", "Pythia, 160M parameters" => model(50_304, 768, 12, 12);
        "pythia-410m", "Pythia, 410M parameters" => model(50_304, 1024, 24, 16);
        "pythia-1b", "Pythia, 1B parameters" => model(50_304, 2048, 16, 8);
        "pythia-1.4b", "Pythia, 1.4B parameters" => model(50_304, 2048, 24, 16);
        "pythia-2.8b", "Pythia, 2.8B parameters" => model(50_304, 2560, 32, 32);
        "pythia-6.9b", "Pythia, 6.9B parameters" => model(50_432, 4096, 32, 32);
        "pythia-12b", "Pythia, 12B parameters" => model(50_688, 5120, 36, 40);
        "gpt-neox-20b", "GPT-NeoX, 20B parameters" => ModelConfig {
            // The published `config.json` has `gelu_fast`, the tanh approximation; Pythia's have `gelu`.
            feed_forward: FeedForward::dense(Activation::GeluTanh),
            ..model(50_432, 6144, 44, 64)
        };
    }
}

fn sized(seq_len: usize, d_model: usize, n_layers: usize, heads: usize) -> ModelConfig {
    ModelConfig {
        seq_len,
        d_model,
        n_layers,
        heads,
        bias: Biases::all(true),
        norm: layer_norm(1e-5),
        position: rotary(
            Some(d_model / heads.max(1) / 4),
            10_000.0,
            RotaryLayout::HalfSplit,
        ),
        feed_forward: FeedForward::dense(Activation::Gelu),
        wiring: Wiring::Parallel { shared_norm: false },
        init: Init::Small,
        ..common(Family::GptNeox)
    }
}

pub(super) const EXCHANGE: Option<Exchange> = Some(Exchange {
    further_blocks: false,
    within: &[],
    model_type: "gpt_neox",
    architecture: "GPTNeoXForCausalLM",
    prefix: "gpt_neox.",
    embedding: "gpt_neox.embed_in.weight",
    head: "embed_out.weight",
    constant: |name| {
        let constants = [
            ".attention.bias",
            ".attention.masked_bias",
            ".rotary_emb.inv_freq",
        ];
        constants.iter().any(|end| name.ends_with(end))
    },
    read,
    write,
    complete: |raw| {
        raw.bias.feed_forward = true;
        complete_norms(raw);
    },
});

const ROPE: RopeFields = RopeFields {
    base: "rotary_emb_base",
    default_base: 10_000.0,
    fraction: "rotary_pct",
    default_fraction: 0.25,
    partial: true,
    original: None,
};

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let raw = sized(
        fields.size("max_position_embeddings", 2048)?,
        fields.size("hidden_size", 6144)?,
        fields.size("num_hidden_layers", 44)?,
        fields.size("num_attention_heads", 64)?,
    );
    fields.divides("num_attention_heads", raw.heads, "hidden_size", raw.d_model)?;
    let biased = fields.flag("attention_bias", true)?;
    Ok(ModelConfig {
        vocab_size: Some(fields.size("vocab_size", 50_432)?),
        bias: Biases {
            feed_forward: true,
            ..Biases::all(biased)
        },
        norm: layer_norm(fields.number("layer_norm_eps", 1e-5)?),
        position: rope::read(fields, &ROPE, raw.d_model / raw.heads, raw.seq_len)?,
        feed_forward: FeedForward::dense(activation(fields, "hidden_act", Activation::Gelu)?)
            .with_width(fields.size("intermediate_size", 24_576)?),
        wiring: match fields.flag("use_parallel_residual", true)? {
            true => Wiring::Parallel { shared_norm: false },
            false => Wiring::PreNorm,
        },
        head: head(fields.flag("tie_word_embeddings", false)?),
        ..raw
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("max_position_embeddings", json!(config.seq_len()));
    set("hidden_size", json!(config.d_model()));
    set("num_hidden_layers", json!(config.n_layers()));
    set("num_attention_heads", json!(config.heads()));
    set("intermediate_size", json!(config.feed_forward_width()));
    set("hidden_act", json!(activation_name(config.activation())));
    set("layer_norm_eps", json!(config.norm_epsilon()));
    set("attention_bias", json!(config.bias().qkv));
    set(
        "use_parallel_residual",
        json!(config.wiring() != Wiring::PreNorm),
    );
    if let Some(rope) = rope::write(config, &ROPE) {
        set("rope_parameters", rope);
    }
    fields
}

/// Tensor names of Hugging Face checkpoints.
pub(super) const NAMES: Names<'static> = Names {
    model: &[
        as_is("tokens", "gpt_neox.embed_in.weight"),
        as_is("norm_final", "gpt_neox.final_layer_norm"),
        as_is("head", "embed_out.weight"),
    ],
    block: "gpt_neox.layers.*",
    blocks: &[&[
        as_is("norm1", "input_layernorm"),
        as_is("norm2", "post_attention_layernorm"),
        fused_per_group("attention.qkv", "attention.query_key_value"),
        linear("attention.out", "attention.dense"),
        linear("feed_forward.up", "mlp.dense_h_to_4h"),
        linear("feed_forward.down", "mlp.dense_4h_to_h"),
    ]],
};
