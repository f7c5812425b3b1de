//! Qwen2's models with experts (Yang et al. 2024), and Qwen1.5's: Qwen2's block with a mixture of experts beside an expert of every
//! token.
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v)       q, k, v = W · rms₁(x) + b
//! x = x + Σ pₑ · expertₑ(u) + σ(s · u) · shared(u)  u = rms₂(x); the 4 of 60 experts with the largest p = softmax(R · u)
//! expert(x) = W₂ · (silu(W₁ · x) ∘ W₃ · x)          some layers may have one such layer and no experts
//! logits = H · rms(x)
//! ```

use super::llama::{self, ATTENTION, GATED, NORMS, QK_NORMS, exchange, read_common, write_common};
use super::prelude::*;
use super::qwen3_moe::EXPERTS;
use crate::weights::names::{TensorName, linear};

pub(super) const EXCHANGE: Option<Exchange> =
    Some(exchange("qwen2_moe", "Qwen2MoeForCausalLM", read, write));

const SIZES: Sizes = sizes! { vocab_size 151_936, seq_len 32_768, d_model 2048, n_layers 24, heads 16, kv_heads 16, width 5632 };

/// Biases of queries, keys and values.
pub(super) const BIASES: Biases = Biases {
    qkv: true,
    attention_out: false,
    feed_forward: false,
};

pub(super) fn presets() -> Vec<Preset> {
    let config = ModelConfig {
        seq_len: 8192,
        norm: Norm::Rms { epsilon: 1e-6 },
        position: rotary(None, 1_000_000.0, RotaryLayout::HalfSplit),
        bias: BIASES,
        experts: Some(Experts {
            width: Some(1408),
            shared_width: Some(5632),
            ..experts::of(60, 4, 0.001)
        }),
        ..SIZES.config(Family::Qwen2Moe)
    };
    presets! {
        "qwen1.5-moe-a2.7b", "Qwen1.5 MoE A2.7B, 4 of 60 experts per token and a shared one" => config;
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let found = read_common(fields, Family::Qwen2Moe, SIZES, None)?;
    let defaults = experts::of(60, 4, 0.001);
    let used = fields.flag("use_sliding_window", false)?;
    let tokens = layers::enabled_window(fields)?;
    let slides = match layers::types(fields, found.n_layers)? {
        Some(slides) => slides,
        None => {
            let end = fields.count("max_window_layers", 28)?;
            let slides = |layer: usize| used && layer.is_multiple_of(2) && layer < end;
            (0..found.n_layers).map(slides).collect()
        }
    };
    let rule = "slides without use_sliding_window and sliding_window";
    let window = layers::of_layers(fields, tokens, &slides, rule)?;
    Ok(ModelConfig {
        bias: Biases {
            qkv: fields.flag("qkv_bias", true)?,
            ..BIASES
        },
        attention: layers::attention(window),
        experts: Some(Experts {
            width: Some(fields.size("moe_intermediate_size", 1408)?),
            shared_width: Some(fields.size("shared_expert_intermediate_size", 5632)?),
            normalize: fields.flag("norm_topk_prob", false)?,
            dense_layers: experts::dense_layers(fields, found.n_layers)?,
            ..experts::read(fields, defaults)?
        }),
        ..found
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    fields.insert("qkv_bias".to_owned(), json!(config.bias().qkv));
    if let Some(experts) = config.experts() {
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("norm_topk_prob", json!(experts.normalize));
        set("moe_intermediate_size", json!(experts.width));
        set(
            "shared_expert_intermediate_size",
            json!(experts.shared_width),
        );
    }
    experts::write(config, "num_experts", &mut fields);
    experts::write_dense_layers(config, &mut fields);
    layers::write(config, &mut fields);
    fields
}

pub(super) const NAMES: Names<'static> =
    llama::names(&[NORMS, QK_NORMS, ATTENTION, GATED, EXPERTS, SHARED_EXPERT]);

pub(super) const SHARED_EXPERT: &[TensorName] = &[
    linear("feed_forward.shared.gate", "mlp.shared_expert_gate"),
    linear(
        "feed_forward.shared.expert.gate",
        "mlp.shared_expert.gate_proj",
    ),
    linear("feed_forward.shared.expert.up", "mlp.shared_expert.up_proj"),
    linear(
        "feed_forward.shared.expert.down",
        "mlp.shared_expert.down_proj",
    ),
];
