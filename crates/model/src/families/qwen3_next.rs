//! Qwen3-Next (Qwen team 2025): gated delta nets in three of four blocks, attention with a gate in the fourth, and a mixture of
//! many small experts beside an expert of every token.
//!
//! ```text
//! x = x + Wo · (attention(rope(rms(q)), rope(rms(k)), v) ∘ σ(g))     q, k, v, g = W · rms₁(x); a quarter of a head is rotated
//! x = x + Wo · (rms(delta(silu(conv(q, k, v)), b, a)) ∘ silu(g))     in the other blocks; b, a = W' · rms₁(x)
//! x = x + Σ wₑ · expertₑ(u) + σ(s · u) · shared(u)                   u = rms₂(x); the 10 of 512 experts with the largest p
//! logits = H · rms(x)                                                gains are 1 + w, except in the norm of delta; ε 1e-6
//! ```
//!
//! The equations of `delta` are those of `nn::DeltaNet`. The tensors of multi-token prediction (`mtp.*`) are not read.

use super::llama::{self, GATED, NORMS, QK_NORMS, exchange, read_rotated, write_rotated};
use super::prelude::*;
use super::qwen2_moe::SHARED_EXPERT;
use super::qwen3_moe::EXPERTS;
use crate::config::DeltaNets;
use crate::nn::attention::AttentionConfig;
use crate::weights::names::{
    TensorName, as_is, channels, gate_beside_queries, linear, per_head_of_key,
    query_key_value_beside_gate,
};
use crate::weights::pieces::Pieces;

pub(super) const EXCHANGE: Option<Exchange> = Some(ignoring_predictions(exchange(
    "qwen3_next",
    "Qwen3NextForCausalLM",
    read,
    write,
)));

const SIZES: Sizes = sizes! { vocab_size 151_936, seq_len 32_768, d_model 2048, n_layers 48, heads 16, kv_heads 2, width 5632 };

/// Width of a head of the attention.
pub(super) const HEAD_DIM: usize = 256;

const ROPE: RopeFields = RopeFields {
    default_fraction: 0.25,
    partial: true,
    ..FULL_HEAD
};

pub(super) fn presets() -> Vec<Preset> {
    let sizes = sizes! { seq_len 262_144, width 5120; ..SIZES };
    let config = ModelConfig {
        experts: Some(Experts {
            width: Some(512),
            shared_width: Some(512),
            normalize: true,
            ..experts::of(512, 10, 0.001)
        }),
        ..published(sizes, Family::Qwen3Next)
    };
    presets! {
        "qwen3-next-80b-a3b", "Qwen3-Next 80B-A3B, delta nets, 10 of 512 experts per token and a shared one" => config;
    }
}

/// A published model without experts.
pub(super) fn published(sizes: Sizes, family: Family) -> ModelConfig {
    ModelConfig {
        head_dim: Some(HEAD_DIM),
        position: rotary(Some(HEAD_DIM / 4), 10_000_000.0, RotaryLayout::HalfSplit),
        delta_nets: Some(DeltaNets {
            full_layers: FullLayers::Every { every: 4 },
            ..NETS
        }),
        ..hybrid(sizes.config(family), 1e-6)
    }
}

/// The default sizes of the delta nets.
const NETS: DeltaNets = DeltaNets {
    key_heads: Some(16),
    value_heads: Some(32),
    key_dim: Some(128),
    value_dim: Some(128),
    taps: 4,
    full_layers: FullLayers::NONE,
};

fn hybrid(raw: ModelConfig, epsilon: f64) -> ModelConfig {
    ModelConfig {
        qk_norm: true,
        gated_attention: true,
        norm: Norm::OffsetRms { epsilon },
        ..raw
    }
}

/// Reads the fields of the types with delta nets, without experts.
pub(super) fn read_hybrid(
    fields: &Fields<'_>,
    family: Family,
    defaults: Sizes,
) -> Result<ModelConfig, HuggingFaceError> {
    let found = read_rotated(fields, family, defaults, Some(HEAD_DIM), &ROPE)?;
    let size = |name: &str, default: Option<usize>| {
        let size = fields.size(name, default.unwrap_or_default())?;
        Ok::<_, HuggingFaceError>(Some(size))
    };
    let nets = DeltaNets {
        key_heads: size("linear_num_key_heads", NETS.key_heads)?,
        value_heads: size("linear_num_value_heads", NETS.value_heads)?,
        key_dim: size("linear_key_head_dim", NETS.key_dim)?,
        value_dim: size("linear_value_head_dim", NETS.value_dim)?,
        taps: fields.size("linear_conv_kernel_dim", NETS.taps)?,
        full_layers: layers::full_beside_linear(fields, found.n_layers)?,
    };
    if found.feed_forward.activation != Activation::Silu {
        let rule = "must be \"silu\", which the delta nets have";
        return Err(fields.error("hidden_act", rule));
    }
    let epsilon = found.norm.epsilon();
    let is_none = nets.layers(found.n_layers).is_empty();
    Ok(ModelConfig {
        bias: fields.attention_biases()?,
        delta_nets: (!is_none).then_some(nets),
        ..hybrid(found, epsilon)
    })
}

