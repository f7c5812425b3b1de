//! Mixtral (Jiang et al. 2024): LLaMA's block with a mixture of experts, of which two compute each token.
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v)
//! x = x + Σ pₑ · expertₑ(rms₂(x))                   the two experts with the largest router logits R · rms₂(x);
//!                                                   p is the softmax over these two
//! expert(x) = W₂ · (silu(W₁ · x) ∘ W₃ · x)
//! logits = H · rms(x)                               no biases, H untied
//! ```

use super::llama::{self, ATTENTION, GATED, NORMS, QK_NORMS, exchange, read_rotated, write_common};
use super::prelude::*;
use crate::weights::names::{TensorName, linear};

pub(super) const EXCHANGE: Option<Exchange> =
    Some(exchange("mixtral", "MixtralForCausalLM", read, write));

const SIZES: Sizes = sizes! { vocab_size 32_000, seq_len 32_768, d_model 4096, n_layers 32, heads 32, kv_heads 8, width 14_336 };

/// The base of the rotary frequencies, also of a file that gives none.
const BASE: f64 = 1_000_000.0;

pub(super) fn presets() -> Vec<Preset> {
    let config = ModelConfig {
        position: rotary(None, BASE, RotaryLayout::HalfSplit),
        experts: Some(Experts {
            normalize: true,
            ..experts::of(8, 2, 0.02)
        }),
        ..SIZES.config(Family::Mixtral)
    };
    presets! {
        "mixtral-8x7b", "Mixtral 8x7B, 2 of 8 experts per token" => config;
    }
}

const ROPE: RopeFields = RopeFields {
    default_base: BASE,
    ..FULL_HEAD
};

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.refuse("layer_types", "layers that differ are not of this type")?;
    let defaults = sizes! { seq_len 131_072; ..SIZES };
    let found = read_rotated(fields, Family::Mixtral, defaults, None, &ROPE)?;
    let defaults = experts::of(8, 2, 0.001);
    let window = fields.optional_size("sliding_window")?;
    Ok(ModelConfig {
        norm: Norm::Rms {
            epsilon: fields.number("rms_norm_eps", 1e-5)?,
        },
        attention: layers::attention(window.map(Window::new)),
        experts: Some(Experts {
            width: found.feed_forward.width,
            normalize: true,
            ..experts::read(fields, defaults)?
        }),
        ..found
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    layers::write_window(config, &mut fields);
    experts::write(config, "num_local_experts", &mut fields);
    fields
}

pub(super) const NAMES: Names<'static> =
    llama::names(&[NORMS, QK_NORMS, ATTENTION, GATED, EXPERTS]);

const EXPERTS: &[TensorName] = &[
    linear("feed_forward.router", "block_sparse_moe.gate"),
    linear(
        "feed_forward.experts.*.gate",
        "block_sparse_moe.experts.*.w1",
    ),
    linear("feed_forward.experts.*.up", "block_sparse_moe.experts.*.w3"),
    linear(
        "feed_forward.experts.*.down",
        "block_sparse_moe.experts.*.w2",
    ),
];
