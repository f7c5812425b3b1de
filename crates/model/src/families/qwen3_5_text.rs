//! The text models of Qwen3.5 (Qwen team 2026): Qwen3-Next's blocks with a feed-forward layer in place of the experts.
//!
//! ```text
//! x = x + Wo · (attention(rope(rms(q)), rope(rms(k)), v) ∘ σ(g))     q, k, v, g = W · rms₁(x); a quarter of a head is rotated
//! x = x + Wo · (rms(delta(silu(conv(q, k, v)), b, a)) ∘ silu(g))     in the other blocks; b, a = W' · rms₁(x)
//! x = x + W₂ · (silu(W₁ · rms₂(x)) ∘ W₃ · rms₂(x))
//! logits = H · rms(x)                                                gains are 1 + w, except in the norm of delta; ε 1e-6
//! ```
//!
//! Files have a tensor for each projection of a delta net. The positions of text are the same in all three sections of the
//! rotation, so the sections have no effect.

use super::llama::{self, GATED, NORMS, QK_NORMS, exchange};
use super::prelude::*;
use super::qwen3_next::{
    DELTA_NET, GATED_ATTENTION, ignoring_predictions, published, read_hybrid, write_hybrid,
};
use crate::weights::names::{TensorName, linear, per_head};

pub(super) const EXCHANGE: Option<Exchange> = Some(
    ignoring_predictions(exchange(
        "qwen3_5_text",
        "Qwen3_5ForCausalLM",
        read,
        write_hybrid,
    ))
    .within(&["qwen3_5"]),
);

/// Default sizes of the model type: those of the 9B model.
const SIZES: Sizes = sizes! { vocab_size 248_320, seq_len 32_768, d_model 4096, n_layers 32, heads 16, kv_heads 4, width 12_288 };

pub(super) fn presets() -> Vec<Preset> {
    let sizes = sizes! { seq_len 262_144; ..SIZES };
    presets! {
        "qwen3.5-9b", "the text model of Qwen3.5 9B, delta nets" => published(sizes, Family::Qwen3_5Text);
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    read_hybrid(fields, Family::Qwen3_5Text, SIZES)
}

pub(super) const NAMES: Names<'static> =
    llama::names(&[NORMS, QK_NORMS, GATED_ATTENTION, DELTA_NET, SEPARATE, GATED]);

/// The projections of the input.
const SEPARATE: &[TensorName] = &[
    linear("attention.qkv", "linear_attn.in_proj_qkv").in_delta_nets(true),
    linear("attention.gate", "linear_attn.in_proj_z").in_delta_nets(true),
    per_head(
        "attention.delta.rates",
        ["linear_attn.in_proj_b", "linear_attn.in_proj_a"],
    ),
];
