//! LLaMA (Touvron et al. 2023), LLaMA 2, and LLaMA 3 (Dubey et al. 2024).
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v)       q, k, v = W · rms₁(x); half-split rotary layout
//! x = x + W₂ · (silu(W₁ · rms₂(x)) ∘ W₃ · rms₂(x))  ⅔ · 4 · d_model wide, rounded up to a multiple
//! logits = H · rms(x)                               no biases; options: grouped queries, tied head, RoPE scaling
//! ```
//!
//! Mistral, Qwen2 and Qwen3 share LLaMA's tensor names and `config.json` fields; their files define the differences.

use super::prelude::*;
use crate::weights::names::{TensorName, as_is, linear, query_key_value};

pub(super) const EXCHANGE: Option<Exchange> =
    Some(exchange("llama", "LlamaForCausalLM", read, write).within(&["llava"]));

pub(super) fn presets() -> Vec<Preset> {
    let small = sizes! { vocab_size 32_000, seq_len 2048, d_model 2048, n_layers 22, heads 32, kv_heads 4, width 5632 };
    let seven = sizes! { seq_len 4096, d_model 4096, n_layers 32, kv_heads 32, width rounded_width(4096, 256); ..small };
    let eight = sizes! { vocab_size 128_256, seq_len 8192, kv_heads 8, width 14_336; ..seven };
    let one = sizes! { vocab_size 128_256, seq_len 131_072, d_model 2048, n_layers 16, kv_heads 8, width 8192; ..small };
    let model = |sizes: Sizes, base| ModelConfig {
        position: rotary(None, base, RotaryLayout::HalfSplit),
        ..sizes.config(Family::Llama)
    };
    presets! {
        "tinyllama-1.1b", "TinyLlama, 1.1B parameters" => model(small, 10_000.0);
        "llama-2-7b", "LLaMA 2, 7B parameters" => model(seven, 10_000.0);
        "llama-3-8b", "LLaMA 3, 8B parameters" => model(eight, 500_000.0);
        "llama-3.2-1b", "LLaMA 3.2, 1B parameters, tied" => ModelConfig {
            position: Position::Rotary {
                dims: None,
                base: 500_000.0,
                layout: RotaryLayout::HalfSplit,
                scaling: RotaryScaling::Llama3 {
                    factor: 32.0,
                    low_frequency_factor: 1.0,
                    high_frequency_factor: 4.0,
                    original_seq_len: 8192,
                },
            },
            head: head(true),
            ..model(one, 500_000.0)
        };
        "llama-nano", "a small LLaMA to train on a CPU: 4 layers of width 256, tied" => nano();
    }
}

/// A model that trains on a CPU. Its widths are whole blocks of every type of GGUF files.
fn nano() -> ModelConfig {
    let sizes = sizes! { vocab_size 0, seq_len 256, d_model 256, n_layers 4, heads 4, kv_heads 2, width rounded_width(256, 256) };
    ModelConfig {
        vocab_size: None,
        head: head(true),
        ..sizes.config(Family::Llama)
    }
}

/// Returns ⅔ · 4 · d_model, rounded up to a multiple of `multiple`.
fn rounded_width(d_model: usize, multiple: usize) -> usize {
    (2 * 4 * d_model / 3).next_multiple_of(multiple)
}

/// Sizes of a model with LLaMA's structure.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) vocab_size: usize,
    pub(super) seq_len: usize,
    pub(super) d_model: usize,
    pub(super) n_layers: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) width: usize,
}

impl Sizes {
    pub(super) fn config(self, family: Family) -> ModelConfig {
        ModelConfig {
            vocab_size: Some(self.vocab_size),
            seq_len: self.seq_len,
            d_model: self.d_model,
            n_layers: self.n_layers,
            heads: self.heads,
            kv_heads: self.grouped_kv_heads(),
            feed_forward: FeedForward::gated(Activation::Silu).with_expansion(self.expansion()),
            ..common(family)
        }
    }

    /// The number of key-value heads with grouped queries; `None`, the default, if it equals the number of query heads.
    pub(super) fn grouped_kv_heads(self) -> Option<usize> {
        (self.kv_heads != self.heads).then_some(self.kv_heads)
    }

    /// The feed-forward width as a multiple of `d_model`.
    pub(super) fn expansion(self) -> f64 {
        self.width as f64 / self.d_model as f64
    }
}

