//! DeepSeek-V2 (DeepSeek-AI 2024, [2405.04434](https://arxiv.org/abs/2405.04434)): latent attention, and a softmax over the experts.
//!
//! ```text
//! x = x + Wo · attention(q, k, v)                   q = rope(Wq · rms₁(x)), [k, v] = W · rms(c), k = [k, rope(r)];
//!                                                   c, r = W' · rms₁(x)
//! x = x + Σ wₑ · expertₑ(u) + shared(u)             u = rms₂(x); the 6 of 64 experts with the largest p = softmax(R · u), w = p
//! expert(x) = W₂ · (silu(W₁ · x) ∘ W₃ · x)          the first layer has one such layer and no experts
//! logits = H · rms(x)
//! ```
//!
//! The large model also has latents of the queries, 160 experts in 8 groups of which the 3 with the largest p take part, and the
//! factor 16 on the weights.

use super::deepseek_v3::{LATENT, Latents, SHARED, read_latent, write_latent, yarn};
use super::llama::{self, GATED, NORMS, exchange};
use super::prelude::*;
use super::qwen3_moe::EXPERTS;

pub(super) const EXCHANGE: Option<Exchange> = Some(exchange(
    "deepseek_v2",
    "DeepseekV2ForCausalLM",
    read,
    write,
));

/// Default sizes of the model type.
const SIZES: Sizes = sizes! { vocab_size 102_400, seq_len 2048, d_model 4096, n_layers 32, heads 32, kv_heads 0, width 11_008 };

fn softmax_experts(count: usize, width: usize) -> Experts {
    Experts {
        width: Some(width),
        shared_width: Some(2 * width),
        shared_gate: false,
        ..experts::of(count, 6, 0.0)
    }
}

pub(super) fn presets() -> Vec<Preset> {
    let sizes =
        sizes! { seq_len 163_840, d_model 2048, n_layers 27, heads 16, width 10_944; ..SIZES };
    let latents = Latents {
        query_rank: None,
        ..Latents::DEEPSEEK
    };
    let (position, attention) = yarn(0.707);
    let lite = ModelConfig {
        norm: Norm::Rms { epsilon: 1e-6 },
        attention: attention.clone(),
        experts: Some(Experts {
            dense_layers: vec![0],
            ..softmax_experts(64, 1408)
        }),
        ..latents.in_model(position.clone(), sizes.config(Family::DeepseekV2))
    };
    let sizes = sizes! { d_model 5120, n_layers 60, heads 128, width 12_288; ..sizes };
    let large = ModelConfig {
        norm: Norm::Rms { epsilon: 1e-6 },
        attention,
        experts: Some(Experts {
            groups: Some(ExpertGroups {
                count: 8,
                active: 3,
            }),
            scale: Some(16.0),
            dense_layers: vec![0],
            ..softmax_experts(160, 1536)
        }),
        ..Latents::DEEPSEEK.in_model(position, sizes.config(Family::DeepseekV2))
    };
    presets! {
        "deepseek-v2-lite", "DeepSeek-V2-Lite 16B, latent attention, 6 of 64 experts per token and a shared one" => lite;
        "deepseek-v2", "DeepSeek-V2 236B, latent attention, 6 of 160 experts per token and a shared one" => large;
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let defaults = (SIZES, Latents::DEEPSEEK);
    let found = read_latent(fields, Family::DeepseekV2, defaults, 1e-6)?;
    if found.position != rope::interleaved(found.position.clone()) {
        return Err(fields.error("rope_interleave", "must be true for this type"));
    }
    let rule = "must be false: implementations differ in what it does";
    fields.only("norm_topk_prob", false, rule)?;
    fields.only("mlp_bias", false, "biases of experts are not supported")?;
    let found_experts = experts::read_grouped(fields, softmax_experts(64, 1407))?;
    let groups = match fields.optional_text("topk_method")?.unwrap_or("greedy") {
        "greedy" => None,
        "group_limited_greedy" => found_experts.groups,
        _ => {
            let rule = "must be one of greedy, group_limited_greedy";
            return Err(fields.error("topk_method", rule));
        }
    };
    Ok(ModelConfig {
        experts: Some(Experts {
            groups,
            dense_layers: experts::first_dense_layers(fields, 0, found.n_layers)?,
            ..found_experts
        }),
        ..found
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_latent(config);
    experts::write_grouped(config, &mut fields);
    let groups = config.experts().and_then(|experts| experts.groups);
    let method = match groups {
        Some(_) => "group_limited_greedy",
        None => {
            for field in ["n_group", "topk_group"] {
                fields.insert(field.to_owned(), Value::Null);
            }
            "greedy"
        }
    };
    fields.insert("topk_method".to_owned(), json!(method));
    // The type has only interleaved pairs.
    fields.remove("rope_interleave");
    fields
}

pub(super) const NAMES: Names<'static> = llama::names(&[NORMS, LATENT, GATED, EXPERTS, SHARED]);
