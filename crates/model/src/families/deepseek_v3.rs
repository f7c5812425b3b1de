//! DeepSeek-V3 (DeepSeek-AI 2024, [2412.19437](https://arxiv.org/abs/2412.19437)), and models of its type such as Moonlight and
//! Kimi K2: latent attention, and experts in groups beside an expert of every token.
//!
//! ```text
//! x = x + Wo · attention(q, k, v)                   q = rope(Wq · rms(c_q)), [k, v] = W · rms(c), k = [k, rope(r)];
//!                                                   c_q, c, r = W' · rms₁(x)
//! x = x + Σ wₑ · expertₑ(u) + shared(u)             u = rms₂(x); the 8 of 256 experts with the largest s + b in the 4 of 8 groups
//!                                                   with the largest sums of two; s = σ(R · u), w = 2.5 s / Σ s of the chosen ones
//! expert(x) = W₂ · (silu(W₁ · x) ∘ W₃ · x)          the first layers have one such layer and no experts
//! logits = H · rms(x)
//! ```
//!
//! Only a part of each head is rotated, in interleaved pairs; that of the keys is the same in all heads. The norms of the latents
//! have the ε 1e-6. The blocks of multi-token prediction, which files have after the others, are not read.

use super::llama::{self, GATED, NORMS, exchange, read_sizes, write_rotated};
use super::prelude::*;
use super::qwen3_moe::EXPERTS;
use crate::nn::attention::default_scale;
use crate::nn::position::scaling::yarn_factor;
use crate::weights::names::{TensorName, as_is, latents, linear};

pub(super) const EXCHANGE: Option<Exchange> =
    Some(exchange("deepseek_v3", "DeepseekV3ForCausalLM", read, write).with_further_blocks());

const SIZES: Sizes = sizes! { vocab_size 129_280, seq_len 4096, d_model 7168, n_layers 61, heads 128, kv_heads 0, width 18_432 };

/// Widths of latent attention.
#[derive(Clone, Copy)]
pub(super) struct Latents {
    pub(super) query_rank: Option<usize>,
    pub(super) rank: usize,
    /// Elements of a head that are not rotated.
    pub(super) own_dim: usize,
    pub(super) rope_dim: usize,
    pub(super) value_dim: usize,
}

impl Latents {
    /// DeepSeek's.
    pub(super) const DEEPSEEK: Self = Self {
        query_rank: Some(1536),
        rank: 512,
        own_dim: 128,
        rope_dim: 64,
        value_dim: 128,
    };

    const fn head_dim(&self) -> usize {
        self.own_dim + self.rope_dim
    }

    /// The configuration of a model with these widths, and with rotary positions.
    pub(super) fn in_model(self, position: Position, raw: ModelConfig) -> ModelConfig {
        ModelConfig {
            kv_heads: None,
            head_dim: Some(self.head_dim()),
            latent_attention: Some(LatentAttention {
                rank: self.rank,
                query_rank: self.query_rank,
                rope_dim: Some(self.rope_dim),
                value_dim: Some(self.value_dim),
            }),
            position,
            ..raw
        }
    }
}

/// Experts chosen by sigmoids with a bias, and a shared one without a gate.
pub(super) fn sigmoid_experts(count: usize, active: usize, width: usize) -> Experts {
    Experts {
        scores: ExpertScores::Sigmoid,
        choice_bias: true,
        normalize: true,
        width: Some(width),
        shared_width: Some(width),
        shared_gate: false,
        ..experts::of(count, active, 0.0)
    }
}

fn default_experts() -> Experts {
    Experts {
        groups: Some(ExpertGroups {
            count: 8,
            active: 4,
        }),
        scale: Some(2.5),
        ..sigmoid_experts(256, 8, 2048)
    }
}

/// YaRN to 40 times 4096 tokens, where the factor on the scores takes the place of that on the rotation.
pub(super) fn yarn(factor_of_scores: f64) -> (Position, AttentionKind) {
    const FACTOR: f64 = 40.0;
    let position = Position::Rotary {
        dims: None,
        base: 10_000.0,
        layout: RotaryLayout::Interleaved,
        scaling: RotaryScaling::Yarn {
            factor: FACTOR,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: Some(1.0),
            truncate: true,
            original_seq_len: 4096,
        },
    };
    let growth = yarn_factor(factor_of_scores, FACTOR);
    let scale = default_scale(Latents::DEEPSEEK.head_dim()) * (growth * growth);
    (position, AttentionKind::scaled(Some(scale)))
}

pub(super) fn presets() -> Vec<Preset> {
    let norm = |epsilon| Norm::Rms { epsilon };
    let (position, attention) = yarn(1.0);
    let sizes = sizes! { seq_len 163_840; ..SIZES };
    let large = ModelConfig {
        norm: norm(1e-6),
        attention,
        experts: Some(Experts {
            dense_layers: vec![0, 1, 2],
            ..default_experts()
        }),
        ..Latents::DEEPSEEK.in_model(position, sizes.config(Family::DeepseekV3))
    };
    let sizes = sizes! { vocab_size 163_840, seq_len 8192, d_model 2048, n_layers 27, heads 16, width 11_264; ..SIZES };
    let latents = Latents {
        query_rank: None,
        ..Latents::DEEPSEEK
    };
    let position = rotary(None, 50_000.0, RotaryLayout::Interleaved);
    let moonlight = ModelConfig {
        experts: Some(Experts {
            scale: Some(2.446),
            shared_width: Some(2 * 1408),
            dense_layers: vec![0],
            ..sigmoid_experts(64, 6, 1408)
        }),
        ..latents.in_model(position, sizes.config(Family::DeepseekV3))
    };
    presets! {
        "deepseek-v3", "DeepSeek-V3 671B, latent attention, 8 of 256 experts per token and a shared one" => large;
        "moonlight-16b-a3b", "Moonlight 16B-A3B, latent attention, 6 of 64 experts per token and a shared one" => moonlight;
    }
}

