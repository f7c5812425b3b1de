//! Command R (Cohere 2024).
//!
//! ```text
//! h = ln(x)                                         LayerNorm without bias, ε 1e-5, one for both branches
//! x = x + Wo · attention(rope(q), rope(k), v) + W₂ · (silu(W₁ · h) ∘ W₃ · h)
//! q, k, v = W · h                                   rotated in interleaved pairs
//! logits = 0.0625 · E · ln_f(x)                     no biases; tied
//! ```

pub(super) use super::llama::NAMES;
use super::llama::{self, read_rotated, write_common};
use super::prelude::*;

pub(super) const EXCHANGE: Option<Exchange> =
    Some(llama::exchange("cohere", "CohereForCausalLM", read, write));

/// Default sizes of the model type: those of Command R.
const COMMAND_R: Sizes = sizes! { vocab_size 256_000, seq_len 8192, d_model 8192, n_layers 40, heads 64, kv_heads 64, width 22_528 };

const LOGIT_SCALE: f64 = 0.0625;

pub(super) fn presets() -> Vec<Preset> {
    let config = ModelConfig {
        position: rotary(None, 8_000_000.0, RotaryLayout::Interleaved),
        ..of_type(
            COMMAND_R.config(Family::Cohere),
            1e-5,
            true,
            Some(LOGIT_SCALE),
        )
    };
    presets! {
        "command-r", "Command R, 35B parameters, tied" => config;
    }
}

fn of_type(raw: ModelConfig, epsilon: f64, tied: bool, scale: Option<f64>) -> ModelConfig {
    ModelConfig {
        norm: Norm::Layer {
            bias: false,
            epsilon,
        },
        wiring: Wiring::Parallel { shared_norm: true },
        head: Head {
            tied,
            scale,
            ..common(Family::Cohere).head
        },
        ..raw
    }
}

const ROPE: RopeFields = RopeFields {
    default_base: 500_000.0,
    ..FULL_HEAD
};

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.only(
        "use_qk_norm",
        false,
        "norms with a gain for each head are not computed",
    )?;
    let defaults = sizes! { kv_heads 0; ..COMMAND_R };
    let raw = read_rotated(fields, Family::Cohere, defaults, None, &ROPE)?;
    let scale = fields.number("logit_scale", LOGIT_SCALE)?;
    let epsilon = fields.number("layer_norm_eps", 1e-5)?;
    let tied = fields.flag("tie_word_embeddings", true)?;
    let scale = (scale != 1.0).then_some(scale);
    Ok(ModelConfig {
        bias: fields.attention_biases()?,
        position: rope::interleaved(raw.position.clone()),
        ..of_type(raw, epsilon, tied, scale)
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    fields.remove("rms_norm_eps");
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("layer_norm_eps", json!(config.norm_epsilon()));
    set("attention_bias", json!(config.bias().qkv));
    set("logit_scale", json!(config.logit_scale().unwrap_or(1.0)));
    fields
}
