//! GLM-4.7-Flash (Z.ai 2026): DeepSeek-V3's blocks in other sizes.
//!
//! The equations are those of `deepseek_v3`, with 4 of 64 experts without groups, and the factor 1.8 on their weights. Layers with
//! and without experts are listed.

use super::deepseek_v3::{
    CHOICE_BIAS, LATENT, Latents, SHARED, read_latent, sigmoid_experts, write_latent,
};
use super::llama::{self, GATED, NORMS, exchange};
use super::prelude::*;
use super::qwen3_moe::EXPERTS;

pub(super) const EXCHANGE: Option<Exchange> =
    Some(exchange("glm4_moe_lite", "Glm4MoeLiteForCausalLM", read, write).with_further_blocks());

const SIZES: Sizes = sizes! { vocab_size 154_880, seq_len 202_752, d_model 2048, n_layers 47, heads 20, kv_heads 20, width 10_240 };

const LATENTS: Latents = Latents {
    query_rank: Some(768),
    rank: 512,
    own_dim: 192,
    rope_dim: 64,
    value_dim: 256,
};

/// Entries of `mlp_layer_types` of layers without and with experts.
const TYPES: [&str; 2] = ["dense", "sparse"];

fn default_experts() -> Experts {
    Experts {
        scale: Some(1.8),
        ..sigmoid_experts(64, 4, 1536)
    }
}

pub(super) fn presets() -> Vec<Preset> {
    let position = rotary(None, 1_000_000.0, RotaryLayout::Interleaved);
    let flash = ModelConfig {
        experts: Some(Experts {
            dense_layers: vec![0],
            ..default_experts()
        }),
        ..LATENTS.in_model(position, SIZES.config(Family::Glm4MoeLite))
    };
    presets! {
        "glm-4.7-flash", "GLM-4.7-Flash 30B-A3B, latent attention, 4 of 64 experts per token and a shared one" => flash;
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let found = read_latent(fields, Family::Glm4MoeLite, (SIZES, LATENTS), 1e-5)?;
    let dense_layers = match fields.optional_texts("mlp_layer_types")? {
        None => vec![0],
        Some(types) => {
            if types.len() != found.n_layers {
                let rule = format!("must have num_hidden_layers = {} entries", found.n_layers);
                return Err(fields.error("mlp_layer_types", rule));
            }
            if types.iter().any(|name| !TYPES.contains(name)) {
                return Err(fields.error("mlp_layer_types", "must contain only dense and sparse"));
            }
            let is_dense = |layer: &usize| types[*layer] == TYPES[0];
            (0..found.n_layers).filter(is_dense).collect()
        }
    };
    Ok(ModelConfig {
        experts: Some(Experts {
            normalize: fields.flag("norm_topk_prob", true)?,
            dense_layers,
            ..experts::read_grouped(fields, default_experts())?
        }),
        ..found
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_latent(config);
    experts::write_grouped(config, &mut fields);
    // The type has other fields for the dense layers and the rotated elements.
    fields.remove("first_k_dense_replace");
    fields.remove("head_dim");
    let dense = config
        .experts()
        .map_or(&[][..], |experts| &experts.dense_layers);
    let types = (0..config.n_layers()).map(|layer| TYPES[usize::from(!dense.contains(&layer))]);
    fields.insert("mlp_layer_types".to_owned(), types.collect());
    fields
}

pub(super) const NAMES: Names<'static> =
    llama::names(&[NORMS, LATENT, GATED, EXPERTS, CHOICE_BIAS, SHARED]);
