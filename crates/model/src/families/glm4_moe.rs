//! GLM-4.5 (GLM-4.5 Team 2025, [2508.06471](https://arxiv.org/abs/2508.06471)), 4.6 and 4.7: grouped queries, and DeepSeek-V3's
//! choice of experts.
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v)       q, k, v = W · rms₁(x) + b; half of a head is rotated
//! x = x + Σ wₑ · expertₑ(u) + shared(u)             u = rms₂(x); the 8 of 128 experts with the largest s + b, s = σ(R · u);
//!                                                   w = s / Σ s of the chosen ones
//! expert(x) = W₂ · (silu(W₁ · x) ∘ W₃ · x)          the first layers have one such layer and no experts
//! logits = H · rms(x)
//! ```
//!
//! The larger models also have norms of queries and keys. The blocks of multi-token prediction are not read.

use super::deepseek_v3::{CHOICE_BIAS, SHARED, sigmoid_experts};
use super::llama::{
    self, ATTENTION, GATED, NORMS, QK_NORMS, exchange, read_rotated, write_rotated,
};
use super::prelude::*;
use super::qwen2_moe::BIASES;
use super::qwen3_moe::EXPERTS;

pub(super) const EXCHANGE: Option<Exchange> =
    Some(exchange("glm4_moe", "Glm4MoeForCausalLM", read, write).with_further_blocks());

/// Default sizes of the model type: those of GLM-4.5-Air.
const AIR: Sizes = sizes! { vocab_size 151_552, seq_len 131_072, d_model 4096, n_layers 46, heads 96, kv_heads 8, width 10_944 };

const HEAD_DIM: usize = 128;

pub(super) fn presets() -> Vec<Preset> {
    let of = |sizes: Sizes, experts: Experts| ModelConfig {
        head_dim: Some(HEAD_DIM),
        position: rotary(Some(HEAD_DIM / 2), 1_000_000.0, RotaryLayout::HalfSplit),
        bias: BIASES,
        experts: Some(experts),
        ..sizes.config(Family::Glm4Moe)
    };
    let air = Experts {
        dense_layers: vec![0],
        ..sigmoid_experts(128, 8, 1408)
    };
    let sizes = sizes! { d_model 5120, n_layers 92, width 12_288; ..AIR };
    let large = Experts {
        scale: Some(2.5),
        dense_layers: vec![0, 1, 2],
        ..sigmoid_experts(160, 8, 1536)
    };
    presets! {
        "glm-4.5-air", "GLM-4.5-Air 106B-A12B, 8 of 128 experts per token and a shared one" => of(AIR, air);
        "glm-4.5", "GLM-4.5 355B-A32B, 8 of 160 experts per token and a shared one" => ModelConfig {
            qk_norm: true,
            ..of(sizes, large)
        };
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    // As in `transformers`, a default that need not fill the width.
    let heads = fields.size("num_attention_heads", AIR.heads)?;
    let head_dim = fields.size("hidden_size", AIR.d_model)? / heads;
    let found = read_rotated(fields, Family::Glm4Moe, AIR, Some(head_dim), &HALF_HEAD)?;
    Ok(ModelConfig {
        bias: Biases {
            qkv: fields.flag("attention_bias", false)?,
            ..BIASES
        },
        qk_norm: fields.flag("use_qk_norm", false)?,
        norm: Norm::Rms {
            epsilon: fields.number("rms_norm_eps", 1e-5)?,
        },
        experts: Some(Experts {
            normalize: fields.flag("norm_topk_prob", true)?,
            dense_layers: experts::first_dense_layers(fields, 1, found.n_layers)?,
            ..experts::read_grouped(fields, sigmoid_experts(128, 8, 1408))?
        }),
        ..found
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_rotated(config, &HALF_HEAD);
    fields.insert("attention_bias".to_owned(), json!(config.bias().qkv));
    fields.insert("use_qk_norm".to_owned(), json!(config.raw().qk_norm));
    experts::write_grouped(config, &mut fields);
    fields
}

pub(super) const NAMES: Names<'static> = llama::names(&[
    NORMS,
    QK_NORMS,
    ATTENTION,
    GATED,
    EXPERTS,
    CHOICE_BIAS,
    SHARED,
]);
