//! The fields of `adapter_config.json`.

use std::collections::BTreeMap;

use emberlm_system::fields::{FieldTable, Treatment};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::config::{LoraConfig, is_named};
use super::peft_task::TASKS;
use crate::error::AdapterError;

use Treatment::{NoEffect, Only, Read};

/// Treatment of a field that is off if it is false or empty, and whose feature is not supported.
const fn off(rule: &'static str) -> Treatment {
    Only {
        value: "null",
        rule,
    }
}

const OTHER_TENSORS: &str = "adds tensors that are not those of LoRA or DoRA";

/// The fields of PEFT's `LoraConfig`, and of the configuration that it extends.
const FIELDS: FieldTable = FieldTable(&[
    ("peft_type", Read),
    ("task_type", Read),
    ("r", Read),
    ("lora_alpha", Read),
    ("rank_pattern", Read),
    ("alpha_pattern", Read),
    ("use_rslora", Read),
    ("use_dora", Read),
    ("lora_dropout", Read),
    ("bias", Read),
    ("modules_to_save", Read),
    ("ensure_weight_tying", Read),
    ("init_lora_weights", Read),
    // `PeftSelection` compares these with the tensors.
    ("target_modules", Read),
    ("exclude_modules", Read),
    ("layers_to_transform", Read),
    ("layers_pattern", Read),
    // Origin.
    ("auto_mapping", NoEffect),
    ("base_model_name_or_path", NoEffect),
    ("revision", NoEffect),
    ("peft_version", NoEffect),
    ("inference_mode", NoEffect),
    ("runtime_config", NoEffect),
    // The layout of the base model's matrices, which follows from the model.
    ("fan_in_fan_out", NoEffect),
    // Settings of an initialization, whose name is in `init_lora_weights`.
    ("loftq_config", NoEffect),
    ("eva_config", NoEffect),
    ("corda_config", NoEffect),
    ("lora_ga_config", NoEffect),
    // Another computation of gradients.
    ("velora_config", NoEffect),
    // The size of a feature that is refused, and the name of a library.
    ("qalora_group_size", NoEffect),
    ("megatron_core", NoEffect),
    ("use_qalora", off("averages inputs in groups")),
    ("lora_bias", off("adds a bias to each update")),
    ("megatron_config", off("adapts layers of Megatron")),
    (
        "trainable_token_indices",
        off("replaces rows of the embedding"),
    ),
    (
        "target_parameters",
        off("adapts parameters that are no layers"),
    ),
    ("layer_replication", off("repeats layers of the base model")),
    (
        "alora_invocation_tokens",
        off("applies the adapter only after these tokens"),
    ),
    ("arrow_config", off("mixes several adapters")),
    (
        "kasa_config",
        off("removes singular values of the base weights"),
    ),
    ("monteclora_config", off(OTHER_TENSORS)),
    ("use_bdlora", off(OTHER_TENSORS)),
]);

/// The initializations that leave the base weights as they are.
const PLAIN_INITIALIZATIONS: [&str; 4] = ["gaussian", "eva", "orthogonal", "mica"];
/// Beginnings of the names of those that change the base weights, so that the adapter does not fit the original ones.
const CHANGING_INITIALIZATIONS: [&str; 5] = ["pissa", "olora", "corda", "loftq", "lora_ga"];

