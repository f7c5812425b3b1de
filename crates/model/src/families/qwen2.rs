//! Qwen2 and Qwen2.5 (Yang et al. 2024): LLaMA's block with biases on queries, keys and values.
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v)       q, k, v = W · rms₁(x) + b; upper layers may have a window
//! x = x + W₂ · (silu(W₁ · rms₂(x)) ∘ W₃ · rms₂(x))
//! logits = H · rms(x)                               ε 1e-6; H tied in the small sizes
//! ```

pub(super) use super::llama::NAMES;
use super::llama::{exchange, read_common, write_common};
use super::prelude::*;

pub(super) const EXCHANGE: Option<Exchange> =
    Some(exchange("qwen2", "Qwen2ForCausalLM", read, write).within(&["llava"]));

const BIASES: Biases = Biases {
    qkv: true,
    attention_out: false,
    feed_forward: false,
};

pub(super) fn presets() -> Vec<Preset> {
    let half = sizes! { vocab_size 151_936, seq_len 131_072, d_model 896, n_layers 24, heads 14, kv_heads 2, width 4864 };
    let seven = sizes! { vocab_size 152_064, d_model 3584, n_layers 28, heads 28, kv_heads 4, width 18_944; ..half };
    let model = |sizes: Sizes, tied| ModelConfig {
        bias: BIASES,
        norm: Norm::Rms { epsilon: 1e-6 },
        position: rotary(None, 1_000_000.0, RotaryLayout::HalfSplit),
        head: head(tied),
        ..sizes.config(Family::Qwen2)
    };
    presets! {
        "qwen2-0.5b", "Qwen2, 0.5B parameters, tied" => model(half, true);
        "qwen2-7b", "Qwen2, 7B parameters" => model(seven, false);
    }
}

/// Defaults of the Hugging Face types `qwen2` and `qwen3`.
pub(super) const DEFAULTS: Sizes = sizes! { vocab_size 151_936, seq_len 32_768, d_model 4096, n_layers 32, heads 32, kv_heads 32, width 22_016 };

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let raw = read_common(fields, Family::Qwen2, DEFAULTS, None)?;
    let window = layers::read(fields, raw.n_layers)?;
    Ok(ModelConfig {
        bias: BIASES,
        attention: layers::attention(window),
        ..raw
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    layers::write(config, &mut fields);
    fields
}
