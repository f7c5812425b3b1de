//! Mistral 7B (Jiang et al. 2023): LLaMA's block with sliding-window attention.
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v)       query i attends to keys j with i - window < j ≤ i
//! x = x + W₂ · (silu(W₁ · rms₂(x)) ∘ W₃ · rms₂(x))
//! logits = H · rms(x)                               no biases, H untied
//! ```

pub(super) use super::llama::NAMES;
use super::llama::{exchange, read_common, write_common};
use super::prelude::*;

pub(super) const EXCHANGE: Option<Exchange> =
    Some(exchange("mistral", "MistralForCausalLM", read, write).within(&["llava", "mistral3"]));

const SEVEN: Sizes = sizes! { vocab_size 32_000, seq_len 32_768, d_model 4096, n_layers 32, heads 32, kv_heads 8, width 14_336 };

/// Window of the first version; later versions have none.
const WINDOW: usize = 4096;

pub(super) fn presets() -> Vec<Preset> {
    let config = ModelConfig {
        attention: AttentionKind::windowed(Window::new(WINDOW)),
        ..SEVEN.config(Family::Mistral)
    };
    presets! {
        "mistral-7b", "Mistral 7B v0.1, a window of 4096 tokens" => config;
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.refuse("layer_types", "layers that differ are not of this type")?;
    let defaults = sizes! { seq_len 131_072; ..SEVEN };
    let window = layers::window(fields, WINDOW)?;
    Ok(ModelConfig {
        attention: layers::attention(window.map(Window::new)),
        ..read_common(fields, Family::Mistral, defaults, None)?
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    layers::write_window(config, &mut fields);
    fields
}
