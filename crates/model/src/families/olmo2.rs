//! OLMo 2 (Team OLMo 2025, [2501.00656](https://arxiv.org/abs/2501.00656)).
//!
//! ```text
//! x = x + rms₁(Wo · attention(rope(rms(q)), rope(rms(k)), v))      q, k, v = W · x; a norm over all heads together
//! x = x + rms₂(W₂ · (silu(W₁ · x) ∘ W₃ · x))
//! logits = H · rms(x)                               ε 1e-6; no biases; H untied; rotary base 500,000
//! ```
//!
//! Norms follow the sublayers, whose input is the residual stream itself.

use super::llama::{self, ATTENTION, GATED, QK_NORMS, read_common, write_common};
use super::prelude::*;
use crate::weights::names::{TensorName, as_is};

pub(super) const EXCHANGE: Option<Exchange> =
    Some(llama::exchange("olmo2", "Olmo2ForCausalLM", read, write));

pub(super) fn presets() -> Vec<Preset> {
    let one = sizes! { vocab_size 100_352, seq_len 4096, d_model 2048, n_layers 16, heads 16, kv_heads 16, width 8192 };
    let seven = sizes! { d_model 4096, n_layers 32, heads 32, kv_heads 32, width 11_008; ..one };
    let model = |sizes: Sizes| ModelConfig {
        position: rotary(None, 500_000.0, RotaryLayout::HalfSplit),
        ..of_type(sizes.config(Family::Olmo2), 1e-6)
    };
    presets! {
        "olmo2-1b", "OLMo 2, 1B parameters" => model(one);
        "olmo2-7b", "OLMo 2, 7B parameters" => model(seven);
    }
}

/// Sets the fields that are the same in every model of the type.
pub(super) fn of_type(raw: ModelConfig, epsilon: f64) -> ModelConfig {
    ModelConfig {
        qk_norm: true,
        qk_norm_span: QkNormSpan::Projection,
        norm: Norm::Rms { epsilon },
        wiring: Wiring::OutputNorm,
        ..raw
    }
}

/// Default sizes of the model type.
pub(super) const DEFAULTS: Sizes = sizes! { vocab_size 50_304, seq_len 2048, d_model 4096, n_layers 32, heads 32, kv_heads 0, width 11_008 };

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let raw = read_common(fields, Family::Olmo2, DEFAULTS, None)?;
    with_biases(fields, of_type(raw, epsilon(fields)?))
}

/// ε of the norms.
pub(super) fn epsilon(fields: &Fields<'_>) -> Result<f64, HuggingFaceError> {
    fields.number("rms_norm_eps", 1e-5)
}

/// Reads a model with the biases of `attention_bias`.
pub(super) fn with_biases(
    fields: &Fields<'_>,
    raw: ModelConfig,
) -> Result<ModelConfig, HuggingFaceError> {
    Ok(ModelConfig {
        bias: fields.attention_biases()?,
        ..raw
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    fields.insert("attention_bias".to_owned(), json!(config.bias().qkv));
    fields
}

/// Tensor names of Hugging Face checkpoints: those of LLaMA, except for the norms.
pub(super) const NAMES: Names<'static> = llama::names(&[NORMS, QK_NORMS, ATTENTION, GATED]);

const NORMS: &[TensorName] = &[
    as_is("norm1.gain", "post_attention_layernorm.weight"),
    as_is("norm2.gain", "post_feedforward_layernorm.weight"),
];
