//! A run's settings from its `config.toml`, keyed by path such as `train.steps`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_trainer::folder::CONFIG_FILE;
use emberlm_trainer::run_config::toml_reason;
use toml::{Table, Value};

use crate::error::CliError;

/// The setting that distinguishes runs of the same configuration.
pub const SEED: &str = "train.seed";

/// Settings by key.
pub type RunSettings = BTreeMap<String, Value>;

/// Reads the settings of a run.
///
/// # Errors
/// Returns an error if the configuration cannot be read or is not TOML.
pub fn read(run: &Path) -> Result<RunSettings, CliError> {
    let path = run.join(CONFIG_FILE);
    let text = read_text(&path, DESCRIPTION_LIMIT).map_err(CliError::io("read", &path))?;
    let table: Table = toml::from_str(&text).map_err(|error| {
        let reason = toml_reason(&error, &text);
        CliError::new(format!("{} is not valid TOML: {reason}", path.display()))
    })?;
    let mut settings = RunSettings::new();
    flatten("", table, &mut settings);
    Ok(settings)
}

/// A value as it is displayed: texts without quotes.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// The settings in which runs differ, sorted.
pub fn differing<'a>(runs: impl Iterator<Item = &'a RunSettings> + Clone) -> Vec<String> {
    let keys: BTreeSet<&String> = runs.clone().flat_map(RunSettings::keys).collect();
    let differs = |key: &&String| {
        let mut values = runs.clone().map(|settings| settings.get(*key));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    keys.into_iter().filter(differs).cloned().collect()
}

fn flatten(within: &str, table: Table, found: &mut RunSettings) {
    for (key, value) in table {
        let key = match within {
            "" => key,
            within => format!("{within}.{key}"),
        };
        match value {
            Value::Table(inner) if !inner.is_empty() => flatten(&key, inner, found),
            value => {
                found.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_keys_are_flattened_to_paths() {
        let run = tempfile::tempdir().expect("a folder");
        let text = "data = \"x\"\n[train]\nsteps = 3\n[train.schedule]\nkind = \"cosine\"\n";
        std::fs::write(run.path().join(CONFIG_FILE), text).expect("written");
        let settings = read(run.path()).expect("settings");
        let keys: Vec<&str> = settings.keys().map(String::as_str).collect();
        assert_eq!(keys, ["data", "train.schedule.kind", "train.steps"]);
        assert_eq!(settings["train.steps"], Value::Integer(3));
    }
}