/// Reads the fields of a configuration. The adapted layers follow from the tensors, not from `target_modules`.
///
/// # Errors
/// A field or its value is not supported.
pub(super) fn read_config(fields: &Map<String, Value>) -> Result<LoraConfig, AdapterError> {
    if let Some(unread) = FIELDS.unread(fields).next() {
        let reason = unread.rule.unwrap_or("PEFT has no such field");
        return Err(AdapterError::Unsupported {
            field: unread.field,
            value: unread.value,
            reason: format!(": it {reason}").replace(": it PEFT", ": PEFT"),
        });
    }
    let mut config = LoraConfig::default();
    for (field, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let supported = match field.as_str() {
            "peft_type" => value == "LORA",
            "task_type" => value.as_str().is_some_and(|task| TASKS.contains(&task)),
            "bias" => read(value, &mut config.bias),
            "modules_to_save" => read(value, &mut config.modules_to_save),
            "r" => read(value, &mut config.rank),
            "lora_alpha" => read(value, &mut config.alpha),
            "lora_dropout" => read(value, &mut config.dropout),
            "use_rslora" => read(value, &mut config.rank_stabilized),
            "use_dora" => read(value, &mut config.dora),
            "ensure_weight_tying" => value.is_boolean(),
            "rank_pattern" => read_pattern(field, value, &mut config.rank_pattern)?,
            "alpha_pattern" => read_pattern(field, value, &mut config.alpha_pattern)?,
            "init_lora_weights" => {
                check_initialization(value)?;
                true
            }
            "target_modules" => {
                if let Ok(names) = serde_json::from_value(value.clone()) {
                    config.targets = names;
                }
                true
            }
            _ => true,
        };
        if !supported {
            return Err(AdapterError::Unsupported {
                field: field.clone(),
                value: value.to_string(),
                reason: String::new(),
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
    Ok(config)
}

/// Checks that the adapter is an update of the original base weights.
fn check_initialization(value: &Value) -> Result<(), AdapterError> {
    let name = match value {
        Value::Bool(_) => return Ok(()),
        other => other.as_str().unwrap_or_default().to_lowercase(),
    };
    if PLAIN_INITIALIZATIONS.contains(&name.as_str()) {
        return Ok(());
    }
    let changes = CHANGING_INITIALIZATIONS
        .iter()
        .any(|known| name.starts_with(known));
    Err(match changes {
        true => AdapterError::ChangedBase {
            value: value.to_string(),
        },
        false => AdapterError::Unsupported {
            field: "init_lora_weights".to_owned(),
            value: value.to_string(),
            reason: ": PEFT has no such initialization".to_owned(),
        },
    })
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

/// Reads values by the ends of layers' names. PEFT uses the first that matches, in the order of the file, and the settings
/// the longest.
fn read_pattern<T: DeserializeOwned>(
    field: &str,
    value: &Value,
    into: &mut BTreeMap<String, T>,
) -> Result<bool, AdapterError> {
    let Some(values) = value.as_object() else {
        return Ok(false);
    };
    let mut earlier: Vec<String> = Vec::new();
    for (pattern, value) in values {
        let name = layer_name(field, pattern)?;
        // Every layer that this name matches has the value of an earlier one.
        if earlier.iter().any(|known| is_named(&name, known)) {
            continue;
        }
        let Ok(value) = serde_json::from_value(value.clone()) else {
            return Ok(false);
        };
        into.insert(name.clone(), value);
        earlier.push(name);
    }
    Ok(true)
}

/// The end of layers' names that a pattern matches. PEFT's patterns are regular expressions for a whole name, with
/// anything up to a dot before it.
fn layer_name(field: &str, pattern: &str) -> Result<String, AdapterError> {
    let plain = pattern.strip_prefix('^').unwrap_or(pattern);
    let plain = plain.strip_suffix('$').unwrap_or(plain);
    let plain = plain.replace("\\.", ".");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
    match plain.chars().all(is_name) {
        true => Ok(plain),
        false => Err(AdapterError::Unsupported {
            field: field.to_owned(),
            value: format!("{pattern:?}"),
            reason: ": its keys must be the ends of layers' names".to_owned(),
        }),
    }
}

/// The layers that a configuration selects, as far as lists of names and numbers do.
pub(super) struct PeftSelection<'a> {
    fields: &'a Map<String, Value>,
}

impl<'a> PeftSelection<'a> {
    pub(super) fn new(fields: &'a Map<String, Value>) -> Self {
        Self { fields }
    }

    /// The field that leaves out a layer. Regular expressions leave out none: PEFT writes tensors of the layers that
    /// they select.
    pub(super) fn leaves_out(&self, module: &str) -> Option<&'static str> {
        let matches = |name: &&str| is_named(module, name);
        if let Some(excluded) = self.names("exclude_modules")
            && excluded.iter().any(&matches)
        {
            return Some("exclude_modules");
        }
        let targets = self.names("target_modules")?;
        if targets.contains(&module) {
            return None;
        }
        if !targets.iter().any(matches) {
            return Some("target_modules");
        }
        let layers = self.layers()?;
        match self.layer_of(module) {
            Some(layer) if layers.contains(&layer) => None,
            _ => Some("layers_to_transform"),
        }
    }

    /// The value of a field as JSON.
    pub(super) fn value(&self, field: &str) -> String {
        self.fields.get(field).unwrap_or(&Value::Null).to_string()
    }

    /// The names in a list.
    fn names(&self, field: &str) -> Option<Vec<&'a str>> {
        let list = self.fields.get(field)?.as_array()?;
        list.iter().map(Value::as_str).collect()
    }

    /// The numbers of the layers that are adapted; `None` for all.
    fn layers(&self) -> Option<Vec<u64>> {
        match self.fields.get("layers_to_transform")? {
            Value::Array(list) if list.is_empty() => None,
            Value::Array(list) => Some(list.iter().filter_map(Value::as_u64).collect()),
            number => number.as_u64().map(|number| vec![number]),
        }
    }

    /// The number of a module's layer: the first after one of the names in `layers_pattern`, or after any.
    fn layer_of(&self, module: &str) -> Option<u64> {
        let patterns = match self.fields.get("layers_pattern") {
            Some(Value::String(name)) if !name.is_empty() => vec![name.as_str()],
            _ => self.names("layers_pattern").unwrap_or_default(),
        };
        let parts: Vec<&str> = module.split('.').collect();
        parts.windows(3).find_map(|parts| {
            let is_list = patterns.is_empty() || patterns.contains(&parts[0]);
            parts[1].parse().ok().filter(|_| is_list)
        })
    }
}

/// The fields of a configuration of adapters of `modules` for a task. `tied_head` is the name of the head if it is tied to an
/// embedding that is trained.
pub(super) fn config_fields(
    config: &LoraConfig,
    task: Option<&str>,
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
        "task_type": task,
        "base_model_name_or_path": base,
        "inference_mode": true,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": config.dropout,
        "target_modules": targets,
        "rank_pattern": longest_first(&config.rank_pattern),
        "alpha_pattern": longest_first(&config.alpha_pattern),
        "use_rslora": config.rank_stabilized,
        "use_dora": config.dora,
        "fan_in_fan_out": fan_in_fan_out,
        "bias": config.bias,
        "modules_to_save": saved,
        "ensure_weight_tying": tied_head.is_some(),
        "init_lora_weights": true,
    })
}

