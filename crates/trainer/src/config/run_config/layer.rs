//! Layers over a configuration: a TOML file, or all settings of a command line together.
//!
//! Settings in any order are the same layer. A setting of a whole table (`model.norm={ kind = "rms" }`) or by a name of an
//! earlier version comes before the settings of single keys, and the last of several settings of one key holds.

use emberlm_model::config::choices;
use toml::{Table, Value};

use super::RunConfigError;
use crate::config::{field_docs, kind_docs, legacy};

/// One `KEY=VALUE` as the table that a file with only this setting would have.
pub(super) struct Entry<'a> {
    /// The setting as written.
    pub setting: &'a str,
    /// The setting's table, in the current form.
    pub table: Table,
    depth: usize,
    is_kind: bool,
}

/// Parses settings and sorts them by the order in which they are applied: the whole before its parts, and variants before
/// their settings.
///
/// # Errors
/// A setting does not have the form `KEY=VALUE`.
pub(super) fn entries(settings: &[String]) -> Result<Vec<Entry<'_>>, RunConfigError> {
    let parsed = settings.iter().map(|setting| entry(setting));
    let mut entries = parsed.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(|entry| (entry.depth, !entry.is_kind));
    Ok(entries)
}

fn entry(setting: &str) -> Result<Entry<'_>, RunConfigError> {
    let Some((key, _)) = setting.split_once('=') else {
        return Err(RunConfigError::NoEquals {
            setting: setting.to_owned(),
        });
    };
    let key = key.trim();
    let mut table = parse(setting, key);
    upgrade(&mut table);
    Ok(Entry {
        setting,
        table,
        depth: key.split('.').count(),
        is_kind: key.ends_with(".kind"),
    })
}

/// The layer of some settings.
pub(super) fn of<'a>(entries: impl IntoIterator<Item = &'a Entry<'a>>) -> Table {
    let mut layer = Table::new();
    for entry in entries {
        overlay(&mut layer, entry.table.clone());
    }
    // Keys of earlier versions give way to the current ones.
    legacy::upgrade(&mut layer);
    layer
}

/// The table of `key=…`.
fn parse(setting: &str, key: &str) -> Table {
    let text = setting.split_once('=').map_or("", |(_, text)| text);
    nested(key, setting_value(text))
}

