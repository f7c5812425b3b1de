//! Architectures with LayerNorms.

use serde_json::{Value, json};

use super::super::rope;
use super::{Fields, Keys, Read, attention_bias, epsilon, head_dim, set, sizes, whole_head};

/// Key of the epsilon of LayerNorms.
const EPSILON: &str = "attention.layer_norm_epsilon";

pub(in crate::gguf) fn gpt2(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    set(fields, "model_type", json!("gpt2"));
    set(fields, "n_positions", json!(keys.size("context_length")?));
    set(fields, "n_embd", json!(keys.size("embedding_length")?));
    set(fields, "n_layer", json!(keys.size("block_count")?));
    set(fields, "n_head", json!(keys.size("attention.head_count")?));
    set(fields, "n_inner", json!(keys.size("feed_forward_length")?));
    keys.optional_size("attention.head_count_kv")?;
    epsilon(keys, fields, EPSILON, "layer_norm_epsilon")
}

pub(in crate::gguf) fn gpt_neox(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    sizes(keys, fields, "gpt_neox")?;
    let rope = rope::parameters(keys, head_dim(keys)?)?;
    set(fields, "rope_parameters", Value::Object(whole_head(rope)));
    let parallel = keys.flag("use_parallel_residual")?.unwrap_or(true);
    set(fields, "use_parallel_residual", json!(parallel));
    attention_bias(keys, fields);
    epsilon(keys, fields, EPSILON, "layer_norm_eps")
}

pub(in crate::gguf) fn falcon(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    sizes(keys, fields, "falcon")?;
    let layout = keys.text("tensor_data_layout")?;
    if layout.is_some_and(|layout| layout != "jploski") {
        return Err(keys.error("tensor_data_layout", "must be jploski"));
    }
    let (heads, kv_heads) = (
        keys.size("attention.head_count")?,
        keys.optional_size("attention.head_count_kv")?.unwrap_or(1),
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
    set(
        fields,
        "ffn_hidden_size",
        json!(keys.size("feed_forward_length")?),
    );
    set(
        fields,
        "bias",
        json!(keys.has_tensor("blk.0.attn_qkv.bias")),
    );
    let rope = rope::parameters(keys, head_dim(keys)?)?;
    set(fields, "rope_parameters", Value::Object(rope));
    epsilon(keys, fields, EPSILON, "layer_norm_epsilon")
}

pub(in crate::gguf) fn bloom(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    set(fields, "model_type", json!("bloom"));
    set(fields, "seq_length", json!(keys.size("context_length")?));
    set(fields, "hidden_size", json!(keys.size("embedding_length")?));
    set(fields, "n_layer", json!(keys.size("block_count")?));
    set(fields, "n_head", json!(keys.size("attention.head_count")?));
    keys.optional_size("attention.head_count_kv")?;
    let width = keys.size("feed_forward_length")?;
    if width != 4 * keys.size("embedding_length")? {
        return Err(keys.error(
            "feed_forward_length",
            "must be 4 times the embedding length",
        ));
    }
    epsilon(keys, fields, EPSILON, "layer_norm_epsilon")
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
    epsilon(keys, fields, EPSILON, "norm_epsilon")
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
        "logit_scale",
        json!(keys.number("logit_scale")?.unwrap_or(1.0)),
    );
    set(
        fields,
        "use_qk_norm",
        json!(keys.has_tensor("blk.0.attn_q_norm.weight")),
    );
    attention_bias(keys, fields);
    epsilon(keys, fields, EPSILON, "layer_norm_eps")
}
