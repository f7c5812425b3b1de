//! GLM-4 (Team GLM 2024, [2406.12793](https://arxiv.org/abs/2406.12793), the version 0414).
//!
//! ```text
//! x = x + rms₂(Wo · attention(rope(q), rope(k), v))         q, k, v = W · rms₁(x) + b
//! x = x + rms₄(W₂ · (silu(g) ∘ u))                          g, u = W₁ · rms₃(x), one tensor
//! logits = H · rms(x)                                       ε 1e-5; other biases none; H untied
//! ```
//!
//! The first half of a head is rotated, in interleaved pairs. Two key-value heads.

use super::llama::{self, ATTENTION, NORMS, read_rotated, write_rotated};
use super::phi3::GATED;
use super::prelude::*;
use crate::weights::names::{TensorName, as_is};

pub(super) const EXCHANGE: Option<Exchange> =
    Some(llama::exchange("glm4", "Glm4ForCausalLM", read, write));

/// Default sizes of the model type: those of the 9B model, except for the context.
const NINE: Sizes = sizes! { vocab_size 151_552, seq_len 131_072, d_model 4096, n_layers 40, heads 32, kv_heads 2, width 13_696 };

const HEAD_DIM: usize = 128;

pub(super) fn presets() -> Vec<Preset> {
    let config = ModelConfig {
        seq_len: 32_768,
        head_dim: Some(HEAD_DIM),
        position: rotary(Some(HEAD_DIM / 2), 10_000.0, RotaryLayout::Interleaved),
        ..of_type(NINE.config(Family::Glm4), true, 1e-5)
    };
    presets! {
        "glm4-9b", "GLM-4 0414, 9B parameters" => config;
    }
}

fn of_type(raw: ModelConfig, biased: bool, epsilon: f64) -> ModelConfig {
    ModelConfig {
        bias: Biases {
            qkv: biased,
            ..Biases::all(false)
        },
        norm: Norm::Rms { epsilon },
        wiring: Wiring::Sandwich,
        ..raw
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let raw = read_rotated(fields, Family::Glm4, NINE, Some(HEAD_DIM), &HALF_HEAD)?;
    let epsilon = fields.number("rms_norm_eps", 1.562_5e-7)?;
    Ok(ModelConfig {
        position: rope::interleaved(raw.position.clone()),
        ..of_type(raw, fields.flag("attention_bias", true)?, epsilon)
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_rotated(config, &HALF_HEAD);
    fields.insert("attention_bias".to_owned(), json!(config.bias().qkv));
    fields.insert(PADDING.to_owned(), Value::Null);
    fields
}

/// Tensor names of Hugging Face checkpoints.
pub(super) const NAMES: Names<'static> = llama::names(&[NORMS, NORMS_AFTER, ATTENTION, GATED]);

const NORMS_AFTER: &[TensorName] = &[
    as_is("norm1_after.gain", "post_self_attn_layernorm.weight"),
    as_is("norm2_after.gain", "post_mlp_layernorm.weight"),
];
