//! Qwen3's dense models (Yang et al. 2025): LLaMA's block with queries and keys normalized per head before the
//! rotation.
//!
//! ```text
//! x = x + Wo · attention(rope(rms(q)), rope(rms(k)), v)      q, k, v = W · rms₁(x); RMSNorm over each head of q and k
//! x = x + W₂ · (silu(W₁ · rms₂(x)) ∘ W₃ · rms₂(x))
//! logits = H · rms(x)                               ε 1e-6; head_dim is always 128; H tied in small sizes
//! ```

pub(super) use super::llama::NAMES;
use super::llama::{exchange, read_common, write_common};
use super::prelude::*;
use super::qwen2::DEFAULTS;

pub(super) const EXCHANGE: Option<Exchange> =
    Some(exchange("qwen3", "Qwen3ForCausalLM", read, write));

pub(super) fn presets() -> Vec<Preset> {
    let small = sizes! { vocab_size 151_936, seq_len 40_960, d_model 1024, n_layers 28, heads 16, kv_heads 8, width 3072 };
    let eight = sizes! { d_model 4096, n_layers 36, heads 32, width 12_288; ..small };
    let model = |sizes: Sizes, tied| ModelConfig {
        head_dim: Some(128),
        qk_norm: true,
        norm: Norm::Rms { epsilon: 1e-6 },
        position: rotary(None, 1_000_000.0, RotaryLayout::HalfSplit),
        head: head(tied),
        ..sizes.config(Family::Qwen3)
    };
    presets! {
        "qwen3-0.6b", "Qwen3, 0.6B parameters, tied" => model(small, true);
        "qwen3-8b", "Qwen3, 8B parameters" => model(eight, false);
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let raw = read_common(fields, Family::Qwen3, DEFAULTS, Some(128))?;
    let window = layers::read(fields, raw.n_layers)?;
    Ok(ModelConfig {
        bias: fields.attention_biases()?,
        qk_norm: true,
        attention: layers::attention(window),
        ..raw
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    fields.insert("attention_bias".to_owned(), json!(config.bias().qkv));
    layers::write(config, &mut fields);
    fields
}