/// Hugging Face format of a model type with LLaMA's tensor names.
pub(super) const fn exchange(
    model_type: &'static str,
    architecture: &'static str,
    read: fn(&Fields<'_>) -> Result<ModelConfig, HuggingFaceError>,
    write: fn(&TransformerConfig) -> Map<String, Value>,
) -> Exchange {
    Exchange {
        model_type,
        architecture,
        prefix: "model.",
        embedding: "model.embed_tokens.weight",
        head: "lm_head.weight",
        constant: |name| name.ends_with("rotary_emb.inv_freq"),
        read,
        write,
        complete: |_| {},
        further_blocks: false,
        within: &[],
    }
}

/// Reads the fields that all types with LLaMA's structure share. `defaults` and `head_dim` are the type's default
/// sizes.
pub(super) fn read_common(
    fields: &Fields<'_>,
    family: Family,
    defaults: Sizes,
    head_dim: Option<usize>,
) -> Result<ModelConfig, HuggingFaceError> {
    read_rotated(fields, family, defaults, head_dim, &FULL_HEAD)
}

/// [`read_common`] with other field names and defaults of the rotary positions.
pub(super) fn read_rotated(
    fields: &Fields<'_>,
    family: Family,
    defaults: Sizes,
    head_dim: Option<usize>,
    rope_fields: &RopeFields,
) -> Result<ModelConfig, HuggingFaceError> {
    let raw = read_sizes(fields, family, defaults, head_dim)?;
    let head_dim = raw.head_dim.unwrap_or_default();
    Ok(ModelConfig {
        position: rope::read(fields, rope_fields, head_dim, raw.seq_len)?,
        ..raw
    })
}

/// [`read_common`] without the positions.
pub(super) fn read_sizes(
    fields: &Fields<'_>,
    family: Family,
    defaults: Sizes,
    head_dim: Option<usize>,
) -> Result<ModelConfig, HuggingFaceError> {
    let heads = fields.size("num_attention_heads", defaults.heads)?;
    let d_model = fields.size("hidden_size", defaults.d_model)?;
    let seq_len = fields.size("max_position_embeddings", defaults.seq_len)?;
    // Null means the number of query heads, as does a default of 0.
    let kv_heads = match fields.has("num_key_value_heads") {
        true => fields.size("num_key_value_heads", heads)?,
        false if defaults.kv_heads == 0 => heads,
        false => defaults.kv_heads,
    };
    let head_dim = match (fields.optional_size("head_dim")?, head_dim) {
        (Some(head_dim), _) | (None, Some(head_dim)) => head_dim,
        (None, None) => {
            fields.divides("num_attention_heads", heads, "hidden_size", d_model)?;
            d_model / heads
        }
    };
    Ok(ModelConfig {
        vocab_size: Some(fields.size("vocab_size", defaults.vocab_size)?),
        seq_len,
        d_model,
        n_layers: fields.size("num_hidden_layers", defaults.n_layers)?,
        heads,
        kv_heads: Some(kv_heads),
        head_dim: Some(head_dim),
        norm: Norm::Rms {
            epsilon: fields.number("rms_norm_eps", 1e-6)?,
        },
        feed_forward: FeedForward::gated(activation(fields, "hidden_act", Activation::Silu)?)
            .with_width(fields.size("intermediate_size", defaults.width)?),
        head: Head {
            tied: fields.flag("tie_word_embeddings", false)?,
            ..common(family).head
        },
        init: normal(fields.number("initializer_range", 0.02)?),
        ..common(family)
    })
}

/// Writes the fields that [`read_common`] reads.
pub(super) fn write_common(config: &TransformerConfig) -> Map<String, Value> {
    write_rotated(config, &FULL_HEAD)
}

/// Writes the fields that [`read_rotated`] reads.
pub(super) fn write_rotated(
    config: &TransformerConfig,
    rope_fields: &RopeFields,
) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("max_position_embeddings", json!(config.seq_len()));
    set("hidden_size", json!(config.d_model()));
    set("num_hidden_layers", json!(config.n_layers()));
    set("num_attention_heads", json!(config.heads()));
    set("num_key_value_heads", json!(config.kv_heads()));
    set("head_dim", json!(config.head_dim()));
    set("intermediate_size", json!(config.feed_forward_width()));
    set("hidden_act", json!(activation_name(config.activation())));
    set("rms_norm_eps", json!(config.norm_epsilon()));
    if let Some(rope) = rope::write(config, rope_fields) {
        set("rope_parameters", rope);
    }
    fields
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let defaults = sizes! { vocab_size 32_000, seq_len 2048, d_model 4096, n_layers 32, heads 32, kv_heads 0, width 11_008 };
    Ok(ModelConfig {
        bias: Biases {
            feed_forward: fields.flag("mlp_bias", false)?,
            ..fields.attention_biases()?
        },
        ..read_common(fields, Family::Llama, defaults, None)?
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    fields.insert("attention_bias".to_owned(), json!(config.bias().qkv));
    fields.insert("mlp_bias".to_owned(), json!(config.bias().feed_forward));
    fields
}

/// Tensors outside of the blocks, in Hugging Face checkpoints.
pub(super) const MODEL: &[TensorName] = &[
    as_is("tokens", "model.embed_tokens.weight"),
    as_is("norm_final.gain", "model.norm.weight"),
    as_is("head", "lm_head.weight"),
];

pub(super) const NORMS: &[TensorName] = &[
    as_is("norm1.gain", "input_layernorm.weight"),
    as_is("norm2.gain", "post_attention_layernorm.weight"),
];

pub(super) const QK_NORMS: &[TensorName] = &[
    as_is("attention.q_norm.gain", "self_attn.q_norm.weight"),
    as_is("attention.k_norm.gain", "self_attn.k_norm.weight"),
];

pub(super) const ATTENTION: &[TensorName] = &[
    query_key_value(
        "attention.qkv",
        ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    ),
    linear("attention.out", "self_attn.o_proj"),
];

pub(super) const GATED: &[TensorName] = &[
    linear("feed_forward.gate", "mlp.gate_proj"),
    linear("feed_forward.up", "mlp.up_proj"),
    linear("feed_forward.down", "mlp.down_proj"),
];

/// Tensor names with LLaMA's names outside of the blocks.
pub(super) const fn names(blocks: &'static [&'static [TensorName]]) -> Names<'static> {
    Names {
        model: MODEL,
        block: "model.layers.*",
        blocks,
    }
}

pub(super) const NAMES: Names<'static> = names(&[NORMS, QK_NORMS, ATTENTION, GATED]);

#[cfg(test)]
mod tests {
    // Published values: 11,008 for LLaMA 7B and 13,824 for 13B.
    #[test]
    fn widths_are_rounded_up() {
        assert_eq!(super::rounded_width(4096, 256), 11_008);
        assert_eq!(super::rounded_width(5120, 256), 13_824);
    }
}
