//! Metadata of models with gated delta nets.

use emberlm_gguf::{Array, Value as GgufValue};
use serde_json::{Value, json};

use super::super::architecture::Key;
use super::super::key_names::{
    DELTA_SIZES, EXPERT_WIDTH, INNER_SIZE, INTERVAL, LAYERS, RECURRENT, ROPE_SECTIONS,
    SHARED_WIDTH, STATE_SIZE, USUAL_INTERVAL, VALUE_HEADS,
};
use super::{Fields, Keys, MOST_LAYERS, Read, descendant, expert_width, experts, set, whole_head};
use crate::transformer::checked::TransformerConfig;

/// The sections of Qwen3.5's published models.
const SECTIONS: [i32; 4] = [11, 11, 10, 0];

pub(in crate::gguf) fn qwen3_next(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    hybrid(keys, fields, "qwen3_next")?;
    experts(keys, fields, true)?;
    let width = expert_width(keys, EXPERT_WIDTH, "blk.0.ffn_gate_exps.weight")?;
    let shared = expert_width(keys, SHARED_WIDTH, "blk.0.ffn_gate_shexp.weight")?;
    set(fields, "moe_intermediate_size", json!(width));
    set(fields, "shared_expert_intermediate_size", json!(shared));
    Ok(())
}

pub(in crate::gguf) fn qwen3_5_text(keys: &Keys<'_>, fields: &mut Fields) -> Read<()> {
    let sections = keys.sizes(ROPE_SECTIONS)?;
    if sections.is_some_and(|sections| !are_of_text(&sections)) {
        let rule = "must be four numbers that leave every pair of elements to the first three";
        return Err(keys.error(ROPE_SECTIONS, rule));
    }
    hybrid(keys, fields, "qwen3_5_text")
}

/// The sections of a written file.
pub(in crate::gguf) fn sections(_config: &TransformerConfig) -> Key {
    (
        ROPE_SECTIONS,
        GgufValue::Array(Array::I32(SECTIONS.to_vec())),
    )
}

/// Returns true if all pairs of elements rotate by one of the first three positions, which are equal in text. Pair `i` has the
/// position `i % 3` if `i / 3` is below that section, and otherwise the fourth one.
fn are_of_text(sections: &[u64]) -> bool {
    let pairs: u64 = sections.iter().map(|&pairs| pairs.min(1 << 16)).sum();
    let is_below = |pair: u64| pair / 3 < sections[(pair % 3) as usize];
    sections.len() == 4 && pairs > 0 && (0..pairs).all(is_below)
}

/// The fields of models with delta nets, whose attentions have no biases.
fn hybrid(keys: &Keys<'_>, fields: &mut Fields, model_type: &str) -> Read<()> {
    descendant(keys, fields, model_type)?;
    set(fields, "attention_bias", json!(false));
    if let Some(Value::Object(rope)) = fields.remove("rope_parameters") {
        set(fields, "rope_parameters", Value::Object(whole_head(rope)));
    }
    for (key, [field, _]) in DELTA_SIZES {
        set(fields, field, json!(keys.size(key)?));
    }
    let (heads, width) = (keys.size(VALUE_HEADS)?, keys.size(STATE_SIZE)?);
    if heads.checked_mul(width) != Some(keys.size(INNER_SIZE)?) {
        let rule = format!("must be {VALUE_HEADS} ({heads}) times {STATE_SIZE} ({width})");
        return Err(keys.error(INNER_SIZE, rule));
    }
    set(fields, "linear_value_head_dim", json!(width));
    set(fields, "layer_types", layer_types(keys)?);
    Ok(())
}

fn layer_types(keys: &Keys<'_>) -> Read<Value> {
    let interval = keys.optional_size(INTERVAL)?.unwrap_or(USUAL_INTERVAL);
    if interval == 0 {
        return Err(keys.error(INTERVAL, "must be at least 1"));
    }
    let listed = keys.size(LAYERS)?.min(MOST_LAYERS);
    let recurrent = keys.layers(RECURRENT, listed, interval)?;
    let layers = keys.blocks()?.min(MOST_LAYERS);
    let types = (0..layers).zip(recurrent).map(|(layer, is_recurrent)| {
        let (kind, name, other) = match is_recurrent {
            true => ("linear_attention", "a delta net", "attn_q.weight"),
            false => ("full_attention", "an attention", "ssm_a"),
        };
        let other = format!("blk.{layer}.{other}");
        if keys.has_tensor(&other) {
            let key = match keys.has(RECURRENT) {
                true => RECURRENT,
                false => INTERVAL,
            };
            let rule = format!("block {layer} would have {name}, but the file has `{other}`");
            return Err(keys.error(key, rule));
        }
        Ok(json!(kind))
    });
    types.collect()
}