/// The values in the order in which PEFT's choice, the first that matches, is that of the settings.
fn longest_first<T: Into<Value> + Copy>(pattern: &BTreeMap<String, T>) -> Map<String, Value> {
    let mut values: Vec<(&String, &T)> = pattern.iter().collect();
    values.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    let values = values.into_iter();
    values
        .map(|(name, value)| (name.clone(), (*value).into()))
        .collect()
}

/// The last components of names, sorted and without repetition.
fn last_components(modules: &[&str]) -> Vec<String> {
    let last = |name: &&str| name.rsplit('.').next().unwrap_or(name).to_owned();
    let mut names: Vec<String> = modules.iter().map(last).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `make_peft_fields.py` lists the fields with their defaults.
    #[test]
    fn every_field_of_peft_is_in_the_table() {
        let listed = include_str!("../../tests/fixtures/peft_fields.json");
        let listed: Value = serde_json::from_str(listed).unwrap();
        let defaults = listed["fields"].as_object().unwrap();
        let mut of_peft: Vec<&str> = defaults.keys().map(String::as_str).collect();
        let mut of_table: Vec<&str> = FIELDS.names().collect();
        of_peft.sort_unstable();
        of_table.sort_unstable();
        assert_eq!(of_table, of_peft);
        assert!(read_config(defaults).is_ok(), "the defaults are read");
    }

    #[test]
    fn values_of_layers_are_those_that_peft_selects() {
        let values = |pattern: Value| {
            let fields = json!({ "alpha_pattern": pattern });
            let config = read_config(fields.as_object().unwrap()).unwrap();
            ["layers.0.q_proj", "layers.1.q_proj"].map(|name| config.scale_of(name, 1))
        };
        let general_first = json!({"q_proj": 3, "layers.1.q_proj": 5});
        assert_eq!(values(general_first), [3.0, 3.0]);
        assert_eq!(
            values(json!({"layers.1.q_proj": 5, "q_proj": 3})),
            [3.0, 5.0]
        );
        assert_eq!(values(json!({"^layers\\.0\\.q_proj$": 7})), [7.0, 8.0]);
    }
}
