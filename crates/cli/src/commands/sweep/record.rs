//! The record of a sweep in its folder, which prevents mixing runs of a changed sweep file with earlier runs.

use std::collections::BTreeMap;
use std::path::Path;

use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_trainer::config::legacy;
use emberlm_trainer::folder::write_whole;
use emberlm_trainer::{RunConfig, resume};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml::Table;

use super::plan::Plan;
use crate::error::CliError;

/// The record's file in a sweep's folder.
pub const FILE: &str = "sweep.json";

/// Every run planned in a folder, with its configuration.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct Record {
    /// The seed of the random search.
    #[serde(skip_serializing_if = "Option::is_none")]
    random_seed: Option<u64>,
    /// The resolved configuration of each run, by name.
    #[schemars(with = "BTreeMap<String, BTreeMap<String, Value>>")]
    runs: BTreeMap<String, RunConfig>,
}

impl Record {
    /// Creates the record of a plan.
    pub fn of(plan: &Plan) -> Self {
        let run = plan.runs.iter();
        Self {
            random_seed: plan.random_seed,
            runs: run
                .map(|run| (run.name.clone(), run.config.clone()))
                .collect(),
        }
    }

    /// Checks that the folder holds the same sweep. Additional runs are allowed.
    ///
    /// # Errors
    /// Returns an error if a recorded run is missing or has changed.
    pub fn check(&self, folder: &Path) -> Result<(), CliError> {
        let path = folder.join(FILE);
        if !path.exists() {
            return Ok(());
        }
        let text = read_text(&path, DESCRIPTION_LIMIT).map_err(CliError::io("read", &path))?;
        let before = Self::read(&text).map_err(|error| {
            CliError::new(format!(
                "{} is no record of a sweep: {error}",
                path.display()
            ))
            .hint("choose another --out")
        })?;
        match before.differs(self) {
            None => Ok(()),
            Some(how) => Err(CliError::new(format!(
                "{} holds another sweep: {how}",
                folder.display()
            ))
            .hint("choose another --out; a sweep's runs can be added, but not changed")),
        }
    }

    /// Parses a record, including those of earlier versions.
    fn read(text: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let written: StoredRecord = serde_json::from_str(text)?;
        let mut runs = BTreeMap::new();
        for (name, run) in written.runs {
            let mut run = Table::try_from(without_nulls(run))?;
            legacy::upgrade(&mut run);
            runs.insert(name, run.try_into()?);
        }
        Ok(Self {
            random_seed: written.random_seed,
            runs,
        })
    }

    /// Writes the record atomically.
    ///
    /// # Errors
    /// Returns an error if the record cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), CliError> {
        let path = folder.join(FILE);
        let text = serde_json::to_string_pretty(self).map_err(|error| {
            CliError::new(format!("the sweep cannot be written as JSON: {error}"))
        })?;
        Ok(write_whole(&path, text.as_bytes())?)
    }

    /// Describes the first difference from the recorded runs.
    fn differs(&self, now: &Self) -> Option<String> {
        self.runs.iter().find_map(|(name, before)| {
            let Some(now) = now.runs.get(name) else {
                return Some(format!("its run {name} is no longer in the file"));
            };
            let change = resume::setting_changes(before, now).into_iter().next()?;
            Some(format!("in its run {name}, {change}"))
        })
    }
}

/// A record as stored by this or an earlier version.
#[derive(Deserialize)]
struct StoredRecord {
    #[serde(default)]
    random_seed: Option<u64>,
    runs: BTreeMap<String, Value>,
}

/// Removes nulls, which TOML does not support.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(table) => {
            let there = table.into_iter().filter(|(_, value)| !value.is_null());
            let there = there.map(|(key, value)| (key, without_nulls(value)));
            Value::Object(there.collect())
        }
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emberlm_trainer::presets;

    fn record(runs: &[(&str, usize)]) -> Record {
        let run = |&(name, steps): &(&str, usize)| {
            let mut config = presets::run("char-nano").expect("a preset");
            config.train.steps = steps;
            (name.to_owned(), config)
        };
        Record {
            random_seed: None,
            runs: runs.iter().map(run).collect(),
        }
    }

    #[test]
    fn runs_may_be_added_but_not_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = record(&[("a", 10), ("b", 10)]);
        assert!(first.check(folder.path()).is_ok());
        first.write(folder.path()).expect("written");
        let more = record(&[("a", 10), ("b", 10), ("c", 10)]);
        assert!(first.check(folder.path()).is_ok() && more.check(folder.path()).is_ok());
        for (other, expected) in [
            (record(&[("a", 10)]), "run b is no longer in the file"),
            (
                record(&[("a", 10), ("b", 20)]),
                "in its run b, train.steps was 10 and now is 20",
            ),
        ] {
            let error = format!("{:?}", other.check(folder.path()).expect_err("another"));
            assert!(error.contains(expected), "{error}");
        }
        std::fs::write(folder.path().join(FILE), "{").expect("written");
        assert!(first.check(folder.path()).is_err());
    }
}
