//! The keys of a task file and of the files that it includes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::evaluate::tasks::{TaskError, yaml};

/// Most `include` of files within each other.
const MAX_INCLUDES: usize = 16;
/// Maximum size of a task file in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Keys without an effect on scores here.
const IGNORED: [&str; 10] = [
    "dataset_name",
    "doc_to_decontamination_query",
    "group",
    "group_alias",
    "metadata",
    "should_decontaminate",
    "tag",
    "task_alias",
    "unsafe_code",
    "version",
];

/// Keys that need Python, or that are not implemented.
const REFUSED: [&str; 8] = [
    "class",
    "custom_dataset",
    "doc_to_audio",
    "doc_to_image",
    "gen_prefix",
    "process_docs",
    "process_results",
    "use_prompt",
];

/// The keys of a file and those that it includes.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    path: PathBuf,
    values: BTreeMap<String, Value>,
    /// The file and the line of each key.
    places: BTreeMap<String, (PathBuf, usize)>,
}

impl Keys {
    /// Reads a file, and before it the files that it includes.
    pub(super) fn read(path: &Path, includes: usize) -> Result<Self, TaskError> {
        let failed = |source| TaskError::Read {
            path: path.to_owned(),
            source,
        };
        let size = fs::metadata(path).map_err(failed)?.len();
        if size > MAX_BYTES {
            let reason = format!("it has {size} bytes, and a task file at most {MAX_BYTES}");
            return Err(TaskError::line(path, 1)(reason));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        let read =
            yaml::read(&text).map_err(|(line, reason)| TaskError::line(path, line)(reason))?;
        let mut keys = Self {
            path: path.to_owned(),
            values: BTreeMap::new(),
            places: BTreeMap::new(),
        };
        let place = |name: &str| (path.to_owned(), read.lines.get(name).copied().unwrap_or(1));
        if let Some(included) = read.fields.get("include") {
            let line = place("include").1;
            let included = included.as_str().ok_or_else(|| {
                TaskError::line(path, line)(format!("`include` must be a file (got {included})"))
            })?;
            if includes == MAX_INCLUDES {
                return Err(TaskError::line(path, line)(format!(
                    "more than {MAX_INCLUDES} files include each other"
                )));
            }
            keys = Self::read(&beside(path, included), includes + 1)?;
            keys.path = path.to_owned();
        }
        for (name, value) in read.fields {
            if name != "include" {
                keys.places.insert(name.clone(), place(&name));
                keys.values.insert(name, value);
            }
        }
        Ok(keys)
    }

    /// The error for the value of a key.
    pub(super) fn refuse(&self, key: &str, reason: String) -> TaskError {
        match self.places.get(key) {
            Some((path, line)) => TaskError::line(path, *line)(reason),
            None => TaskError::line(&self.path, 1)(reason),
        }
    }

    /// Rejects unknown keys, and those that are not supported.
    pub(super) fn check_names(&self) -> Result<(), TaskError> {
        const KNOWN: [&str; 20] = [
            "task",
            "output_type",
            "fewshot_delimiter",
            "target_delimiter",
            "fewshot_split",
            "dataset_path",
            "dataset_kwargs",
            "doc_to_text",
            "doc_to_target",
            "doc_to_choice",
            "repeats",
            "fewshot_config",
            "generation_kwargs",
            "test_split",
            "training_split",
            "validation_split",
            "description",
            "num_fewshot",
            "metric_list",
            "filter_list",
        ];
        for (name, value) in &self.values {
            let name = name.as_str();
            if name == "task" && value.is_array() {
                let reason = "`task` must be a name, unless `group` names a group of tasks";
                return Err(self.refuse(name, reason.to_owned()));
            }
            if REFUSED.contains(&name) && !value.is_null() {
                return Err(self.refuse(name, format!("`{name}` is not supported")));
            }
            if !KNOWN.contains(&name) && !IGNORED.contains(&name) && !REFUSED.contains(&name) {
                return Err(self.refuse(name, format!("`{name}` is not a known key")));
            }
        }
        Ok(())
    }

    /// The value of a key; `None` if it is missing or null.
    pub(super) fn take<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, TaskError> {
        match self.values.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => self.read_value(key, value).map(Some),
        }
    }

    /// Converts the value of a key.
    pub(super) fn read_value<T: DeserializeOwned>(
        &self,
        key: &str,
        value: &Value,
    ) -> Result<T, TaskError> {
        serde_json::from_value(value.clone())
            .map_err(|error| self.refuse(key, format!("`{key}` is {value}: {error}")))
    }

    /// The names of the keys.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// The name of the task in the file at `path`.
    pub(super) fn task_name(&self, path: &Path) -> Result<String, TaskError> {
        let stem = || path.file_stem().unwrap_or_default().to_string_lossy();
        Ok(self.take("task")?.unwrap_or_else(|| stem().into_owned()))
    }

    /// The file that has a key.
    pub(super) fn file_of(&self, key: &str) -> &Path {
        self.places.get(key).map_or(&self.path, |(path, _)| path)
    }

    /// The value of a key that must be given.
    pub(super) fn required(&self, key: &str) -> Result<Value, TaskError> {
        self.take(key)?
            .ok_or_else(|| self.refuse(key, format!("`{key}` is missing")))
    }
}

/// A path that is relative to the folder of `file`.
pub(super) fn beside(file: &Path, path: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}
