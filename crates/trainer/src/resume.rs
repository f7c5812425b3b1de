//! Checks that a stopped run can be resumed with given settings and data.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use emberlm_data::Tokenizer;
use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::identity::DataIdentity;

/// Settings that may change when a run is resumed: its length, its output, and the paths of its datasets. `*`
/// matches any index of a list. Changing any other setting would make it a different run.
pub const MAY_CHANGE: [&str; 14] = [
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
    "train.checkpoints.interval",
    "train.checkpoints.keep_last",
    "train.checkpoints.keep_best",
    "train.evaluation.sample_tokens",
    "train.skip.limit",
    // The gradients are bit-identical.
    "train.recompute",
];

/// The most changes listed in an error.
const SHOWN_CHANGES: usize = 12;

/// Compares a run's configuration with the one to resume it with.
///
/// # Errors
/// Lists the settings that must not change but differ, with both values.
pub fn check_changes(run: &Path, then: &RunConfig, now: &RunConfig) -> Result<(), TrainError> {
    let changes = changes(then, now).into_iter();
    let changes: Vec<String> = changes
        .filter(|(key, _)| !may_change(key))
        .map(|(_, change)| change)
        .collect();
    if changes.is_empty() {
        return Ok(());
    }
    let shown = &changes[..changes.len().min(SHOWN_CHANGES)];
    let more = match changes.len() - shown.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    Err(TrainError::Resume {
        path: run.to_owned(),
        reason: shown.join("; ") + &more,
    })
}

fn may_change(key: &str) -> bool {
    MAY_CHANGE.contains(&general(key).as_str())
}

/// A dotted key with `*` in place of every index of a list.
pub(crate) fn general(key: &str) -> String {
    let is_place = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let general = |part| if is_place(part) { "*" } else { part };
    let parts: Vec<&str> = key.split('.').map(general).collect();
    parts.join(".")
}

/// The keys that differ between two configurations, each with a sentence that states both values.
pub fn changes(then: &RunConfig, now: &RunConfig) -> Vec<(String, String)> {
    let (then, now) = (flat(then), flat(now));
    let keys: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    let shown = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
    keys.into_iter()
        .filter(|key| then.get(*key) != now.get(*key))
        .map(|key| {
            let [then, now] = [&then, &now].map(|values| shown(values.get(key)));
            (key.clone(), format!("{key} was {then} and now is {now}"))
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
    let differs = |folder: Option<&PathBuf>, what: String| {
        let folder = folder.cloned().unwrap_or_default();
        TrainError::Resume {
            path: checkpoint.path.clone(),
            reason: format!("{}: {what}", folder.display()),
        }
    };
    let is_same = match &checkpoint.description {
        Some(description) => description.tokenizer.as_ref() == Some(&tokenizer.spec()),
        // The end-of-text token of a dataset is not in the tokenizer's file.
        None => checkpoint
            .tokenizer()?
            .is_none_or(|then| then.to_tokenizer_json() == tokenizer.to_tokenizer_json()),
    };
    if !is_same {
        let what = "it has another tokenizer".to_owned();
        return Err(differs(folders.first(), what));
    }
    let then = checkpoint.state.iter().flat_map(|state| &state.data);
    for ((then, now), number) in then.zip(identities).zip(0..) {
        if let Some(what) = then.difference(now) {
            return Err(differs(folders.get::<usize>(number), what));
        }
    }
    Ok(())
}
