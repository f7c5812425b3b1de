//! The keys of a task file and of the files that it includes, and those of the members of a group.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

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

/// The keys of task files that are read.
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

/// The keys of a file and those that it includes, or of a mapping within a file.
#[derive(Clone, Debug)]
pub(in crate::evaluate::tasks) struct Keys {
    /// The place of a key that is missing.
    place: Place,
    settings: Settings,
}

/// Values of keys.
pub(super) type Settings = BTreeMap<String, Setting>;

/// The value of a key.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    value: Value,
    place: Place,
}

/// The place of a key.
#[derive(Clone, Debug)]
struct Place {
    path: PathBuf,
    line: usize,
    /// The member of a group that has the key, unless it is one of the file's own keys.
    member: Option<String>,
}

impl Place {
    fn refuse(&self, reason: String) -> TaskError {
        TaskError::line(&self.path, self.line)(match &self.member {
            Some(member) => format!("the member {member}: {reason}"),
            None => reason,
        })
    }
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
        let place = |line: usize| Place {
            path: path.to_owned(),
            line,
            member: None,
        };
        let place_of = |name: &str| place(read.lines.get(name).copied().unwrap_or(1));
        let mut settings = Settings::new();
        if let Some(included) = read.fields.get("include") {
            let refuse = |reason: String| place_of("include").refuse(reason);
            let included = included
                .as_str()
                .ok_or_else(|| refuse(format!("`include` must be a file (got {included})")))?;
            if includes == MAX_INCLUDES {
                return Err(refuse(format!(
                    "more than {MAX_INCLUDES} files include each other"
                )));
            }
            settings = Self::read(&beside(path, included), includes + 1)?.settings;
        }
        for (name, value) in read.fields {
            if name != "include" {
                let place = place_of(&name);
                settings.insert(name, Setting { value, place });
            }
        }
        Ok(Self {
            place: place(1),
            settings,
        })
    }

    /// The keys of a mapping in the list `task` of this group, for the member that errors name.
    pub(super) fn member(&self, member: &str, fields: Map<String, Value>) -> Self {
        let place = Place {
            member: Some(member.to_owned()),
            ..self.place("task").clone()
        };
        let setting = |(name, value)| {
            let place = place.clone();
            (name, Setting { value, place })
        };
        Self {
            settings: fields.into_iter().map(setting).collect(),
            place,
        }
    }

    /// The values of the keys other than `names`.
    pub(super) fn without(mut self, names: &[&str]) -> Settings {
        self.settings
            .retain(|name, _| !names.contains(&name.as_str()));
        self.settings
    }

    /// Replaces the values of keys.
    pub(super) fn overlaid(mut self, settings: &Settings) -> Self {
        self.settings.extend(settings.clone());
        self
    }

    /// Adds the values of keys that are missing.
    pub(super) fn with_defaults(mut self, settings: &Settings) -> Self {
        for (name, setting) in settings {
            let entry = self.settings.entry(name.clone());
            entry.or_insert_with(|| setting.clone());
        }
        self
    }

    /// Replaces the value of `task`.
    pub(super) fn renamed(mut self, name: &str) -> Self {
        let setting = Setting {
            value: Value::from(name),
            place: self.place("task").clone(),
        };
        self.settings.insert("task".to_owned(), setting);
        self
    }

    /// Returns true if both have one file and equal values.
    pub(super) fn same_as(&self, other: &Self) -> bool {
        fn values(keys: &Keys) -> impl Iterator<Item = (&String, &Value)> {
            keys.settings.iter().map(|(name, it)| (name, &it.value))
        }
        self.place.path == other.place.path && values(self).eq(values(other))
    }

    /// The place of a key.
    fn place(&self, key: &str) -> &Place {
        self.settings.get(key).map_or(&self.place, |it| &it.place)
    }

    /// The error for the value of a key.
    pub(in crate::evaluate::tasks) fn refuse(&self, key: &str, reason: String) -> TaskError {
        self.place(key).refuse(reason)
    }

    /// Rejects unknown keys, and those that are not supported.
    pub(super) fn check_names(&self) -> Result<(), TaskError> {
        check_names(&self.settings)?;
        match self.settings.get("task") {
            Some(Setting { value, place }) if value.is_array() => Err(place
                .refuse("`task` must be a name, unless `group` names a group of tasks".to_owned())),
            _ => Ok(()),
        }
    }

    /// The value of a key; `None` if it is missing or null.
    pub(super) fn take<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, TaskError> {
        match self.settings.get(key).map(|it| &it.value) {
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

    /// The name of the task: `task`, or that of the file.
    pub(super) fn task_name(&self) -> Result<String, TaskError> {
        let stem = || {
            self.path()
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
        };
        Ok(self.take("task")?.unwrap_or_else(|| stem().into_owned()))
    }

    /// The file that describes the task or the group.
    pub(super) fn path(&self) -> &Path {
        &self.place.path
    }

    /// The file that has a key.
    pub(super) fn file_of(&self, key: &str) -> &Path {
        &self.place(key).path
    }

    /// The value of a key that must be given.
    pub(super) fn required(&self, key: &str) -> Result<Value, TaskError> {
        self.take(key)?
            .ok_or_else(|| self.refuse(key, format!("`{key}` is missing")))
    }
}

/// Rejects keys that task files do not have, and those that are not supported.
pub(super) fn check_names(settings: &Settings) -> Result<(), TaskError> {
    for (name, Setting { value, place }) in settings {
        let name = name.as_str();
        if REFUSED.contains(&name) && !value.is_null() {
            return Err(place.refuse(format!("`{name}` is not supported")));
        }
        if !KNOWN.contains(&name) && !IGNORED.contains(&name) && !REFUSED.contains(&name) {
            return Err(place.refuse(format!("`{name}` is not a known key")));
        }
    }
    Ok(())
}

/// A path that is relative to the folder of `file`.
pub(super) fn beside(file: &Path, path: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}
