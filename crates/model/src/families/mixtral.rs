//! Mixtral (Jiang et al. 2024): LLaMA's block with a mixture of experts, of which two compute each token.
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v)
//! x = x + Σ pₑ · expertₑ(rms₂(x))                   the two experts with the largest router logits R · rms₂(x);
//!                                                   p is the softmax over these two
//! expert(x) = W₂ · (silu(W₁ · x) ∘ W₃ · x)
//! logits = H · rms(x)                               no biases, H untied
//! ```

use emberlm_kernels::RotaryLayout;
use serde_json::{Map, Value, json};

use super::llama::{self, Sizes, exchange, read_rotated, write_common};
use super::{Definition, Family, Preset, rotary};
use crate::config::{Experts, ModelConfig, Norm, Window};
use crate::error::HuggingFaceError;
use crate::exchange::experts::{self, ExpertDefaults};
use crate::exchange::fields::Fields;
use crate::exchange::layers;
use crate::exchange::rope::{FULL_HEAD, RopeFields};
use crate::transformer::checked::TransformerConfig;
use crate::weights::names::{TensorName, joined, linear};

pub(super) const DEFINITION: Definition = Definition {
    name: "mixtral",
    presets,
    names: NAMES,
    exchange: Some(|| exchange("mixtral", "MixtralForCausalLM", read, write)),
};

const SIZES: Sizes = Sizes {
    vocab_size: 32_000,
    seq_len: 32_768,
    d_model: 4096,
    n_layers: 32,
    heads: 32,
    kv_heads: 8,
    width: 14_336,
};

/// The base of the rotary frequencies, also of a file that gives none.
const BASE: f64 = 1_000_000.0;

fn presets() -> Vec<Preset> {
    let config = ModelConfig {
        position: rotary(None, BASE, RotaryLayout::HalfSplit),
        experts: Some(Experts {
            count: 8,
            active: 2,
            width: None,
            normalize: true,
            shared_width: None,
            balance_loss: 0.02,
            z_loss: 0.0,
            dense_layers: Vec::new(),
        }),
        ..SIZES.config(Family::Mixtral)
    };
    vec![Preset::new(
        "mixtral-8x7b",
        "Mixtral 8x7B, 2 of 8 experts per token",
        config,
    )]
}

const ROPE: RopeFields = RopeFields {
    default_base: BASE,
    ..FULL_HEAD
};

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.refuse("layer_types", "layers that differ are not of this type")?;
    let defaults = Sizes {
        seq_len: 131_072,
        ..SIZES
    };
    let found = read_rotated(fields, Family::Mixtral, defaults, None, &ROPE)?;
    let defaults = ExpertDefaults {
        count: 8,
        active: 2,
        balance_loss: 0.001,
    };
    let window = fields.optional_size("sliding_window")?;
    Ok(ModelConfig {
        norm: Norm::Rms {
            epsilon: fields.number("rms_norm_eps", 1e-5)?,
        },
        attention: layers::attention(window.map(Window::new)),
        experts: Some(Experts {
            width: found.feed_forward.width,
            normalize: true,
            ..experts::read(fields, &defaults)?
        }),
        ..found
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    let window = config.window().map(|window| window.tokens);
    fields.insert("sliding_window".to_owned(), json!(window));
    experts::write(config, "num_local_experts", &mut fields);
    fields
}

const NAMES: &[TensorName] = &joined::<16>(
    llama::NAMES,
    &[
        linear(
            "blocks.*.feed_forward.router",
            "model.layers.*.block_sparse_moe.gate",
        ),
        linear(
            "blocks.*.feed_forward.experts.*.gate",
            "model.layers.*.block_sparse_moe.experts.*.w1",
        ),
        linear(
            "blocks.*.feed_forward.experts.*.up",
            "model.layers.*.block_sparse_moe.experts.*.w3",
        ),
        linear(
            "blocks.*.feed_forward.experts.*.down",
            "model.layers.*.block_sparse_moe.experts.*.w2",
        ),
    ],
);
