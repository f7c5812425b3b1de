//! Metadata of GGUF files as fields of `config.json`.

pub(super) mod delta_nets;
mod layer_norm;

use emberlm_gguf::GgufError;
use serde_json::{Map, Value, json};

pub(super) use layer_norm::{bloom, cohere, falcon, gpt_neox, gpt2, layout, parallel, starcoder2};

use super::architecture::Windows;
use super::described::Described;
use super::key_names::{
    ACTIVE_EXPERTS, ATTENTION_SCALE, CONTEXT, EXPERT_WIDTH, EXPERTS, FEED_FORWARD, HEADS,
    KEY_LENGTH, KV_HEADS, RMS_EPSILON, SHARED_WIDTH, VALUE_LENGTH, WIDTH, WINDOW, WINDOW_PATTERN,
};
use super::metadata::Keys;
use super::{EMBEDDING, HEAD, architecture, rope};
use crate::config::limits;

type Fields = Map<String, Value>;
type Read<T> = Result<T, GgufError>;

/// Key of the kind of file: a model, an adapter, or another part of one.
const KIND: &str = "general.type";
/// Number of layers from which on lists of layers are cut, so that a damaged number takes no memory.
const MOST_LAYERS: u64 = limits::MOST_LAYERS as u64;
/// Names of the special tokens in `config.json`.
const TOKENS: [(&str, &str); 3] = [
    ("tokenizer.ggml.bos_token_id", "bos_token_id"),
    ("tokenizer.ggml.eos_token_id", "eos_token_id"),
    ("tokenizer.ggml.padding_token_id", "pad_token_id"),
];

/// Builds the fields of the `config.json` that describes the model of a file.
pub(crate) fn read(file: &dyn Described) -> Read<Fields> {
    let architecture = architecture::of(file.metadata())?;
    if let Some(kind) = file.metadata().text(KIND)?
        && kind != "model"
    {
        return Err(file.metadata().error(KIND, "must be model"));
    }
    let keys = Keys::new(file, architecture);
    let mut fields = Fields::new();
    (architecture.read)(&keys, &mut fields)?;
    for (key, field) in architecture.factors {
        // 0 is the same as no key.
        let factor = match keys.number(key)?.filter(|&factor| factor != 0.0) {
            Some(factor) => factor,
            None if *key == ATTENTION_SCALE => (head_dim(&keys)? as f64).sqrt().recip(),
            None => 1.0,
        };
        set(&mut fields, field, json!(factor));
    }
    for (key, field) in architecture.caps {
        let cap = keys.number(key)?.filter(|&cap| cap != 0.0);
        set(&mut fields, field, json!(cap));
    }
    let Some(embedding) = file.tensor(EMBEDDING) else {
        return Err(GgufError::Tensor {
            name: EMBEDDING.to_owned(),
            reason: "it is missing".to_owned(),
        });
    };
    set(&mut fields, "vocab_size", json!(embedding.rows()));
    set(
        &mut fields,
        "tie_word_embeddings",
        json!(!keys.has_tensor(HEAD)),
    );
    for (key, field) in TOKENS {
        // Ids of no token, such as -1, are those of tokens that the model lacks.
        let id = file.metadata().get(key).and_then(|value| value.integer());
        if let Some(id) = id.and_then(|id| u64::try_from(id).ok())
            && id < embedding.rows() as u64
        {
            set(&mut fields, field, json!(id));
        }
    }
    if keys.flag("attention.causal")? == Some(false) {
        return Err(keys.error(
            "attention.causal",
            "attention in both directions is not computed",
        ));
    }
    keys.check_all_read()?;
    Ok(fields)
}

fn set(fields: &mut Fields, name: &str, value: Value) {
    fields.insert(name.to_owned(), value);
}

/// Elements of a head.
fn head_dim(keys: &Keys<'_>) -> Read<u64> {
    let [key, value] = [KEY_LENGTH, VALUE_LENGTH];
    let (dim, of_value) = (keys.optional_size(key)?, keys.optional_size(value)?);
    let (heads, width) = (keys.size(HEADS)?, keys.size(WIDTH)?);
    if heads == 0 || !(dim.is_some() || width.is_multiple_of(heads)) {
        let rule = format!("must divide the width {width}");
        return Err(keys.error(HEADS, rule));
    }
    let dim = dim.unwrap_or(width / heads);
    match of_value {
        Some(other) if other != dim => {
            Err(keys.error(value, format!("must be the key length {dim}")))
        }
        _ => Ok(dim),
    }
}