/// The value of a setting on a command line. One that is not TOML is a string.
pub fn setting_value(text: &str) -> Value {
    toml::from_str::<Table>(&format!("value = {}", text.trim()))
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The table in which `key`, a path such as `train.steps`, has the value. A path deeper than any setting is a single key:
/// nested tables are processed by recursion.
fn nested(key: &str, value: Value) -> Table {
    const DEEPEST: usize = 16;
    if key.split('.').count() > DEEPEST {
        return Table::from_iter([(key.to_owned(), value)]);
    }
    let mut keys = key.rsplit('.');
    let last = keys.next().unwrap_or_default();
    let innermost = Table::from_iter([(last.to_owned(), value)]);
    keys.fold(innermost, |inner, key| {
        Table::from_iter([(key.to_owned(), Value::Table(inner))])
    })
}

/// A setting as settings of single keys in the current form. Of lists of them, the last value of a key holds, whichever form the
/// settings had.
pub fn single_keys(key: &str, value: Value) -> Vec<(String, Value)> {
    let mut table = nested(key, value);
    upgrade(&mut table);
    let mut found = Vec::new();
    flatten("", table, &mut found);
    found
}

fn flatten(within: &str, table: Table, found: &mut Vec<(String, Value)>) {
    for (key, value) in table {
        let path = match within {
            "" => key,
            within => format!("{within}.{key}"),
        };
        match value {
            Value::Table(inner) if !inner.is_empty() => flatten(&path, inner, found),
            value => found.push((path, value)),
        }
    }
}

fn overlay(layer: &mut Table, over: Table) {
    for (key, value) in over {
        match (layer.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => overlay(below, above),
            (_, value) => {
                layer.insert(key, value);
            }
        }
    }
}

/// Rewrites a layer in the current form: keys of earlier versions, and short forms of tables.
pub(super) fn upgrade(layer: &mut Table) {
    legacy::upgrade(layer);
    expand("", layer);
}

/// Writes out the short forms of tables: the kind of a choice (`norm = "rms"`), one value for all biases (`bias = true`), the
/// length of a window (`attention.window = 8`), and the number of experts (`experts = 8`).
fn expand(within: &str, table: &mut Table) {
    for (key, value) in table {
        let path = match within {
            "" => key.clone(),
            within => format!("{within}.{key}"),
        };
        let short = match value {
            Value::Table(inner) => {
                expand(&path, inner);
                continue;
            }
            Value::String(kind) if has_short_kind(&path) => {
                Table::from_iter([("kind".to_owned(), Value::String(kind.clone()))])
            }
            Value::Boolean(_) if path == "model.bias" => {
                let layers = ["qkv", "attention_out", "feed_forward"];
                Table::from_iter(layers.map(|layer| (layer.to_owned(), value.clone())))
            }
            Value::Integer(1..) => match &path[..] {
                "model.attention.window" => {
                    Table::from_iter([("tokens".to_owned(), value.clone())])
                }
                "model.experts" => Table::from_iter([("count".to_owned(), value.clone())]),
                _ => continue,
            },
            _ => continue,
        };
        *value = Value::Table(short);
    }
}

/// Returns true if the table at `path` can be written as its kind. That of `layer_positions` cannot: its kind "none" could be
/// read as no such table.
fn has_short_kind(path: &str) -> bool {
    kind_docs(path).is_some_and(|_| path != "train.objective.rewards")
        || component(path).is_some_and(|component| {
            component != "layer_positions" && choices::kinds(component).next().is_some()
        })
}

/// The last key of a table within a model, such as `scaling`.
fn component(path: &str) -> Option<&str> {
    let (model, inner) = path.split_once('.')?;
    let last = inner.rsplit('.').next();
    last.filter(|_| model == "model")
}

/// Returns true if the table at `path` has the setting `key` with `kind`.
fn has_setting(path: &str, kind: &str, key: &str) -> bool {
    match component(path) {
        Some(component) => choices::settings(component, kind).contains(&key),
        None => field_docs(path, Some(kind), key).is_some(),
    }
}

/// Applies a layer in the current form to the table at `path`. A different `kind` replaces the table, except for the settings
/// that both kinds have.
pub(super) fn merge(path: &str, table: &mut Table, over: Table) {
    if let Some(kind) = changed_kind(table, &over) {
        table.retain(|key, _| has_setting(path, kind, key));
    }
    for (key, value) in over {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => {
                let inner = match path {
                    "" => key,
                    path => format!("{path}.{key}"),
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

/// Keys of the model without which a layer does not describe a complete model.
const SIZES: [&str; 5] = ["family", "seq_len", "d_model", "n_layers", "heads"];

/// Returns true if a layer describes a complete model, whose other sizes are derived from its own.
pub(super) fn is_whole_model(layer: &Table) -> bool {
    let model = layer.get("model").and_then(Value::as_table);
    model.is_some_and(|model| SIZES.iter().all(|key| model.contains_key(*key)))
}

/// Optional keys of the model by their table: absent if they are derived from other keys or unused.
const OPTIONAL_KEYS: [(&[&str], &[&str]); 8] = [
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
            "residual_mix",
            "value_embeddings",
            "gated_attention",
            "delta_nets",
            "latent_attention",
            "zero_init",
            "layer_positions",
            "architecture",
        ],
    ),
    (
        &["model", "experts"],
        &["width", "shared_width", "groups", "scale"],
    ),
    (
        &["model", "latent_attention"],
        &["query_rank", "rope_dim", "value_dim"],
    ),
    (
        &["model", "delta_nets"],
        &["key_heads", "value_heads", "key_dim", "value_dim"],
    ),
    (&["model", "feed_forward"], &["width", "expansion"]),
    (&["model", "position"], &["dims"]),
    (
        &["model", "attention"],
        &["window", "scale", "soft_cap", "features"],
    ),
    (&["model", "head"], &["scale", "soft_cap"]),
];

/// Removes the model's optional keys.
pub(super) fn unset_optional_sizes(table: &mut Table) {
    for (path, keys) in OPTIONAL_KEYS {
        let inner = path.iter().try_fold(&mut *table, |table, &name| {
            table.get_mut(name).and_then(Value::as_table_mut)
        });
        if let Some(inner) = inner {
            inner.retain(|key, _| !keys.contains(&key));
        }
    }
}
