//! The fields of `adapter_config.json`.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::config::LoraConfig;
use crate::error::AdapterError;

/// Fields that describe an adapter's origin or its initialization and do not affect its output.
const IGNORED: [&str; 14] = [
    "auto_mapping",
    "base_model_name_or_path",
    "ensure_weight_tying",
    "fan_in_fan_out",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "megatron_core",
    "peft_version",
    "revision",
    "runtime_config",
    "exclude_modules",
    "qalora_group_size",
];

/// Reads the fields of a configuration. The adapted layers follow from the tensors, not from `target_modules`.
///
/// # Errors
/// A field or its value is not supported.
pub(super) fn read_config(fields: &Map<String, Value>) -> Result<LoraConfig, AdapterError> {
    let mut config = LoraConfig::default();
    for (field, value) in fields {
        let supported = match field.as_str() {
            "peft_type" => value == "LORA",
            "task_type" => value.is_null() || value == "CAUSAL_LM",
            "bias" => read(value, &mut config.bias),
            "modules_to_save" => value.is_null() || read(value, &mut config.modules_to_save),
            "r" => read(value, &mut config.rank),
            "lora_alpha" => read(value, &mut config.alpha),
            "lora_dropout" => read(value, &mut config.dropout),
            "use_rslora" => read(value, &mut config.rank_stabilized),
            "use_dora" => read(value, &mut config.dora),
            "rank_pattern" => read_or_null(value, &mut config.rank_pattern),
            "alpha_pattern" => read_or_null(value, &mut config.alpha_pattern),
            "target_modules" => {
                if let Ok(names) = serde_json::from_value(value.clone()) {
                    config.targets = names;
                }
                true
            }
            field if IGNORED.contains(&field) => true,
            _ => is_unset(value),
        };
        if !supported {
            return Err(AdapterError::Unsupported {
                field: field.clone(),
                value: value.to_string(),
            });
        }
    }
    // In the order of files, which is that of a set.
    config.targets.sort();
    if config.dora {
        // Inference has no dropout, and training does not combine the two.
        config.dropout = 0.0;
    }
    config.check()?;
    let patterns = config
        .rank_pattern
        .keys()
        .chain(config.alpha_pattern.keys());
    for pattern in patterns {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
        if !pattern.chars().all(is_name) {
            return Err(AdapterError::Unsupported {
                field: "rank_pattern or alpha_pattern".to_owned(),
                value: format!("{pattern:?}"),
            });
        }
    }
    Ok(config)
}

fn read<T: DeserializeOwned>(value: &Value, into: &mut T) -> bool {
    match serde_json::from_value(value.clone()) {
        Ok(read) => {
            *into = read;
            true
        }
        Err(_) => false,
    }
}

fn read_or_null<T: DeserializeOwned>(value: &Value, into: &mut BTreeMap<String, T>) -> bool {
    value.is_null() || read(value, into)
}

/// True for null, false and empty values, with which a feature is off.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The fields of a configuration of adapters of `modules`. `tied_head` is the name of the head if it is tied to an
/// embedding that is trained.
pub(super) fn config_fields(
    config: &LoraConfig,
    modules: &[&str],
    base: &str,
    fan_in_fan_out: bool,
    tied_head: Option<&str>,
) -> Value {
    let targets = match config.targets.as_slice() {
        [] => last_components(modules),
        [all] if all == super::ALL_LINEAR => last_components(modules),
        targets => targets.to_vec(),
    };
    let mut saved = config.modules_to_save.clone();
    // PEFT ties the head to the trained embedding only if one of the names is `embed_tokens` or `lm_head`.
    saved.extend(tied_head.map(str::to_owned));
    saved.dedup();
    let saved = (!saved.is_empty()).then_some(saved);
    json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "inference_mode": true,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": config.dropout,
        "target_modules": targets,
        "rank_pattern": config.rank_pattern,
        "alpha_pattern": config.alpha_pattern,
        "use_rslora": config.rank_stabilized,
        "use_dora": config.dora,
        "fan_in_fan_out": fan_in_fan_out,
        "bias": config.bias,
        "modules_to_save": saved,
        "ensure_weight_tying": tied_head.is_some(),
        "init_lora_weights": true,
    })
}

/// The last components of names, sorted and without repetition.
fn last_components(modules: &[&str]) -> Vec<String> {
    let last = |name: &&str| name.rsplit('.').next().unwrap_or(name).to_owned();
    let mut names: Vec<String> = modules.iter().map(last).collect();
    names.sort();
    names.dedup();
    names
}
