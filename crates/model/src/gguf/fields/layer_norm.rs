//! Architectures with LayerNorms.

use emberlm_gguf::Value as GgufValue;
use serde_json::{Value, json};

use super::super::key_names::{
    CONTEXT, FEED_FORWARD, HEADS, KV_HEADS, LAYER_EPSILON, LAYERS, LAYOUT, LAYOUT_NAME, PARALLEL,
    WIDTH,
};
use super::super::rope;
use crate::config::Wiring;
use crate::transformer::checked::TransformerConfig;

use super::{Fields, Keys, Read, attention_bias, epsilon, head_dim, set, sizes, whole_head};

pub(in crate::gguf) fn gpt2(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    set(fields, "model_type", json!("gpt2"));
    set(fields, "n_positions", json!(keys.size(CONTEXT)?));
    set(fields, "n_embd", json!(keys.size(WIDTH)?));
    set(fields, "n_layer", json!(keys.size(LAYERS)?));
    set(fields, "n_head", json!(keys.size(HEADS)?));
    set(fields, "n_inner", json!(keys.size(FEED_FORWARD)?));
    keys.optional_size(KV_HEADS)?;
    epsilon(keys, fields, LAYER_EPSILON, "layer_norm_epsilon")
}

pub(in crate::gguf) fn gpt_neox(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    sizes(keys, fields, "gpt_neox")?;
    let rope = rope::parameters(keys, head_dim(keys)?)?;
    set(fields, "rope_parameters", Value::Object(whole_head(rope)));
    let parallel = keys.flag(PARALLEL)?.unwrap_or(true);
    set(fields, PARALLEL, json!(parallel));
    attention_bias(keys, fields);
    epsilon(keys, fields, LAYER_EPSILON, "layer_norm_eps")
}

/// The key of the order of sublayers.
pub(in crate::gguf) fn parallel(config: &TransformerConfig) -> (&'static str, GgufValue) {
    let parallel = matches!(config.wiring(), Wiring::Parallel { .. });
    (PARALLEL, GgufValue::Bool(parallel))
}

/// The key of the order of queries, keys and values.
pub(in crate::gguf) fn layout(_: &TransformerConfig) -> (&'static str, GgufValue) {
    (LAYOUT, GgufValue::String(LAYOUT_NAME.to_owned()))
}

pub(in crate::gguf) fn falcon(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    sizes(keys, fields, "falcon")?;
    let layout = keys.text(LAYOUT)?;
    if layout.is_some_and(|layout| layout != LAYOUT_NAME) {
        return Err(keys.error(LAYOUT, "must be jploski"));
    }
    let (heads, kv_heads) = (
        keys.size(HEADS)?,
        keys.optional_size(KV_HEADS)?.unwrap_or(1),
    );
    let two_norms = keys.has_tensor("blk.0.attn_norm_2.weight");
    let grouped = two_norms || (kv_heads != 1 && kv_heads != heads);
    set(fields, "num_kv_heads", json!(kv_heads));
    set(fields, "new_decoder_architecture", json!(grouped));
    set(fields, "multi_query", json!(kv_heads == 1));
    set(
        fields,
        "num_ln_in_parallel_attn",
        json!(if two_norms { 2 } else { 1 }),
    );
    set(fields, "ffn_hidden_size", json!(keys.size(FEED_FORWARD)?));
    set(
        fields,
        "bias",
        json!(keys.has_tensor("blk.0.attn_qkv.bias")),
    );
    let rope = rope::parameters(keys, head_dim(keys)?)?;
    set(fields, "rope_parameters", Value::Object(rope));
    epsilon(keys, fields, LAYER_EPSILON, "layer_norm_epsilon")
}

pub(in crate::gguf) fn bloom(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    set(fields, "model_type", json!("bloom"));
    set(fields, "seq_length", json!(keys.size(CONTEXT)?));
    set(fields, "hidden_size", json!(keys.size(WIDTH)?));
    set(fields, "n_layer", json!(keys.size(LAYERS)?));
    set(fields, "n_head", json!(keys.size(HEADS)?));
    keys.optional_size(KV_HEADS)?;
    let width = keys.size(FEED_FORWARD)?;
    if width != 4 * keys.size(WIDTH)? {
        return Err(keys.error(FEED_FORWARD, "must be 4 times the embedding length"));
    }
    epsilon(keys, fields, LAYER_EPSILON, "layer_norm_epsilon")
}

pub(in crate::gguf) fn starcoder2(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    sizes(keys, fields, "starcoder2")?;
    let rope = rope::parameters(keys, head_dim(keys)?)?;
    set(fields, "rope_parameters", Value::Object(rope));
    // Files do not record a window.
    set(fields, "sliding_window", Value::Null);
    set(
        fields,
        "use_bias",
        json!(keys.has_tensor("blk.0.attn_output.bias")),
    );
    epsilon(keys, fields, LAYER_EPSILON, "norm_epsilon")
}

pub(in crate::gguf) fn cohere(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    sizes(keys, fields, "cohere")?;
    let head_dim = head_dim(keys)?;
    set(fields, "head_dim", json!(head_dim));
    set(
        fields,
        "rope_parameters",
        Value::Object(rope::parameters(keys, head_dim)?),
    );
    set(
        fields,
        "use_qk_norm",
        json!(keys.has_tensor("blk.0.attn_q_norm.weight")),
    );
    attention_bias(keys, fields);
    epsilon(keys, fields, LAYER_EPSILON, "layer_norm_eps")
}
