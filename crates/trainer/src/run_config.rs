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
    for setting in settings {
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
    let config = table.clone().try_into();
    config.map_err(|error: toml::de::Error| error.to_string().trim_end().replace('\n', " "))
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
mod tests {
    use emberlm_trainer::config::{ConstantConfig, LionConfig, OptimizerConfig, ScheduleConfig};

    use super::*;
    use crate::presets;

    fn set(settings: &[&str]) -> Result<RunConfig, String> {
        let settings: Vec<String> = settings.iter().map(|&s| s.to_owned()).collect();
        let base = presets::run("char-nano").map_err(|error| error.to_string())?;
        layered(base, None, &settings).map_err(|error| error.to_string())
    }

    fn decoder(config: &RunConfig) -> &emberlm_model::ModelConfig {
        config.model.decoder().expect("a decoder")
    }

    #[test]
    fn settings_reach_every_depth() {
        let config = set(&[
            "model.d_model=256",
            "train.schedule.learning_rate=1",
            "model.norm.epsilon=1e-6",
            "data.dataset=my data",
        ])
        .expect("legal");
        assert_eq!(decoder(&config).d_model, 256);
        assert_eq!(config.train.schedule.learning_rate(), 1.0);
        assert_eq!(config.data.dataset, Path::new("my data"));
        let expected = emberlm_model::config::Norm::Layer {
            bias: false,
            epsilon: 1e-6,
        };
        assert_eq!(decoder(&config).norm, expected);
    }

    #[test]
    fn windows_are_set_by_one_key_or_by_keys_of_earlier_versions() {
        use emberlm_model::config::{AttentionKind, Window};

        let window =
            |settings: &[&str]| match decoder(&set(settings).expect("legal")).attention.clone() {
                AttentionKind::Softmax { window, .. } => window,
                AttentionKind::Linear { .. } => None,
            };
        let expected = Some(Window {
            global_tokens: 2,
            ..Window::new(8)
        });
        let today = [
            "model.attention.window.tokens=8",
            "model.attention.window.global_tokens=2",
        ];
        assert_eq!(window(&today), expected);
        assert_eq!(
            window(&["model.window=8", "model.global_tokens=2"]),
            expected
        );
        assert_eq!(
            window(&["model.window=8", "model.attention.window.tokens=4"]),
            Some(Window::new(4))
        );
        assert_eq!(window(&["model.window=8", "model.window=0"]), None);
        let error = set(&["model.attention.window.global_tokens=2"]).expect_err("no length");
        assert!(error.contains("missing field `tokens`"), "{error}");
    }

    #[test]
    fn a_new_kind_replaces_the_old_one() {
        let config = set(&[r#"model.norm={ kind = "rms", epsilon = 1e-5 }"#]).expect("legal");
        let expected = emberlm_model::config::Norm::Rms { epsilon: 1e-5 };
        assert_eq!(decoder(&config).norm, expected);
        let config = set(&["model.position.kind=none"]).expect("legal");
        assert_eq!(
            decoder(&config).position,
            emberlm_model::config::Position::None
        );
    }

    #[test]
    fn common_settings_survive_a_change_of_kind() {
        let config = set(&[
            "train.optimizer.beta2=0.5",
            "train.optimizer.kind=lion",
            "train.schedule.warmup_steps=7",
            "train.schedule.kind=constant",
            "train.optimizer.weight_decay=1",
        ])
        .expect("legal");
        let expected = OptimizerConfig::Lion(LionConfig {
            beta2: 0.5,
            weight_decay: 1.0,
            ..LionConfig::default()
        });
        assert_eq!(config.train.optimizer, expected);
        let expected = ScheduleConfig::Constant(ConstantConfig {
            learning_rate: 1e-3,
            warmup_steps: 7,
        });
        assert_eq!(config.train.schedule, expected);
        let error = set(&["train.optimizer.momentum=0.9"]).expect_err("of another kind");
        assert!(error.contains("unknown field `momentum`"), "{error}");
    }

    #[test]
    fn settings_by_names_of_earlier_versions() {
        let old = set(&[
            "train.learning_rate=1",
            "train.optimizer=muon",
            "train.momentum=0.9",
            "train.skip_deviations=4",
            "train.eval_interval=7",
            "train.keep_last=2",
            "train.precision=bf16",
        ]);
        let new = set(&[
            "train.schedule.learning_rate=1",
            "train.optimizer={ kind = \"muon\", momentum = 0.9 }",
            "train.skip={ kind = \"outliers\", deviations = 4 }",
            "train.evaluation.interval=7",
            "train.checkpoints.keep_last=2",
            "train.precision.products=bf16",
        ]);
        assert_eq!(old.expect("accepted"), new.expect("legal"));
    }

    #[test]
    fn counts_may_be_written_with_an_exponent() {
        let config = set(&[
            "train.steps=1e4",
            "model.vocab_size=5e2",
            "model.head.soft_cap=3e1",
        ]);
        let config = config.expect("legal");
        assert_eq!(config.train.steps, 10_000);
        assert_eq!(decoder(&config).vocab_size, Some(500));
        assert_eq!(decoder(&config).head.soft_cap, Some(30.0));
    }

    #[test]
    fn errors_suggest_the_nearest_key() {
        let suggested = |setting: &str| {
            let base = presets::run("char-nano").expect("a preset");
            match layered(base, None, &[setting.to_owned()]) {
                Err(RunConfigError::Setting { suggestion, .. }) => suggestion,
                other => panic!("{setting}: {other:?}"),
            }
        };
        for (setting, suggestion) in [
            ("lr=1e-3", "train.schedule.learning_rate"),
            ("model.n_head=4", "model.heads"),
            ("train.optimizer.kind=adam", "adamw"),
        ] {
            assert_eq!(suggested(setting).as_deref(), Some(suggestion), "{setting}");
        }
        assert_eq!(suggested("model.quux=1"), None);
    }

    #[test]
    fn unknown_keys_and_wrong_types_are_rejected_by_name() {
        let error = set(&["model.d_modle=256"]).expect_err("a typing error");
        assert!(error.contains("unknown field `d_modle`"), "{error}");
        let error = set(&["trian.steps=1"]).expect_err("a typing error");
        assert!(error.contains("unknown field `trian`"), "{error}");
        let error = set(&["train.steps=many"]).expect_err("not a number");
        assert!(error.contains("train.steps"), "{error}");
        assert!(set(&["train.steps=1.5"]).is_err());
        assert!(set(&["train.steps"]).is_err());
        assert!(set(&["train.steps=-1"]).is_err());
    }

    #[test]
    fn a_file_of_a_whole_model_takes_no_sizes_from_the_preset_below_it() {
        // `pocket` uses grouped queries. `char-nano`, and the file printed from it, do not.
        let text = to_toml(&set(&[]).expect("a preset")).expect("TOML");
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), text).expect("written");
        let base = presets::run("pocket").expect("a preset");
        let read = layered(base, Some(file.path()), &[]).expect("legal");
        assert_eq!(read, set(&[]).expect("a preset"));
    }

    #[test]
    fn printed_toml_is_commented_and_round_trips() {
        for preset in emberlm_model::families::presets() {
            let config = presets::run(preset.name).expect("a preset");
            let text = to_toml(&config).expect("TOML");
            assert_eq!(toml::from_str::<RunConfig>(&text).expect("TOML"), config);
            for (i, line) in text.lines().enumerate() {
                if let Some((key, _)) = line.split_once(" = ") {
                    let before = text.lines().nth(i - 1).unwrap_or_default();
                    let documented = before.starts_with("# ");
                    let inner = text.lines().take(i).filter(|l| l.starts_with('[')).last();
                    // Keys of one of the model's variants.
                    let nested = inner.is_some_and(|header| header.starts_with("[model."));
                    assert!(documented || nested, "`{key}` has no comment");
                }
            }
        }
    }
}
