//! Phi-3 (Abdin et al. 2024, [2404.14219](https://arxiv.org/abs/2404.14219)) and Phi-4
//! ([2412.08905](https://arxiv.org/abs/2412.08905)): LLaMA's block, with fused layers in the files.
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v)       q, k, v = W · rms₁(x); a window of 2047 tokens in Phi-3 mini
//! x = x + W₂ · (silu(g) ∘ u)                        g, u = W₁ · rms₂(x), one tensor
//! logits = H · rms(x)                               ε 1e-5; no biases
//! ```

use super::llama::{self, NORMS, read_rotated, write_rotated};
use super::prelude::*;
use crate::weights::names::{TensorName, linear, part_of};

pub(super) const EXCHANGE: Option<Exchange> =
    Some(llama::exchange("phi3", "Phi3ForCausalLM", read, write));

/// Default sizes of the model type: those of Phi-3 mini.
const MINI: Sizes = sizes! { vocab_size 32_064, seq_len 4096, d_model 3072, n_layers 32, heads 32, kv_heads 32, width 8192 };

pub(super) fn presets() -> Vec<Preset> {
    let four = sizes! { vocab_size 100_352, seq_len 16_384, d_model 5120, n_layers 40, heads 40, kv_heads 10, width 17_920 };
    presets! {
        "phi3-mini-4k", "Phi-3 mini, 3.8B parameters, a window of 2047 tokens" => ModelConfig {
            attention: AttentionKind::windowed(Window::new(2047)),
            ..MINI.config(Family::Phi3)
        };
        "phi4", "Phi-4, 14B parameters" => ModelConfig {
            position: rotary(None, 250_000.0, RotaryLayout::HalfSplit),
            ..four.config(Family::Phi3)
        };
    }
}

const ROPE: RopeFields = RopeFields {
    partial: true,
    original: Some(4096),
    ..FULL_HEAD
};

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let defaults = sizes! { kv_heads 0; ..MINI };
    let raw = read_rotated(fields, Family::Phi3, defaults, None, &ROPE)?;
    let window = fields.optional_size("sliding_window")?;
    Ok(ModelConfig {
        attention: layers::attention(window.map(Window::new)),
        norm: Norm::Rms {
            epsilon: fields.number("rms_norm_eps", 1e-5)?,
        },
        ..raw
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_rotated(config, &ROPE);
    layers::write_window(config, &mut fields);
    if let Some(original) = config.rotary().and_then(|rotary| rotary.original_seq_len()) {
        fields.insert(ORIGINAL.to_owned(), json!(original));
    }
    fields.insert(PADDING.to_owned(), Value::Null);
    fields
}

/// Tensor names of Hugging Face checkpoints.
pub(super) const NAMES: Names<'static> = llama::names(&[NORMS, ATTENTION, GATED]);

/// Queries, keys and values are in this order, as here.
const ATTENTION: &[TensorName] = &[
    linear("attention.qkv", "self_attn.qkv_proj"),
    linear("attention.out", "self_attn.o_proj"),
];

/// Gate and up in one tensor; those of `glm4`, too.
pub(super) const GATED: &[TensorName] = &[
    part_of("feed_forward.gate", "mlp.gate_up_proj", [0, 2]),
    part_of("feed_forward.up", "mlp.gate_up_proj", [1, 2]),
    linear("feed_forward.down", "mlp.down_proj"),
];