/// Sizes by the names that most model types share.
fn sizes(keys: &Keys<'_>, fields: &mut Fields, model_type: &str) -> Read<()> {
    let heads = keys.size(HEADS)?;
    let kv_heads = keys.optional_size(KV_HEADS)?;
    set(fields, "model_type", json!(model_type));
    set(
        fields,
        "max_position_embeddings",
        json!(keys.size(CONTEXT)?),
    );
    set(fields, "hidden_size", json!(keys.size(WIDTH)?));
    set(fields, "num_hidden_layers", json!(keys.blocks()?));
    set(fields, "num_attention_heads", json!(heads));
    set(
        fields,
        "num_key_value_heads",
        json!(kv_heads.unwrap_or(heads)),
    );
    set(fields, "intermediate_size", json!(keys.size(FEED_FORWARD)?));
    Ok(())
}

/// The epsilon of norms.
fn epsilon(keys: &Keys<'_>, fields: &mut Fields, key: &str, field: &str) -> Read<()> {
    let epsilon = keys.number(key)?;
    let epsilon = epsilon.ok_or_else(|| keys.error(key, "must be given"))?;
    set(fields, field, json!(epsilon));
    Ok(())
}

/// Sets `attention_bias` by the presence of biases.
fn attention_bias(keys: &Keys<'_>, fields: &mut Fields) {
    let names = ["blk.0.attn_q.bias", "blk.0.attn_qkv.bias"];
    let biased = names.into_iter().any(|name| keys.has_tensor(name));
    set(fields, "attention_bias", json!(biased));
}

/// The fields of LLaMA's descendants.
fn descendant(keys: &Keys<'_>, fields: &mut Fields, model_type: &str) -> Read<()> {
    sizes(keys, fields, model_type)?;
    let head_dim = head_dim(keys)?;
    set(fields, "head_dim", json!(head_dim));
    set(
        fields,
        "rope_parameters",
        Value::Object(rope::parameters(keys, head_dim)?),
    );
    epsilon(keys, fields, RMS_EPSILON, "rms_norm_eps")?;
    attention_bias(keys, fields);
    set(
        fields,
        "mlp_bias",
        json!(keys.has_tensor("blk.0.ffn_up.bias")),
    );
    Ok(())
}

pub(super) fn llama(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    let experts = keys.optional_size(EXPERTS)?.unwrap_or(0);
    let active = keys.optional_size(ACTIVE_EXPERTS)?.unwrap_or(0);
    if experts == 0 {
        return descendant(keys, fields, "llama");
    }
    descendant(keys, fields, "mixtral")?;
    // Files do not record a window.
    set(fields, "sliding_window", Value::Null);
    set(fields, "num_local_experts", json!(experts));
    set(fields, "num_experts_per_tok", json!(active));
    Ok(())
}

pub(super) fn qwen2(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    descendant(keys, fields, "qwen2")
}

pub(super) fn qwen3(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    descendant(keys, fields, "qwen3")
}

/// The fields of mixtures of experts whose layers may also be dense.
fn experts(keys: &Keys<'_>, fields: &mut Fields, normalized: bool) -> Read<()> {
    set(fields, "num_experts", json!(keys.size(EXPERTS)?));
    set(
        fields,
        "num_experts_per_tok",
        json!(keys.size(ACTIVE_EXPERTS)?),
    );
    let scaled = keys.flag("expert_weights_norm")?.unwrap_or(normalized);
    set(fields, "norm_topk_prob", json!(scaled));
    let gating = keys.optional_size("expert_gating_func")?;
    // 1 is the softmax.
    if !matches!(gating, None | Some(1)) {
        return Err(keys.error("expert_gating_func", "must be 1, the softmax"));
    }
    let layers = keys.blocks()?;
    let is_dense = |layer: &u64| !keys.has_tensor(&format!("blk.{layer}.ffn_gate_inp.weight"));
    let dense: Vec<u64> = (0..layers.min(MOST_LAYERS)).filter(is_dense).collect();
    set(fields, "mlp_only_layers", json!(dense));
    Ok(())
}

/// The width of experts: a key, or the rows of `tensor` per expert.
fn expert_width(keys: &Keys<'_>, key: &str, tensor: &str) -> Read<u64> {
    if let Some(width) = keys.optional_size(key)? {
        return Ok(width);
    }
    let found = keys.file().tensor(tensor);
    let width = found.and_then(|found| found.shape.iter().rev().nth(1).copied());
    width.map_or_else(
        || Err(keys.error(key, "must be given")),
        |width| Ok(width as u64),
    )
}

pub(super) fn qwen2_moe(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    descendant(keys, fields, "qwen2_moe")?;
    experts(keys, fields, false)?;
    let width = expert_width(keys, EXPERT_WIDTH, "blk.0.ffn_gate_exps.weight")?;
    let key = SHARED_WIDTH;
    let shared = expert_width(keys, key, "blk.0.ffn_gate_shexp.weight")?;
    set(
        fields,
        "qkv_bias",
        json!(keys.has_tensor("blk.0.attn_q.bias")),
    );
    set(fields, "moe_intermediate_size", json!(width));
    set(fields, "shared_expert_intermediate_size", json!(shared));
    Ok(())
}

