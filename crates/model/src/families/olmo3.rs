//! OLMo 3 (Team OLMo 2025, [2512.13961](https://arxiv.org/abs/2512.13961)): OLMo 2's block, three of four layers with a window.
//!
//! The layers without a window extend their context by YaRN; those with one keep the original frequencies.

use super::llama::{self, read_sizes, write_common};
pub(super) use super::olmo2::NAMES;
use super::olmo2::{DEFAULTS, epsilon, of_type, with_biases};
use super::prelude::*;

pub(super) const EXCHANGE: Option<Exchange> =
    Some(llama::exchange("olmo3", "Olmo3ForCausalLM", read, write));

const WINDOW: usize = 4096;
const BASE: f64 = 500_000.0;
/// The last layer of each group of four has no window.
const FULL: FullLayers = FullLayers::Every { every: 4 };

pub(super) fn presets() -> Vec<Preset> {
    let seven = sizes! { vocab_size 100_278, seq_len 65_536, d_model 4096, n_layers 32, heads 32, kv_heads 32, width 11_008 };
    let config = ModelConfig {
        attention: AttentionKind::windowed(Window {
            full_layers: FULL,
            ..Window::new(WINDOW)
        }),
        position: rotary(None, BASE, RotaryLayout::HalfSplit),
        layer_positions: Some(LayerPositions::Rotary {
            layers: FULL,
            base: BASE,
            scaling: RotaryScaling::Yarn {
                factor: 8.0,
                beta_fast: 32.0,
                beta_slow: 1.0,
                attention_factor: None,
                truncate: true,
                original_seq_len: 8192,
            },
        }),
        ..of_type(seven.config(Family::Olmo3), 1e-6)
    };
    presets! {
        "olmo3-7b", "OLMo 3, 7B parameters" => config;
    }
}

const FULL_ROPE: RopeFields = RopeFields {
    default_base: BASE,
    ..FULL_HEAD
};

/// An older base field applies to the layers without a window.
const SLIDING_ROPE: RopeFields = RopeFields {
    base: "",
    ..FULL_ROPE
};

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let raw = read_sizes(fields, Family::Olmo3, DEFAULTS, None)?;
    let raw = with_biases(fields, of_type(raw, epsilon(fields)?))?;
    let (window, full_layers) = layers::kinds(fields, raw.n_layers, WINDOW, &FULL)?;
    let head_dim = raw.head_dim.unwrap_or_default();
    let kinds = rope::read_kinds(fields, [&SLIDING_ROPE, &FULL_ROPE], head_dim, raw.seq_len)?;
    let (position, layer_positions) = rope::of_kinds(kinds, full_layers, raw.n_layers);
    Ok(ModelConfig {
        attention: layers::attention(window),
        position,
        layer_positions,
        ..raw
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    fields.insert("attention_bias".to_owned(), json!(config.bias().qkv));
    if let Some(rope) = rope::write_kinds(config) {
        fields.insert("rope_parameters".to_owned(), rope);
    }
    layers::write_types(config, &mut fields);
    fields
}
