//! Qwen3's models with experts (Yang et al. 2025): Qwen3's block with a mixture of many small experts.
//!
//! ```text
//! x = x + Wo · attention(rope(rms(q)), rope(rms(k)), v)      a norm of a head's width each
//! x = x + Σ wₑ · expertₑ(rms₂(x))                   the 8 of 128 experts with the largest p = softmax(R · rms₂(x));
//!                                                   w = p / Σ p of the chosen ones
//! expert(x) = W₂ · (silu(W₁ · x) ∘ W₃ · x)          some layers may have one such layer and no experts
//! logits = H · rms(x)
//! ```

use super::llama::{self, ATTENTION, GATED, NORMS, QK_NORMS, exchange, read_common, write_common};
use super::prelude::*;
use crate::weights::names::{TensorName, linear};

pub(super) const EXCHANGE: Option<Exchange> =
    Some(exchange("qwen3_moe", "Qwen3MoeForCausalLM", read, write));

const SIZES: Sizes = sizes! { vocab_size 151_936, seq_len 40_960, d_model 2048, n_layers 48, heads 32, kv_heads 4, width 6144 };

pub(super) fn presets() -> Vec<Preset> {
    let config = ModelConfig {
        head_dim: Some(128),
        qk_norm: true,
        norm: Norm::Rms { epsilon: 1e-6 },
        position: rotary(None, 1_000_000.0, RotaryLayout::HalfSplit),
        experts: Some(Experts {
            width: Some(768),
            normalize: true,
            ..experts::of(128, 8, 0.001)
        }),
        ..SIZES.config(Family::Qwen3Moe)
    };
    presets! {
        "qwen3-30b-a3b", "Qwen3 30B-A3B, 8 of 128 experts per token" => config;
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.refuse("layer_types", "layers that differ are not of this type")?;
    let defaults = sizes! { seq_len 32_768, n_layers 24; ..SIZES };
    let found = read_common(fields, Family::Qwen3Moe, defaults, None)?;
    let defaults = experts::of(128, 8, 0.001);
    let window = layers::enabled_window(fields)?;
    Ok(ModelConfig {
        bias: fields.attention_biases()?,
        qk_norm: true,
        attention: layers::attention(window.map(Window::new)),
        experts: Some(Experts {
            width: Some(fields.size("moe_intermediate_size", 768)?),
            normalize: fields.flag("norm_topk_prob", false)?,
            dense_layers: experts::dense_layers(fields, found.n_layers)?,
            ..experts::read(fields, defaults)?
        }),
        ..found
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    let window = config.window().map(|window| window.tokens);
    let experts = config.experts();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("attention_bias", json!(config.bias().qkv));
    set("use_sliding_window", json!(window.is_some()));
    set("sliding_window", json!(window));
    set(
        "norm_topk_prob",
        json!(experts.map(|experts| experts.normalize)),
    );
    set(
        "moe_intermediate_size",
        json!(experts.and_then(|experts| experts.width)),
    );
    experts::write(config, "num_experts", &mut fields);
    experts::write_dense_layers(config, &mut fields);
    fields
}

/// Hugging Face's names, also those of `olmoe`.
pub(super) const NAMES: Names<'static> =
    llama::names(&[NORMS, QK_NORMS, ATTENTION, GATED, EXPERTS]);

pub(super) const EXPERTS: &[TensorName] = &[
    linear("feed_forward.router", "mlp.gate"),
    linear("feed_forward.experts.*.gate", "mlp.experts.*.gate_proj"),
    linear("feed_forward.experts.*.up", "mlp.experts.*.up_proj"),
    linear("feed_forward.experts.*.down", "mlp.experts.*.down_proj"),
];