/// Reads the fields of types with latent attention, without experts.
pub(super) fn read_latent(
    fields: &Fields<'_>,
    family: Family,
    (sizes, defaults): (Sizes, Latents),
    epsilon: f64,
) -> Result<ModelConfig, HuggingFaceError> {
    let raw = read_sizes(fields, family, sizes, Some(1))?;
    let kv_heads = raw.kv_heads.unwrap_or(raw.heads);
    if fields.has("num_key_value_heads") && kv_heads != raw.heads {
        let rule = format!("must equal num_attention_heads = {}", raw.heads);
        return Err(fields.error("num_key_value_heads", rule));
    }
    let latents = Latents {
        query_rank: match fields.has("q_lora_rank") {
            true => fields.optional_size("q_lora_rank")?,
            false => defaults.query_rank,
        },
        rank: fields.size("kv_lora_rank", defaults.rank)?,
        own_dim: fields.size("qk_nope_head_dim", defaults.own_dim)?,
        rope_dim: fields.size("qk_rope_head_dim", defaults.rope_dim)?,
        value_dim: fields.size("v_head_dim", defaults.value_dim)?,
    };
    let bias = fields.attention_biases()?;
    if bias.qkv && latents.query_rank.is_none() {
        return Err(fields.error("attention_bias", "must be false without q_lora_rank"));
    }
    let factor = rope::scores::read_factor(fields)?;
    let scale = default_scale(latents.head_dim()) * factor;
    let position = rope::read(fields, &FULL_HEAD, latents.rope_dim, raw.seq_len)?;
    let position = match fields.flag("rope_interleave", true)? {
        true => rope::interleaved(position),
        false => position,
    };
    let raw = ModelConfig {
        norm: Norm::Rms {
            epsilon: fields.number("rms_norm_eps", epsilon)?,
        },
        attention: AttentionKind::scaled((factor != 1.0).then_some(scale)),
        bias,
        ..raw
    };
    Ok(latents.in_model(position, raw))
}

/// Writes the fields that [`read_latent`] reads.
pub(super) fn write_latent(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_rotated(config, &FULL_HEAD);
    let Some(latent) = config.latent_attention() else {
        return fields;
    };
    let head_dim = config.head_dim();
    let rope_dim = latent.rope_dim_for(head_dim);
    if let AttentionKind::Softmax {
        scale: Some(scale), ..
    } = config.attention()
        && let Position::Rotary { scaling, .. } = config.position()
        && let Some(all) = rope::scores::written(*scale, default_scale(head_dim), scaling)
        && let Some(parameters) = fields.get_mut("rope_parameters")
    {
        parameters["mscale_all_dim"] = json!(all);
    }
    let is_interleaved = matches!(
        config.position(),
        Position::Rotary {
            layout: RotaryLayout::Interleaved,
            ..
        }
    );
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("q_lora_rank", json!(latent.query_rank));
    set("kv_lora_rank", json!(latent.rank));
    set("qk_nope_head_dim", json!(head_dim - rope_dim));
    set("qk_rope_head_dim", json!(rope_dim));
    set("v_head_dim", json!(latent.value_dim));
    set("head_dim", json!(rope_dim));
    set("rope_interleave", json!(is_interleaved));
    set("attention_bias", json!(config.bias().qkv));
    fields
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let defaults = (SIZES, Latents::DEEPSEEK);
    let found = read_latent(fields, Family::DeepseekV3, defaults, 1e-6)?;
    Ok(ModelConfig {
        experts: Some(Experts {
            normalize: fields.flag("norm_topk_prob", true)?,
            dense_layers: experts::first_dense_layers(fields, 3, found.n_layers)?,
            ..experts::read_grouped(fields, default_experts())?
        }),
        ..found
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_latent(config);
    experts::write_grouped(config, &mut fields);
    fields
}

pub(super) const NAMES: Names<'static> =
    llama::names(&[NORMS, LATENT, GATED, EXPERTS, CHOICE_BIAS, SHARED]);

/// The attention.
pub(super) const LATENT: &[TensorName] = &[
    latents(
        "attention.qkv",
        ["self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"],
    )
    .only_if(has_query_latents),
    latents(
        "attention.qkv",
        ["self_attn.q_proj", "self_attn.kv_a_proj_with_mqa"],
    ),
    as_is("attention.latent.q_norm", "self_attn.q_a_layernorm"),
    linear("attention.latent.q_up", "self_attn.q_b_proj"),
    as_is("attention.latent.norm", "self_attn.kv_a_layernorm"),
    linear("attention.latent.up", "self_attn.kv_b_proj"),
    linear("attention.out", "self_attn.o_proj"),
];

fn has_query_latents(config: &TransformerConfig) -> bool {
    let latent = config.latent_attention();
    latent.is_some_and(|latent| latent.query_rank.is_some())
}

pub(super) const CHOICE_BIAS: &[TensorName] = &[as_is(
    "feed_forward.choice_bias",
    "mlp.gate.e_score_correction_bias",
)];

/// The expert of every token.
pub(super) const SHARED: &[TensorName] = &[
    linear(
        "feed_forward.shared.expert.gate",
        "mlp.shared_experts.gate_proj",
    ),
    linear(
        "feed_forward.shared.expert.up",
        "mlp.shared_experts.up_proj",
    ),
    linear(
        "feed_forward.shared.expert.down",
        "mlp.shared_experts.down_proj",
    ),
];
