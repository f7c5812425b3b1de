//! Falcon (Almazrouei et al. 2023, [2311.16867](https://arxiv.org/abs/2311.16867)).
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v) + W₂ · gelu(W₁ · ln₂(x))   parallel; one norm in the 7B, two in the 40B
//! q, k, v = W · ln₁(x)                              one key-value head in the 7B, 8 in the 40B; half-split rotation
//! logits = E · ln_f(x)                              LayerNorm with bias, ε 1e-5; no other biases; tied
//! ```
//!
//! W is stored key-value head by key-value head: its queries, its key and its value.

use super::prelude::*;
use crate::weights::names::{as_is, fused_per_group, linear};

/// Default sizes of the model type: those of the 7B model.
const SEVEN: Sizes = sizes! { vocab_size 65_024, seq_len 2048, d_model 4544, n_layers 32, heads 71, kv_heads 1, width 4 * 4544 };

pub(super) fn presets() -> Vec<Preset> {
    let forty =
        sizes! { d_model 8192, n_layers 60, heads 128, kv_heads 8, width 4 * 8192; ..SEVEN };
    presets! {
        "falcon-7b", "Falcon, 7B parameters, tied" => sized(SEVEN, true);
        "falcon-40b", "Falcon, 40B parameters, tied" => sized(forty, false);
    }
}

fn sized(sizes: Sizes, shared_norm: bool) -> ModelConfig {
    ModelConfig {
        norm: layer_norm(1e-5),
        feed_forward: FeedForward::dense(Activation::Gelu).with_expansion(sizes.expansion()),
        wiring: Wiring::Parallel { shared_norm },
        head: head(true),
        ..sizes.config(Family::Falcon)
    }
}

pub(super) const EXCHANGE: Option<Exchange> = Some(Exchange {
    further_blocks: false,
    within: &[],
    model_type: "falcon",
    architecture: "FalconForCausalLM",
    prefix: "transformer.",
    embedding: "transformer.word_embeddings.weight",
    head: "lm_head.weight",
    constant: |name| name.ends_with("rotary_emb.inv_freq"),
    read,
    write,
    complete: complete_norms,
});

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.only("alibi", false, "Falcon's scaled ALiBi is not computed")?;
    let grouped = fields.flag("new_decoder_architecture", false)?;
    let parallel = grouped || fields.flag("parallel_attn", true)?;
    let d_model = fields.size_by_names(["n_embed", "hidden_size"], SEVEN.d_model)?;
    let heads = fields.size("num_attention_heads", SEVEN.heads)?;
    fields.divides("num_attention_heads", heads, "hidden_size", d_model)?;
    let kv_heads = match grouped {
        true => fields.size("num_kv_heads", heads)?,
        false if fields.flag("multi_query", true)? => 1,
        false => heads,
    };
    let norms = fields.size("num_ln_in_parallel_attn", if grouped { 2 } else { 1 })?;
    if norms != 1 && !(grouped && norms == 2) {
        let rule = "must be 1, or 2 with new_decoder_architecture";
        return Err(fields.error("num_ln_in_parallel_attn", rule));
    }
    let seq_len = fields.size("max_position_embeddings", SEVEN.seq_len)?;
    let width = fields.size("ffn_hidden_size", 4 * d_model)?;
    let activation = activation(fields, "activation", Activation::Gelu)?;
    let raw = sized(SEVEN, norms == 1);
    Ok(ModelConfig {
        vocab_size: Some(fields.size("vocab_size", SEVEN.vocab_size)?),
        seq_len,
        d_model,
        n_layers: fields.size("num_hidden_layers", SEVEN.n_layers)?,
        heads,
        kv_heads: Some(kv_heads),
        bias: Biases::all(fields.flag("bias", false)?),
        norm: layer_norm(fields.number("layer_norm_epsilon", 1e-5)?),
        position: rope::read(fields, &FULL_HEAD, d_model / heads, seq_len)?,
        feed_forward: FeedForward::dense(activation).with_width(width),
        wiring: match parallel {
            true => raw.wiring,
            false => Wiring::PreNorm,
        },
        head: head(fields.flag("tie_word_embeddings", true)?),
        init: normal(fields.number("initializer_range", 0.02)?),
        ..raw
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    let (heads, kv_heads) = (config.heads(), config.kv_heads());
    let two_norms = config.wiring() == Wiring::Parallel { shared_norm: false };
    let grouped = two_norms || (kv_heads != 1 && kv_heads != heads);
    set("max_position_embeddings", json!(config.seq_len()));
    set("hidden_size", json!(config.d_model()));
    set("num_hidden_layers", json!(config.n_layers()));
    set("num_attention_heads", json!(heads));
    set("num_kv_heads", json!(kv_heads));
    set("new_decoder_architecture", json!(grouped));
    set("multi_query", json!(kv_heads == 1 && heads != 1));
    let parallel = config.wiring() != Wiring::PreNorm;
    set("parallel_attn", json!(parallel));
    if grouped {
        set(
            "num_ln_in_parallel_attn",
            json!(if two_norms { 2 } else { 1 }),
        );
    }
    set("alibi", json!(false));
    set("bias", json!(config.bias().qkv));
    set("ffn_hidden_size", json!(config.feed_forward_width()));
    set("activation", json!(activation_name(config.activation())));
    set("layer_norm_epsilon", json!(config.norm_epsilon()));
    if let Some(rope) = rope::write(config, &FULL_HEAD) {
        set("rope_parameters", rope);
    }
    fields
}

/// Returns true if each branch has its own norm; the tensors then have other names.
fn has_two_norms(config: &TransformerConfig) -> bool {
    config.wiring() == Wiring::Parallel { shared_norm: false }
}

/// Tensor names of Hugging Face checkpoints.
pub(super) const NAMES: Names<'static> = Names {
    model: &[
        as_is("tokens", "transformer.word_embeddings.weight"),
        as_is("norm_final", "transformer.ln_f"),
        as_is("head", "lm_head.weight"),
    ],
    block: "transformer.h.*",
    blocks: &[&[
        as_is("norm1", "ln_attn").only_if(has_two_norms),
        as_is("norm2", "ln_mlp").only_if(has_two_norms),
        as_is("norm1", "input_layernorm"),
        as_is("norm2", "post_attention_layernorm"),
        fused_per_group("attention.qkv", "self_attention.query_key_value"),
        linear("attention.out", "self_attention.dense"),
        linear("feed_forward.up", "mlp.dense_h_to_4h"),
        linear("feed_forward.down", "mlp.dense_4h_to_h"),
    ]],
};
