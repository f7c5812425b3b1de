//! SmolLM3 (Hugging Face 2025): LLaMA's block, every fourth layer without positions (Yang et al. 2025,
//! [2501.18795](https://arxiv.org/abs/2501.18795)).
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v)       q, k, v = W · rms₁(x); q and k as they are in every fourth layer
//! x = x + W₂ · (silu(W₁ · rms₂(x)) ∘ W₃ · rms₂(x))
//! logits = E · rms(x)                               ε 1e-6; no biases; tied
//! ```

pub(super) use super::llama::NAMES;
use super::llama::{self, read_rotated, write_common};
use super::prelude::*;

pub(super) const EXCHANGE: Option<Exchange> = Some(llama::exchange(
    "smollm3",
    "SmolLM3ForCausalLM",
    read,
    write,
));

/// Default sizes of the model type: those of the 3B model, except for the context.
const THREE: Sizes = sizes! { vocab_size 128_256, seq_len 32_768, d_model 2048, n_layers 36, heads 16, kv_heads 4, width 11_008 };

pub(super) fn presets() -> Vec<Preset> {
    let config = ModelConfig {
        norm: Norm::Rms { epsilon: 1e-6 },
        position: rotary(None, 5_000_000.0, RotaryLayout::HalfSplit),
        layer_positions: Some(LayerPositions::None {
            layers: FullLayers::Every { every: 4 },
        }),
        head: head(true),
        ..sizes! { seq_len 65_536; ..THREE }.config(Family::Smollm3)
    };
    presets! {
        "smollm3-3b", "SmolLM3, 3B parameters, tied" => config;
    }
}

const ROPE: RopeFields = RopeFields {
    default_base: 2_000_000.0,
    ..FULL_HEAD
};

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.only("use_sliding_window", false, "windows are not of this type")?;
    let raw = read_rotated(fields, Family::Smollm3, THREE, None, &ROPE)?;
    let layers = unrotated(fields, raw.n_layers)?;
    Ok(ModelConfig {
        bias: Biases {
            feed_forward: fields.flag("mlp_bias", false)?,
            ..fields.attention_biases()?
        },
        layer_positions: (!layers.is_empty()).then_some(LayerPositions::None {
            layers: FullLayers::Listed(layers),
        }),
        head: head(fields.flag("tie_word_embeddings", true)?),
        ..raw
    })
}

/// Reads the layers without positions: those with 0 in `no_rope_layers`, or the last of every `no_rope_layer_interval`.
fn unrotated(fields: &Fields<'_>, n_layers: usize) -> Result<Vec<usize>, HuggingFaceError> {
    let Some(rotated) = fields.optional_numbers("no_rope_layers")? else {
        let every = fields.size("no_rope_layer_interval", 4)?;
        return Ok(FullLayers::Every { every }.layers(n_layers));
    };
    if rotated.len() < n_layers {
        let rule = format!("must have {n_layers} entries");
        return Err(fields.error("no_rope_layers", rule));
    }
    let layers = rotated.iter().take(n_layers).enumerate();
    let unrotated = layers.filter(|(_, rotated)| **rotated == 0.0);
    Ok(unrotated.map(|(layer, _)| layer).collect())
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    let positions = config.layer_positions();
    let rotated = (0..config.n_layers()).map(|layer| match positions {
        Some(positions) => u8::from(!positions.layers().contains(layer)),
        None => 1,
    });
    let rotated: Vec<u8> = rotated.collect();
    fields.insert("no_rope_layers".to_owned(), json!(rotated));
    fields.insert("attention_bias".to_owned(), json!(config.bias().qkv));
    fields.insert("mlp_bias".to_owned(), json!(config.bias().feed_forward));
    fields.insert(PADDING.to_owned(), Value::Null);
    fields
}
