//! Layered run configuration: a TOML file overrides a preset, and `--set KEY=VALUE` overrides both.

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::RunConfig;
use crate::config::{MODEL_TABLES, field_docs, legacy, suggested_in, suggested_value};

mod commented;
mod reason;

pub use commented::to_toml;
pub use reason::toml_reason;

/// An error in reading or writing a run's configuration.
#[derive(Debug, thiserror::Error)]
pub enum RunConfigError {
    /// No preset has this name.
    #[error("unknown preset `{name}`")]
    UnknownPreset {
        /// The name.
        name: String,
    },
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file is not valid TOML.
    #[error("{path} is not valid TOML: {reason}")]
    NotToml {
        /// The file.
        path: PathBuf,
        /// The line and the violated rule.
        reason: String,
    },
    /// A setting does not have the form `KEY=VALUE`.
    #[error("{setting}: no `=` in it")]
    NoEquals {
        /// The setting.
        setting: String,
    },
    /// An unknown key or a value of the wrong type in the file.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// The key and the problem.
        reason: String,
        /// The most similar known key or value.
        suggestion: Option<String>,
    },
    /// An unknown key or a value of the wrong type in a setting.
    #[error("{setting}: {reason}")]
    Setting {
        /// The setting.
        setting: String,
        /// The key and the problem.
        reason: String,
        /// The most similar known key or value.
        suggestion: Option<String>,
    },
    /// The configuration cannot be written as TOML.
    #[error("the configuration cannot be written as TOML: {reason}")]
    Write {
        /// The serializer's message.
        reason: String,
    },
}

/// Merges the layers: `base`, the TOML file over it, and the settings (`KEY=VALUE`) over both. This checks names and
/// types only; [`crate::TrainConfig::check`] and the model's configuration check the values.
///
/// A file that sets `model.family` describes a complete model: sizes that it omits are derived from the sizes that it
/// sets, not copied from `base`.
///
/// # Errors
/// The file cannot be read or is not valid TOML, a key is unknown, or a value has the wrong type.
pub fn layered(
    base: RunConfig,
    file: Option<&Path>,
    settings: &[String],
) -> Result<RunConfig, RunConfigError> {
    let mut table = written(&base)?;
    let mut config = base;
    if let Some(file) = file {
        let path = || file.to_owned();
        let text = fs::read_to_string(file).map_err(|source| RunConfigError::Read {
            path: path(),
            source,
        })?;
        let over: Table = toml::from_str(&text).map_err(|error| RunConfigError::NotToml {
            path: path(),
            reason: toml_reason(&error, &text),
        })?;
        let names_family = |model: &Value| model.get("family").is_some();
        if over.get("model").is_some_and(names_family) {
            unset_optional_sizes(&mut table);
        }
        let unknown = put_over(&mut table, over);
        config = typed(&table).map_err(|reason| RunConfigError::File {
            path: path(),
            suggestion: suggested_value(&reason).or(unknown),
            reason,
        })?;
        table = written(&config)?;
    }
    for setting in kinds_first(settings) {
        let unknown = put_over(&mut table, parse(setting)?);
        config = typed(&table).map_err(|reason| RunConfigError::Setting {
            setting: setting.clone(),
            suggestion: suggested_value(&reason).or(unknown),
            reason,
        })?;
        table = written(&config)?;
    }
    Ok(config)
}

/// The settings in their order, but those that choose a variant (`….kind`) before those of its fields, which no other
/// variant may have.
fn kinds_first(settings: &[String]) -> impl Iterator<Item = &String> {
    let is_kind = |setting: &&String| {
        let key = setting.split_once('=').map_or("", |(key, _)| key);
        key.trim().ends_with(".kind")
    };
    let kinds = settings.iter().filter(is_kind);
    kinds.chain(settings.iter().filter(move |setting| !is_kind(setting)))
}

/// Optional keys of the model by their table: absent if they are derived from other keys or unused.
const OPTIONAL_KEYS: [(&[&str], &[&str]); 6] = [
    (
        &["model"],
        &[
            "vocab_size",
            "kv_heads",
            "head_dim",
            "experts",
            "qk_norm_span",
            "embedding_scale",
            "residual_scale",
            "layer_positions",
        ],
    ),
    (&["model", "experts"], &["width", "shared_width"]),
    (&["model", "feed_forward"], &["width", "expansion"]),
    (&["model", "position"], &["dims"]),
    (
        &["model", "attention"],
        &["window", "scale", "soft_cap", "features"],
    ),
    (&["model", "head"], &["scale", "soft_cap"]),
];

