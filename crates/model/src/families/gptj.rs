//! GPT-J (Wang and Komatsuzaki 2021).
//!
//! ```text
//! h = ln(x)                                         LayerNorm, ε 1e-5, one for both branches
//! x = x + Wo · attention(rope(q), rope(k), v) + W₂ · gelu(W₁ · h)      GELU by tanh
//! q, k, v = W · h                                   the first 64 of 256 elements of a head turn, neighbours in pairs
//! logits = H · ln_f(x) + b                          biases in the feed-forward part and the untied head alone
//! ```

use emberlm_kernels::{Activation, RotaryLayout};
use serde_json::{Map, Value, json};

use super::{Definition, Family, Preset, common, rotary};
use crate::checked::DecoderConfig;
use crate::config::{
    Biases, FeedForward, Head, Init, ModelConfig, Norm, Position, RotaryScaling, Wiring,
};
use crate::error::HuggingFaceError;
use crate::hugging_face::Exchange;
use crate::hugging_face::fields::Fields;
use crate::hugging_face::names::{activation, activation_name};
use crate::weights::map::{Source, block_path};

pub(super) const DEFINITION: Definition = Definition {
    name: "gptj",
    presets,
    source,
    exchange: Some(exchange),
};

fn presets() -> Vec<Preset> {
    let config = ModelConfig {
        vocab_size: 50_400,
        ..sized(2048, 4096, 28, 16, 64)
    };
    vec![Preset::new("gptj-6b", "GPT-J, 6B parameters", config)]
}

fn sized(
    seq_len: usize,
    d_model: usize,
    n_layers: usize,
    heads: usize,
    rotary_dims: usize,
) -> ModelConfig {
    ModelConfig {
        seq_len,
        d_model,
        n_layers,
        heads,
        kv_heads: heads,
        bias: Biases {
            feed_forward: true,
            ..Biases::all(false)
        },
        norm: Norm::Layer {
            bias: true,
            epsilon: 1e-5,
        },
        position: rotary(rotary_dims, 10_000.0, RotaryLayout::Interleaved),
        feed_forward: FeedForward::Dense {
            activation: Activation::GeluTanh,
            width: 0,
        },
        wiring: Wiring::Parallel { shared_norm: true },
        head: Head {
            bias: true,
            ..common(Family::Gptj).head
        },
        ..common(Family::Gptj)
    }
}

fn exchange() -> Exchange {
    Exchange {
        model_type: "gptj",
        architecture: "GPTJForCausalLM",
        prefix: "transformer.",
        embedding: "transformer.wte.weight",
        head: "lm_head.weight",
        constant: |name| {
            let constants = [".attn.bias", ".attn.masked_bias", ".attn.embed_positions"];
            constants.iter().any(|end| name.ends_with(end))
        },
        read,
        write,
        complete: |raw| {
            raw.bias.feed_forward = true;
            raw.head.bias = true;
            if let Norm::Layer { bias, .. } = &mut raw.norm {
                *bias = true;
            }
        },
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.only(
        "rotary",
        true,
        "GPT-J without rotary positions is not computed",
    )?;
    if fields.has("rotary_dim") && fields.optional_size("rotary_dim")?.is_none() {
        return Err(fields.error("rotary_dim", "must be a whole number"));
    }
    let raw = sized(
        fields.size_by_names(["max_position_embeddings", "n_positions"], 2048)?,
        fields.size_by_names(["hidden_size", "n_embd"], 4096)?,
        fields.size_by_names(["num_hidden_layers", "n_layer"], 28)?,
        fields.size_by_names(["num_attention_heads", "n_head"], 16)?,
        fields.size("rotary_dim", 64)?,
    );
    fields.divides("n_head", raw.heads, "n_embd", raw.d_model)?;
    Ok(ModelConfig {
        vocab_size: fields.size("vocab_size", 50_400)?,
        norm: Norm::Layer {
            bias: true,
            epsilon: fields.number("layer_norm_epsilon", 1e-5)?,
        },
        feed_forward: FeedForward::Dense {
            activation: activation(fields, "activation_function", Activation::GeluTanh)?,
            width: fields.optional_size("n_inner")?.unwrap_or(4 * raw.d_model),
        },
        head: Head {
            tied: fields.flag("tie_word_embeddings", false)?,
            ..raw.head
        },
        init: Init::Normal {
            std: fields.number("initializer_range", 0.02)?,
            scale_residual: false,
        },
        ..raw
    })
}

fn write(config: &DecoderConfig) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("n_positions", json!(config.seq_len));
    set("n_embd", json!(config.d_model));
    set("n_layer", json!(config.n_layers));
    set("n_head", json!(config.heads));
    set("n_inner", json!(config.feed_forward_width()));
    set(
        "activation_function",
        json!(activation_name(config.activation())),
    );
    set("layer_norm_epsilon", json!(config.norm_epsilon()));
    if let Position::Rotary {
        dims,
        scaling: RotaryScaling::None,
        ..
    } = config.position
    {
        set("rotary_dim", json!(dims));
    }
    fields
}

/// Hugging Face's names.
fn source(config: &DecoderConfig, path: &str) -> Option<Source> {
    let Some((layer, rest)) = block_path(path) else {
        return match path {
            "tokens" => Some(Source::as_is("transformer.wte.weight")),
            "norm_final.gain" => Some(Source::as_is("transformer.ln_f.weight")),
            "norm_final.bias" => Some(Source::as_is("transformer.ln_f.bias")),
            "head" => Some(Source::as_is("lm_head.weight")),
            "head_bias" => Some(Source::as_is("lm_head.bias")),
            _ => None,
        };
    };
    let at = |name: &str| format!("transformer.h.{layer}.{name}");
    match rest {
        "norm1.gain" => Some(Source::as_is(at("ln_1.weight"))),
        "norm1.bias" => Some(Source::as_is(at("ln_1.bias"))),
        "attention.qkv.weight" => {
            let names = ["q", "k", "v"].map(|n| at(&format!("attn.{n}_proj.weight")));
            Some(Source::query_key_value(config, names))
        }
        "attention.out.weight" => Some(Source::transposed(at("attn.out_proj.weight"))),
        "feed_forward.up.weight" => Some(Source::transposed(at("mlp.fc_in.weight"))),
        "feed_forward.up.bias" => Some(Source::as_is(at("mlp.fc_in.bias"))),
        "feed_forward.down.weight" => Some(Source::transposed(at("mlp.fc_out.weight"))),
        "feed_forward.down.bias" => Some(Source::as_is(at("mlp.fc_out.bias"))),
        _ => None,
    }
}
