//! Resuming a run that was stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use emberlm_data::Dataset;
use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::config::RunConfig;
use crate::data::TrainingData;
use crate::error::TrainError;

/// The keys that may change when a run is resumed: how long it is, what is shown and kept of it, and where the same
/// datasets lie; `*` is a place in a list. Any other makes another run of it.
pub const MAY_CHANGE: [&str; 12] = [
    "data.dataset",
    "data.mix.*.dataset",
    // The batches are the same for any number.
    "train.loader_workers",
    "train.steps",
    "train.log_interval",
    "train.evaluation.interval",
    "train.checkpoints.interval",
    "train.checkpoints.keep_last",
    "train.checkpoints.keep_best",
    "train.evaluation.sample_tokens",
    "train.skip.limit",
    // The gradients are the same to the bit.
    "train.recompute",
];

/// The number of changes an error shows.
const SHOWN_CHANGES: usize = 12;

/// Compares a run's configuration with the one it is to be resumed with.
///
/// # Errors
/// The keys that differ and may not, with both values.
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
    let is_place = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let general = |part| if is_place(part) { "*" } else { part };
    let parts: Vec<&str> = key.split('.').map(general).collect();
    MAY_CHANGE.contains(&parts.join(".").as_str())
}

/// The keys that differ between two configurations, each with a sentence that has both values.
pub fn changes(then: &RunConfig, now: &RunConfig) -> Vec<(String, String)> {
    let (then, now) = (flat(then), flat(now));
    let keys: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    let shown = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
    keys.into_iter()
        .filter(|key| then.get(*key) != now.get(*key))
        .map(|key| {
            let [then, now] = [&then, &now].map(|values| shown(values.get(key)));
            (key.clone(), format!("{key} was {then} and is {now}"))
        })
        .collect()
}

/// Every value by its dotted key. Numbers are compared as they are written.
fn flat(config: &RunConfig) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    // A configuration consists of only tables and values.
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

/// Compares what a checkpoint was trained on with a run's datasets.
///
/// # Errors
/// A dataset differs from the one that the run was trained on.
pub fn check_data(checkpoint: &Checkpoint, data: &TrainingData) -> Result<(), TrainError> {
    let differs = |dataset: &Dataset, what: String| TrainError::Resume {
        path: checkpoint.path.clone(),
        reason: format!("{}: {what}", dataset.folder().display()),
    };
    let first = data.first();
    if checkpoint.description.tokenizer.as_ref() != Some(&first.tokenizer().spec()) {
        return Err(differs(first, "it has another tokenizer".to_owned()));
    }
    let then = checkpoint.state.iter().flat_map(|state| &state.data);
    for ((then, now), dataset) in then.zip(data.identities()).zip(data.datasets()) {
        if let Some(what) = then.difference(&now) {
            return Err(differs(dataset, what));
        }
    }
    Ok(())
}
