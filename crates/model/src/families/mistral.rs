//! Mistral 7B (Jiang et al. 2023): LLaMA's block with sliding-window attention.
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v)       query i attends to keys j with i - window < j ≤ i
//! x = x + W₂ · (silu(W₁ · rms₂(x)) ∘ W₃ · rms₂(x))
//! logits = H · rms(x)                               no biases, H untied
//! ```

use serde_json::{Map, Value, json};

use super::llama::{NAMES, Sizes, exchange, read_common, write_common};
use super::{Definition, Family, Preset};
use crate::config::{AttentionKind, ModelConfig, Window};
use crate::error::HuggingFaceError;
use crate::exchange::fields::Fields;
use crate::exchange::layers;
use crate::transformer::checked::TransformerConfig;

pub(super) const DEFINITION: Definition = Definition {
    name: "mistral",
    presets,
    names: NAMES,
    exchange: Some(|| exchange("mistral", "MistralForCausalLM", read, write)),
};

const SEVEN: Sizes = Sizes {
    vocab_size: 32_000,
    seq_len: 32_768,
    d_model: 4096,
    n_layers: 32,
    heads: 32,
    kv_heads: 8,
    width: 14_336,
};

/// Window of the first version; later versions have none.
const WINDOW: usize = 4096;

fn presets() -> Vec<Preset> {
    let config = ModelConfig {
        attention: AttentionKind::windowed(Window::new(WINDOW)),
        ..SEVEN.config(Family::Mistral)
    };
    vec![Preset::new(
        "mistral-7b",
        "Mistral 7B v0.1, a window of 4096 tokens",
        config,
    )]
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.refuse("layer_types", "layers that differ are not of this type")?;
    let defaults = Sizes {
        seq_len: 131_072,
        ..SEVEN
    };
    // Null means no window.
    let window = match fields.has("sliding_window") {
        true => fields.optional_size("sliding_window")?,
        false => Some(WINDOW),
    };
    Ok(ModelConfig {
        attention: layers::attention(window.map(Window::new)),
        ..read_common(fields, Family::Mistral, defaults, None)?
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    let window = config.window().map(|window| window.tokens);
    fields.insert("sliding_window".to_owned(), json!(window));
    fields
}
