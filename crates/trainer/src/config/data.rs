//! The `[data]` table: the training data of a run.

use std::path::{Path, PathBuf};

use documented::DocumentedFields;
use emberlm_data::{Format, MANIFEST_FILE};
use serde::{Deserialize, Serialize};

use super::check::{F32_RULE, is_in_f32};
use super::settings::settings;
use super::{ObjectiveConfig, RunConfig};
use crate::error::TrainError;

settings! {
    /// The training data of a run: one dataset, or several with weights; or, for objectives on labelled texts and pairs of
    /// texts, files of records.
    pub struct DataConfig in "data" {
        /// The dataset's directory; empty if `mix` lists several. With objective classify or seq2seq, a file or directory of
        /// records: .jsonl, .csv, .tsv or .parquet. With dpo, orpo, simpo, kto or grpo, such records too. With next_token, a
        /// decoder also learns the answers of conversations in such a file.
        pub dataset: PathBuf = PathBuf::new();
        /// Records to evaluate on; by default a tenth of the others is held out.
        #[serde(skip_serializing_if = "is_empty")]
        pub validation: PathBuf = PathBuf::new();
        /// The tokenizer of records where no model to start from has one: a directory with a tokenizer.json, the file, or a built-in tokenizer's name.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub tokenizer: String = String::new();
        /// One of several datasets that are mixed.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub mix: Vec<MixedDataset> = Vec::new();
    }
}

/// A dataset of a mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(deny_unknown_fields)]
pub struct MixedDataset {
    /// The dataset's directory.
    pub dataset: PathBuf,
    /// Weight of the dataset: it provides weight / (sum of all weights) of the sequences.
    pub weight: f64,
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

impl DataConfig {
    /// A configuration with a single dataset.
    pub fn of(dataset: impl Into<PathBuf>) -> Self {
        Self {
            dataset: dataset.into(),
            ..Self::default()
        }
    }

    /// Returns true if no dataset is set.
    pub fn is_empty(&self) -> bool {
        self.dataset.as_os_str().is_empty() && self.mix.is_empty()
    }

    /// Returns true if the data is a file of records, or a pattern for such files, rather than datasets of tokens. A folder is
    /// a dataset, unless the objective reads records.
    pub fn holds_records(&self) -> bool {
        let path = &self.dataset;
        let is_file = path.is_file() && !path.ends_with(MANIFEST_FILE);
        let is_pattern = || !path.exists() && path.to_string_lossy().contains(['*', '?']);
        self.mix.is_empty() && Format::of_name(path).has_records() && (is_file || is_pattern())
    }

    /// The directories of the datasets, or the files of records.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        match self.mix.is_empty() {
            true => vec![self.dataset.clone()],
            false => self.mix.iter().map(|mixed| mixed.dataset.clone()).collect(),
        }
    }

    /// Every dataset with its weight.
    ///
    /// # Errors
    /// Both `dataset` and `mix` are set, or an entry of `mix` has no directory or a weight that is not above
    /// 0 and finite.
    pub fn datasets(&self) -> Result<Vec<(&Path, f64)>, TrainError> {
        let wrong = |field, value: String, rule: &str| TrainError::Setting {
            table: "data",
            field,
            value,
            rule: rule.to_owned(),
        };
        let dataset = self.dataset.as_path();
        if self.mix.is_empty() {
            return Ok(vec![(dataset, 1.0)]);
        }
        if !dataset.as_os_str().is_empty() {
            let rule = "must be empty where data.mix names datasets";
            return Err(wrong("dataset", dataset.display().to_string(), rule));
        }
        let mut datasets = Vec::new();
        for MixedDataset { dataset, weight } in &self.mix {
            if dataset.as_os_str().is_empty() {
                let rule = "must be a dataset's directory";
                return Err(wrong("mix.dataset", "\"\"".to_owned(), rule));
            }
            if !(weight.is_finite() && *weight > 0.0) {
                let value = format!("{weight} of {}", dataset.display());
                return Err(wrong("mix.weight", value, "must be above 0 and finite"));
            }
            if !is_in_f32(*weight) {
                let value = format!("{weight} of {}", dataset.display());
                return Err(wrong("mix.weight", value, F32_RULE));
            }
            datasets.push((dataset.as_path(), *weight));
        }
        Ok(datasets)
    }

    /// The weight of every dataset.
    ///
    /// # Errors
    /// See [`DataConfig::datasets`].
    pub(crate) fn weights(&self) -> Result<Vec<f64>, TrainError> {
        let datasets = self.datasets()?.into_iter();
        Ok(datasets.map(|(_, weight)| weight).collect())
    }
}

impl RunConfig {
    /// Checks the training settings, also those that depend on the data.
    ///
    /// # Errors
    /// Returns the first violated rule, with its field and value.
    pub fn check(&self) -> Result<(), TrainError> {
        self.train.check()?;
        self.train.check_mix(&self.data)
    }

    /// Returns true if the data is records instead of datasets of tokens: those of the objective, or conversations for a
    /// decoder.
    pub fn reads_records(&self) -> bool {
        self.train.objective.reads_records() || self.reads_conversations()
    }

    /// Returns true if a decoder learns to predict the answers of conversations in a file of records.
    pub fn reads_conversations(&self) -> bool {
        let is_next_token = matches!(self.train.objective, ObjectiveConfig::NextToken(_));
        is_next_token && self.model.architecture.is_decoder() && self.data.holds_records()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(dataset: &str, weights: &[(&str, f64)]) -> DataConfig {
        let mixed = |&(dataset, weight): &(&str, f64)| MixedDataset {
            dataset: dataset.into(),
            weight,
        };
        DataConfig {
            dataset: dataset.into(),
            mix: weights.iter().map(mixed).collect(),
            ..DataConfig::default()
        }
    }

    #[test]
    fn data_is_one_dataset_or_a_mix() {
        assert!(DataConfig::default().is_empty());
        let one = DataConfig::of("a");
        assert_eq!(one.datasets().unwrap(), [(Path::new("a"), 1.0)]);
        let several = mix("", &[("a", 0.7), ("b", 3.0)]);
        assert!(!several.is_empty());
        let expected = [(Path::new("a"), 0.7), (Path::new("b"), 3.0)];
        assert_eq!(several.datasets().unwrap(), expected);
    }

    #[test]
    fn files_of_records_are_no_datasets() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["talks.jsonl", "dataset.json", "notes.txt"] {
            std::fs::write(path(name), "{}").unwrap();
        }
        let holds_records = |path: PathBuf| DataConfig::of(path).holds_records();
        assert!(holds_records(path("talks.jsonl")) && holds_records(path("*.parquet")));
        for other in ["dataset.json", "notes.txt", "", "missing.jsonl"] {
            assert!(!holds_records(path(other)), "{other}");
        }
    }

    #[test]
    fn invalid_mixes_are_rejected() {
        let message = |config: DataConfig| config.datasets().unwrap_err().to_string();
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let expected = format!("data.mix.weight = {weight} of b: must be above 0 and finite");
            assert_eq!(message(mix("", &[("a", 1.0), ("b", weight)])), expected);
        }
        let expected = "data.dataset = c: must be empty where data.mix names datasets";
        assert_eq!(message(mix("c", &[("a", 1.0)])), expected);
        let expected = "data.mix.dataset = \"\": must be a dataset's directory";
        assert_eq!(message(mix("", &[("", 1.0)])), expected);
    }
}
