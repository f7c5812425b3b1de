//! The settings that a resumed run must keep, and those that a fork must keep.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use emberlm_data::Tokenizer;
use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::config::RunConfig;
use crate::data::identity::DataIdentity;
use crate::error::TrainError;
use crate::run::ancestry::ChangedValue;

/// Settings that may change when a run is resumed: its length, its output, and the paths of its datasets. `*`
/// matches any index of a list. Changing any other setting would make it a different run.
pub const MAY_CHANGE: [&str; 20] = [
    "data.dataset",
    "data.validation",
    "data.mix.*.dataset",
    // The batches do not depend on the number of workers.
    "train.loader_workers",
    // The sums are the same.
    "train.exchange",
    "train.steps",
    "train.log_interval",
    "train.evaluation.interval",
    "train.evaluation.early_stop",
    "train.checkpoints.interval",
    "train.checkpoints.at_evaluations",
    "train.checkpoints.minutes",
    "train.checkpoints.keep_last",
    "train.checkpoints.keep_best",
    "train.evaluation.sample_tokens",
    "train.evaluation.tasks",
    "train.evaluation.core",
    "train.evaluation.task_items",
    "train.skip.limit",
    // The gradients are bit-identical.
    "train.recompute",
];

/// Settings that a fork must keep: those of the trained weights. A table means all its settings.
pub const FORK_KEEPS: [&str; 5] = [
    "model",
    "train.from",
    "train.adapter",
    "train.objective.kind",
    "train.parametrization",
];
/// Settings of models that do not change the weights' shapes or their output.
const REGULARIZATION: [&str; 3] = [
    "model.dropout",
    "model.dropout_sites",
    "model.architecture.attention_dropout",
];

/// The most changes listed in an error.
const SHOWN_CHANGES: usize = 12;

/// A setting with different values in two configurations.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingChange {
    /// The dotted key.
    pub key: String,
    /// The value before, if there was one.
    pub then: Option<Value>,
    /// The value now, if there is one.
    pub now: Option<Value>,
}

impl fmt::Display for SettingChange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<Value>| {
            let text = value.as_ref().map(Value::to_string);
            text.unwrap_or_else(|| "nothing".to_owned())
        };
        let Self { key, then, now } = self;
        write!(out, "{key} was {} and now is {}", shown(then), shown(now))
    }
}

impl SettingChange {
    /// Returns true if a resumed run may have this change.
    pub fn may_be_resumed(&self) -> bool {
        self.is_one_of(&MAY_CHANGE)
    }

    /// Returns true if a fork may have this change.
    pub fn may_be_forked(&self) -> bool {
        let is_below = |table: &&str| {
            let rest = self.key.strip_prefix(*table);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.is_one_of(&REGULARIZATION) || !FORK_KEEPS.iter().any(is_below)
    }

    /// Returns true if the setting is one of `keys`, in which `*` matches any index of a list.
    pub(crate) fn is_one_of(&self, keys: &[&str]) -> bool {
        keys.contains(&general(&self.key).as_str())
    }

    /// The key with both values.
    pub(crate) fn values(&self) -> (String, ChangedValue) {
        let value = |value: &Option<Value>| value.clone().unwrap_or_default();
        let values = ChangedValue {
            was: value(&self.then),
            is: value(&self.now),
        };
        (self.key.clone(), values)
    }
}

/// Descriptions of changes in one line, of which at most a dozen are listed.
pub fn listed(mut changes: Vec<String>) -> String {
    let more = changes.len().saturating_sub(SHOWN_CHANGES);
    changes.truncate(SHOWN_CHANGES);
    let listed = changes.join("; ");
    match more {
        0 => listed,
        more => format!("{listed}; and {more} more"),
    }
}

/// A dotted key with `*` in place of every index of a list.
pub(crate) fn general(key: &str) -> String {
    let is_place = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let general = |part| if is_place(part) { "*" } else { part };
    let parts: Vec<&str> = key.split('.').map(general).collect();
    parts.join(".")
}

/// The settings that differ between two configurations, in the order of their keys.
pub fn setting_changes(then: &RunConfig, now: &RunConfig) -> Vec<SettingChange> {
    let (then, now) = (flat(then), flat(now));
    let keys: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    keys.into_iter()
        .filter(|key| then.get(*key) != now.get(*key))
        .map(|key| SettingChange {
            key: key.clone(),
            then: then.get(key).cloned(),
            now: now.get(key).cloned(),
        })
        .collect()
}

/// Every value by its dotted key. Numbers are compared as JSON values.
pub(crate) fn flat(config: &RunConfig) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    // A configuration always serializes.
    let tree = serde_json::to_value(config).unwrap_or_default();
    flatten("", tree, &mut values);
    values
}

fn flatten(key: &str, value: Value, values: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(table) => {
            for (name, value) in table {
                flatten(&below(key, name), value, values);
            }
        }
        Value::Array(tables) if tables.first().is_some_and(Value::is_object) => {
            for (place, value) in tables.into_iter().enumerate() {
                flatten(&below(key, place.to_string()), value, values);
            }
        }
        value => {
            values.insert(key.to_owned(), value);
        }
    }
}

fn below(key: &str, name: String) -> String {
    match key {
        "" => name,
        key => format!("{key}.{name}"),
    }
}

/// Checks that the run's data is the one that a checkpoint was trained on. `folders` has the path of each of `identities`.
///
/// # Errors
/// A dataset or the tokenizer differs.
pub(crate) fn check_data(
    checkpoint: &Checkpoint,
    tokenizer: &Tokenizer,
    identities: &[DataIdentity],
    folders: &[PathBuf],
) -> Result<(), TrainError> {
    check_tokenizer(checkpoint, tokenizer, folders)?;
    let then = checkpoint.state.iter().flat_map(|state| &state.data);
    for ((then, now), number) in then.zip(identities).zip(0..) {
        if let Some(difference) = then.difference(now) {
            let folder = folders.get::<usize>(number).cloned().unwrap_or_default();
            return Err(TrainError::ResumeData {
                checkpoint: checkpoint.path.clone(),
                dataset: folder,
                difference,
            });
        }
    }
    Ok(())
}

/// Checks that the run's data has the tokenizer of a checkpoint.
///
/// # Errors
/// The tokenizer differs.
pub(crate) fn check_tokenizer(
    checkpoint: &Checkpoint,
    tokenizer: &Tokenizer,
    folders: &[PathBuf],
) -> Result<(), TrainError> {
    let is_same = match &checkpoint.description {
        Some(description) => description.tokenizer.as_ref() == Some(&tokenizer.spec()),
        // The end-of-text token of a dataset is not in the tokenizer's file.
        None => checkpoint
            .tokenizer()?
            .is_none_or(|then| then.to_tokenizer_json() == tokenizer.to_tokenizer_json()),
    };
    match is_same {
        true => Ok(()),
        false => Err(TrainError::ResumeTokenizer {
            checkpoint: checkpoint.path.clone(),
            dataset: folders.first().cloned().unwrap_or_default(),
        }),
    }
}