/// Writes the fields that [`read_hybrid`] reads.
pub(super) fn write_hybrid(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_rotated(config, &ROPE);
    fields.insert("attention_bias".to_owned(), json!(config.bias().qkv));
    fields.insert(PADDING.to_owned(), Value::Null);
    layers::write_linear(config, &mut fields);
    let stack = config.stack();
    let Some((attention, net)) = stack.delta.and_then(|delta| {
        let net = delta.attention.delta()?;
        Some((delta.attention, net))
    }) else {
        return fields;
    };
    for (name, size) in [
        ("linear_num_key_heads", attention.kv_heads),
        ("linear_num_value_heads", attention.heads),
        ("linear_key_head_dim", attention.head_dim),
        ("linear_value_head_dim", net.value_dim),
        ("linear_conv_kernel_dim", net.taps),
    ] {
        fields.insert(name.to_owned(), json!(size));
    }
    fields
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let found = read_hybrid(fields, Family::Qwen3Next, SIZES)?;
    Ok(ModelConfig {
        experts: Some(Experts {
            width: Some(fields.size("moe_intermediate_size", 512)?),
            shared_width: Some(fields.size("shared_expert_intermediate_size", 512)?),
            normalize: fields.flag("norm_topk_prob", true)?,
            dense_layers: experts::dense_layers(fields, found.n_layers)?,
            ..experts::read(fields, experts::of(512, 10, 0.001))?
        }),
        ..found
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_hybrid(config);
    if let Some(experts) = config.experts() {
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("norm_topk_prob", json!(experts.normalize));
        set("moe_intermediate_size", json!(experts.width));
        let shared = experts.shared_width;
        set("shared_expert_intermediate_size", json!(shared));
    }
    experts::write(config, "num_experts", &mut fields);
    experts::write_dense_layers(config, &mut fields);
    fields
}

/// A type whose files may have the tensors of multi-token prediction.
pub(super) const fn ignoring_predictions(exchange: Exchange) -> Exchange {
    Exchange {
        constant: |name| name.starts_with("mtp.") || name.ends_with("rotary_emb.inv_freq"),
        ..exchange
    }
}

pub(super) const NAMES: Names<'static> = llama::names(&[
    NORMS,
    QK_NORMS,
    GATED_ATTENTION,
    DELTA_NET,
    FUSED,
    GATED,
    EXPERTS,
    SHARED_EXPERT,
]);

/// The attention, whose gate is beside the queries.
pub(super) const GATED_ATTENTION: &[TensorName] = &[
    query_key_value_beside_gate(
        "attention.qkv",
        ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    )
    .in_delta_nets(false),
    gate_beside_queries("attention.gate", "self_attn.q_proj").in_delta_nets(false),
    linear("attention.out", "self_attn.o_proj").in_delta_nets(false),
];

/// The delta nets without their projections of the input.
pub(super) const DELTA_NET: &[TensorName] = &[
    linear("attention.out", "linear_attn.out_proj").in_delta_nets(true),
    channels("attention.delta.convolution", "linear_attn.conv1d.weight"),
    as_is("attention.delta.decay", "linear_attn.A_log"),
    as_is("attention.delta.step_bias", "linear_attn.dt_bias"),
    as_is("attention.delta.norm.gain", "linear_attn.norm.weight"),
];

/// The projections of the input, in groups of the heads that share a key.
const FUSED: &[TensorName] = &[
    linear("attention.qkv", "linear_attn.in_proj_qkvz")
        .with_outputs(|attention| qkvz(attention, 0..3))
        .in_delta_nets(true),
    linear("attention.gate", "linear_attn.in_proj_qkvz")
        .with_outputs(|attention| qkvz(attention, 3..4))
        .in_delta_nets(true),
    per_head_of_key("attention.delta.rates", "linear_attn.in_proj_ba"),
];

/// A query, a key, the values that share it, and their gates.
fn qkvz(attention: &AttentionConfig, own: std::ops::Range<usize>) -> Pieces {
    let value_dim = attention.delta().map_or(0, |net| net.value_dim);
    let values = attention.heads / attention.kv_heads * value_dim;
    let sizes = vec![attention.head_dim, attention.head_dim, values, values];
    Pieces {
        own,
        ..Pieces::in_groups(attention.kv_heads, sizes)
    }
}
