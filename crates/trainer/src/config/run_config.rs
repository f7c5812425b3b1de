//! Layered run configuration: a TOML file overrides a preset, and `--set KEY=VALUE` overrides both.

use std::path::Path;

use emberlm_system::read;
use toml::{Table, Value};

use crate::RunConfig;
use crate::config::{legacy, suggested_in, suggested_value};

mod commented;
mod layer;
mod reason;

use layer::Entry;

pub use crate::error::RunConfigError;
pub use commented::to_toml;
pub use layer::{setting_value, single_keys};
use reason::in_words;
pub use reason::toml_reason;

/// Merges the layers: `base`, the TOML file over it, and the settings (`KEY=VALUE`) over both. All settings are one layer, so
/// their order does not matter, and a file with the same settings is the same layer. This checks names and types only;
/// [`crate::TrainConfig::check`] and the model's configuration check the values.
///
/// A layer that sets `model.family` and all sizes without a default describes a complete model: sizes that it omits are derived
/// from the sizes that it sets, not copied from `base`.
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
        config = with_file(&table, file)?;
        table = written(&config)?;
    }
    let entries = layer::entries(settings)?;
    if entries.is_empty() {
        return Ok(config);
    }
    with_layer(&table, layer::of(&entries)).map_err(|reason| blamed(&table, &entries, reason))
}

/// The configuration with a TOML file over it.
fn with_file(table: &Table, file: &Path) -> Result<RunConfig, RunConfigError> {
    let path = || file.to_owned();
    let text = read::read_argument(file).map_err(|source| RunConfigError::Read {
        path: path(),
        source,
    })?;
    let mut over: Table = toml::from_str(&text).map_err(|error| RunConfigError::NotToml {
        path: path(),
        reason: toml_reason(&error, &text),
    })?;
    layer::upgrade(&mut over);
    let unknown = suggested_in(&over);
    with_layer(table, over).map_err(|reason| RunConfigError::File {
        path: path(),
        suggestion: suggested_value(&reason).or(unknown),
        reason,
    })
}

/// The error of a layer of settings, with the setting that causes it: the last one without which the others are valid, or the
/// first one with which those before it are not.
fn blamed(table: &Table, entries: &[Entry<'_>], reason: String) -> RunConfigError {
    let without = |left_out: usize| {
        let others = entries.iter().enumerate();
        let others = others.filter(|(at, _)| *at != left_out);
        with_layer(table, layer::of(others.map(|(_, entry)| entry)))
    };
    let cause = (0..entries.len()).rev().find(|&at| without(at).is_ok());
    let of_beginning = || {
        (0..entries.len()).find_map(|at| {
            let error = with_layer(table, layer::of(&entries[..=at])).err()?;
            Some((at, error))
        })
    };
    let (at, reason) = match cause {
        Some(at) => (at, reason),
        None => of_beginning().unwrap_or((0, reason)),
    };
    let entry = &entries[at];
    RunConfigError::Setting {
        setting: entry.setting.to_owned(),
        suggestion: suggested_value(&reason).or_else(|| suggested_in(&entry.table)),
        reason,
    }
}

/// A configuration with all keys converted to the current version before layers are merged. Otherwise an old key of one
/// layer could override the new key of the next.
fn written(config: &RunConfig) -> Result<Table, RunConfigError> {
    Table::try_from(config).map_err(unwritable)
}

/// Applies a layer in the current form to a complete configuration.
fn with_layer(table: &Table, over: Table) -> Result<RunConfig, String> {
    let mut table = table.clone();
    if layer::is_whole_model(&over) {
        layer::unset_optional_sizes(&mut table);
    }
    layer::merge("", &mut table, over);
    typed(table)
}

/// Converts the table into a configuration. The error is one line.
fn typed(table: Table) -> Result<RunConfig, String> {
    // The model is converted by way of JSON, in which these numbers are null.
    let model = table.get("model").and_then(Value::as_table);
    if let Some((key, value)) = model.and_then(not_finite) {
        return Err(format!("model.{key} = {value}: must be finite"));
    }
    let config = table.try_into();
    config.map_err(|error: toml::de::Error| in_words(&error.to_string()))
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