fn unset_optional_sizes(table: &mut Table) {
    for (path, keys) in OPTIONAL_KEYS {
        let inner = path.iter().try_fold(&mut *table, |table, &name| {
            table.get_mut(name).and_then(Value::as_table_mut)
        });
        if let Some(inner) = inner {
            inner.retain(|key, _| !keys.contains(&key));
        }
    }
}

/// A configuration with all keys converted to the current version before layers are merged. Otherwise an old key of one
/// layer could override the new key of the next.
fn written(config: &RunConfig) -> Result<Table, RunConfigError> {
    Table::try_from(config).map_err(unwritable)
}

/// Parses `KEY=VALUE` into the table that a file with this setting would have. A value that is not TOML is a string.
fn parse(setting: &str) -> Result<Table, RunConfigError> {
    let Some((key, text)) = setting.split_once('=') else {
        return Err(RunConfigError::NoEquals {
            setting: setting.to_owned(),
        });
    };
    let value = toml::from_str::<Table>(&format!("value = {}", text.trim()))
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()));
    let mut keys = key.trim().rsplit('.');
    let last = keys.next().unwrap_or_default();
    let innermost = Table::from_iter([(last.to_owned(), value)]);
    Ok(keys.fold(innermost, |inner, key| {
        Table::from_iter([(key.to_owned(), Value::Table(inner))])
    }))
}

/// Applies a layer to a complete configuration and moves keys of earlier versions to their current place. Returns the
/// known key that is most similar to an unknown key of the layer.
fn put_over(table: &mut Table, mut over: Table) -> Option<String> {
    legacy::upgrade(&mut over);
    let suggestion = suggested_in(&over);
    // The table of another model replaces the model.
    if MODEL_TABLES
        .iter()
        .any(|name| over.contains_key(*name) && !table.contains_key(*name))
    {
        MODEL_TABLES
            .iter()
            .for_each(|name| drop(table.remove(*name)));
    }
    merge("", table, over);
    suggestion
}

/// Applies `over` to the table `name`. A different `kind` replaces the table, except for the settings that both kinds
/// have.
fn merge(name: &str, table: &mut Table, over: Table) {
    let kind = changed_kind(table, &over);
    if let Some(kind) = kind {
        table.retain(|key, _| field_docs(name, Some(kind), key).is_some());
    }
    for (key, value) in over {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => {
                let inner = match name {
                    "" => key,
                    name => format!("{name}.{key}"),
                };
                merge(&inner, below, above);
            }
            // An integer is accepted for a float.
            (Some(below @ Value::Float(_)), Value::Integer(number)) => {
                *below = Value::Float(number as f64);
            }
            // An integer may be written as 1e4, and a float without a decimal point.
            (Some(Value::Integer(_)) | None, Value::Float(number)) if is_whole(number) => {
                table.insert(key, Value::Integer(number as i64));
            }
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

/// Returns true if a number is an integer that f64 represents exactly.
fn is_whole(number: f64) -> bool {
    const EXACT: f64 = (1u64 << 53) as f64;
    number.fract() == 0.0 && number.abs() <= EXACT
}

/// The kind that `over` selects, if it differs from the kind of `table`.
fn changed_kind<'a>(table: &Table, over: &'a Table) -> Option<&'a str> {
    let kind = over.get("kind")?;
    kind.as_str().filter(|_| table.get("kind") != Some(kind))
}

/// Converts the table into a configuration. The error is one line.
fn typed(table: &Table) -> Result<RunConfig, String> {
    // Tables of models are converted by way of JSON, in which these numbers are null.
    for name in MODEL_TABLES {
        let model = table.get(name).and_then(Value::as_table);
        if let Some((key, value)) = model.and_then(not_finite) {
            return Err(format!("{name}.{key} = {value}: must be finite"));
        }
    }
    let config = table.clone().try_into();
    config.map_err(|error: toml::de::Error| error.to_string().trim_end().replace('\n', " "))
}

/// The dotted key and the value of the first number that is NaN or infinite.
fn not_finite(table: &Table) -> Option<(String, f64)> {
    table.iter().find_map(|(key, value)| match value {
        Value::Float(value) if !value.is_finite() => Some((key.clone(), *value)),
        Value::Table(inner) => {
            let (below, value) = not_finite(inner)?;
            Some((format!("{key}.{below}"), value))
        }
        _ => None,
    })
}

fn unwritable(error: toml::ser::Error) -> RunConfigError {
    RunConfigError::Write {
        reason: error.to_string(),
    }
}

/// Reads a run's `config.toml`, including files of earlier versions.
///
/// # Errors
/// The file is not valid TOML, or not a run's configuration.
pub fn from_toml(text: &str) -> Result<RunConfig, toml::de::Error> {
    let mut table: Table = toml::from_str(text)?;
    legacy::upgrade(&mut table);
    table.try_into()
}

#[cfg(test)]
mod tests;