pub(super) fn qwen3_moe(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    descendant(keys, fields, "qwen3_moe")?;
    experts(keys, fields, true)?;
    let width = expert_width(keys, EXPERT_WIDTH, "blk.0.ffn_gate_exps.weight")?;
    set(fields, "moe_intermediate_size", json!(width));
    Ok(())
}

pub(super) fn olmoe(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    descendant(keys, fields, "olmoe")?;
    experts(keys, fields, false)?;
    fields.remove("mlp_only_layers");
    Ok(())
}

/// Writes the fraction of a head that is rotated, for types whose default is not 1.
fn whole_head(mut rope: Fields) -> Fields {
    rope.entry("partial_rotary_factor").or_insert(json!(1.0));
    rope
}

/// The fields of Gemma. The largest model of each version, with `largest` layers, scales scores by another width than
/// that of its heads, which files do not record.
fn gemma(keys: &Keys<'_>, fields: &mut Fields, model_type: &str, largest: u64) -> Read<u64> {
    sizes(keys, fields, model_type)?;
    let head_dim = head_dim(keys)?;
    let layers = keys.blocks()?;
    let scalar = match layers == largest {
        true => keys.size(WIDTH)? / keys.size(HEADS)?.max(1),
        false => head_dim,
    };
    set(fields, "head_dim", json!(head_dim));
    set(fields, "query_pre_attn_scalar", json!(scalar));
    attention_bias(keys, fields);
    epsilon(keys, fields, RMS_EPSILON, "rms_norm_eps")?;
    Ok(head_dim)
}

/// Sets the window and the layers that have it.
fn window(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    let every = match keys.architecture().windows {
        Windows::Every(every) | Windows::Listed(every) => every,
        Windows::Unrecorded | Windows::AllLayers => u64::MAX,
    };
    let tokens = keys.optional_size(WINDOW)?;
    let tokens = tokens.filter(|&tokens| tokens > 0);
    let layers = keys.blocks()?.min(MOST_LAYERS);
    let pattern = keys.layers(WINDOW_PATTERN, layers, every)?;
    let types = pattern
        .iter()
        .map(|&slides| match slides && tokens.is_some() {
            true => json!("sliding_attention"),
            false => json!("full_attention"),
        });
    set(fields, "layer_types", types.collect());
    set(fields, "sliding_window", json!(tokens));
    Ok(())
}

pub(super) fn gemma2(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    let head_dim = gemma(keys, fields, "gemma2", 46)?;
    set(
        fields,
        "rope_parameters",
        Value::Object(rope::parameters(keys, head_dim)?),
    );
    window(keys, fields)
}

pub(super) fn gemma3(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    let head_dim = gemma(keys, fields, "gemma3_text", 62)?;
    set(
        fields,
        "rope_parameters",
        rope::of_kinds(keys, head_dim, Some(10_000.0))?,
    );
    window(keys, fields)
}

pub(super) fn phi3(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    descendant(keys, fields, "phi3")?;
    let window = keys.optional_size(WINDOW)?;
    set(
        fields,
        "sliding_window",
        json!(window.filter(|&tokens| tokens > 0)),
    );
    Ok(())
}

pub(super) fn glm4(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    descendant(keys, fields, "glm4")?;
    let rope = rope::parameters(keys, head_dim(keys)?)?;
    set(fields, "rope_parameters", Value::Object(whole_head(rope)));
    Ok(())
}

pub(super) fn granite(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    descendant(keys, fields, "granite")
}

pub(super) fn smollm3(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    // Every fourth layer has no positions, which files do not record.
    descendant(keys, fields, "smollm3")
}

pub(super) fn gpt_oss(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    descendant(keys, fields, "gpt_oss")?;
    fields.remove("mlp_bias");
    // Files do not record that the bounds of the scaled frequencies are not rounded, as in all published models.
    if let Some(Value::Object(rope)) = fields.get_mut("rope_parameters")
        && rope.get("rope_type") == Some(&json!("yarn"))
    {
        set(rope, "truncate", json!(false));
    }
    let width = expert_width(keys, EXPERT_WIDTH, "blk.0.ffn_gate_exps.weight")?;
    set(fields, "intermediate_size", json!(width));
    set(fields, "num_local_experts", json!(keys.size(EXPERTS)?));
    set(
        fields,
        "num_experts_per_tok",
        json!(keys.size(ACTIVE_EXPERTS)?),
    );
    window(keys, fields)
}

/// OLMo 2, and OLMo 3 if there is a window.
pub(super) fn olmo(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    if keys.optional_size(WINDOW)?.is_none() {
        return descendant(keys, fields, "olmo2");
    }
    sizes(keys, fields, "olmo3")?;
    let head_dim = head_dim(keys)?;
    set(fields, "head_dim", json!(head_dim));
    set(
        fields,
        "rope_parameters",
        rope::of_kinds(keys, head_dim, None)?,
    );
    attention_bias(keys, fields);
    window(keys, fields)?;
    epsilon(keys, fields, RMS_EPSILON, "rms_norm_eps")
}
