//! A run's configuration in layers: a preset, a TOML file over it, `--set KEY=VALUE` over both.

use std::fs;
use std::path::Path;

use documented::DocumentedFields;
use emberlm_model::ModelConfig;
use emberlm_trainer::{DataConfig, Group, Groups, MixedDataset, RunConfig, TrainConfig};
use toml::{Table, Value};

use crate::error::CliError;

/// The layers, merged. Nothing is checked but names and types: the trainer knows the rules.
///
/// # Errors
/// A file that cannot be read or is no TOML, an unknown key, a value of the wrong type.
pub fn layered(
    base: RunConfig,
    file: Option<&Path>,
    settings: &[String],
) -> Result<RunConfig, CliError> {
    let mut table = written(&base)?;
    if let Some(file) = file {
        let text = fs::read_to_string(file).map_err(CliError::io("read", file))?;
        let over: Table = toml::from_str(&text)
            .map_err(|error| CliError::new(format!("{} is no TOML: {error}", file.display())))?;
        merge(&mut table, over);
        table = written(&typed(&table, &file.display().to_string())?)?;
    }
    for setting in settings {
        merge(&mut table, parse(setting)?);
        table = written(&typed(&table, &format!("--set {setting}"))?)?;
    }
    typed(&table, "the configuration")
}

/// A configuration under today's keys, so that a layer's keys of earlier versions do not override those of the next.
fn written(config: &RunConfig) -> Result<Table, CliError> {
    Table::try_from(config).map_err(|error| {
        CliError::new(format!(
            "the configuration cannot be written as TOML: {error}"
        ))
    })
}

/// `KEY=VALUE` as the table that a file with it would be. A value that is no TOML is a string.
fn parse(setting: &str) -> Result<Table, CliError> {
    let Some((key, text)) = setting.split_once('=') else {
        return Err(CliError::usage(format!("--set {setting}: no `=` in it"))
            .hint("write KEY=VALUE, such as --set model.d_model=256"));
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

/// Puts `over` over `table`. A choice of another `kind` replaces what was chosen whole: its settings are others.
fn merge(table: &mut Table, over: Table) {
    for (key, value) in over {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) if !chooses_anew(below, &above) => {
                merge(below, above);
            }
            // A whole number is as good as one with a point where one with a point stood.
            (Some(below @ Value::Float(_)), Value::Integer(number)) => {
                *below = Value::Float(number as f64);
            }
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

fn chooses_anew(below: &Table, above: &Table) -> bool {
    above
        .get("kind")
        .is_some_and(|kind| below.get("kind") != Some(kind))
}

fn typed(table: &Table, layer: &str) -> Result<RunConfig, CliError> {
    table.clone().try_into().map_err(|error: toml::de::Error| {
        let reason = error.to_string();
        CliError::usage(format!("{layer}: {}", reason.trim_end().replace('\n', " ")))
            .hint("`emberlm train --print-config` shows every key with its value")
    })
}

/// The configuration as commented TOML, a comment from each field's own documentation.
pub fn to_toml(config: &RunConfig) -> Result<String, CliError> {
    let text = toml::to_string(config)
        .map_err(|error| CliError::new(format!("the configuration is no TOML: {error}")))?;
    let mut commented = String::new();
    let mut table = String::new();
    for line in text.lines() {
        let about = match line.strip_prefix('[') {
            Some(header) => {
                table = header.trim_matches(['[', ']']).to_owned();
                table.rsplit_once('.').and_then(|(of, key)| about(of, key))
            }
            None => line
                .split_once(" = ")
                .and_then(|(key, _)| about(&table, key)),
        };
        if let Some(about) = about {
            commented.push_str("# ");
            commented.push_str(about);
            commented.push('\n');
        }
        commented.push_str(line);
        commented.push('\n');
    }
    Ok(commented)
}

/// A field's documentation.
fn about(table: &str, key: &str) -> Option<&'static str> {
    match table {
        "model" => ModelConfig::get_field_docs(key).ok(),
        "data" => DataConfig::get_field_docs(key).ok(),
        "data.mix" => MixedDataset::get_field_docs(key).ok(),
        "train" => TrainConfig::get_field_docs(key).ok(),
        "train.groups" => Groups::get_field_docs(key).ok(),
        _ if table.starts_with("train.groups.") => Group::get_field_docs(key).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn set(settings: &[&str]) -> Result<RunConfig, String> {
        let settings: Vec<String> = settings.iter().map(|&s| s.to_owned()).collect();
        let base = presets::run("char-nano").map_err(|error| format!("{error:?}"))?;
        layered(base, None, &settings).map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn settings_reach_every_depth() {
        let config = set(&[
            "model.d_model=256",
            "train.learning_rate=1",
            "model.norm.epsilon=1e-6",
            "data.dataset=my data",
        ])
        .expect("legal");
        assert_eq!(config.model.d_model, 256);
        assert_eq!(config.train.learning_rate, 1.0);
        assert_eq!(config.data.dataset, Path::new("my data"));
        let expected = emberlm_model::config::Norm::Layer {
            bias: false,
            epsilon: 1e-6,
        };
        assert_eq!(config.model.norm, expected);
    }

    #[test]
    fn windows_are_set_by_one_key_or_by_keys_of_earlier_versions() {
        use emberlm_model::config::{AttentionKind, Window};

        let window = |settings: &[&str]| match set(settings).expect("legal").model.attention {
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
    fn another_kind_replaces_the_choice() {
        let config = set(&[r#"model.norm={ kind = "rms", epsilon = 1e-5 }"#]).expect("legal");
        let expected = emberlm_model::config::Norm::Rms { epsilon: 1e-5 };
        assert_eq!(config.model.norm, expected);
        let config = set(&["model.position.kind=none"]).expect("legal");
        assert_eq!(config.model.position, emberlm_model::config::Position::None);
    }

    #[test]
    fn unknown_keys_and_wrong_types_are_refused_by_name() {
        let error = set(&["model.d_modle=256"]).expect_err("a typing error");
        assert!(error.contains("unknown field `d_modle`"), "{error}");
        let error = set(&["trian.steps=1"]).expect_err("a typing error");
        assert!(error.contains("unknown field `trian`"), "{error}");
        let error = set(&["train.steps=many"]).expect_err("not a number");
        assert!(error.contains("train.steps"), "{error}");
        assert!(set(&["train.steps"]).is_err());
        assert!(set(&["train.steps=-1"]).is_err());
    }

    #[test]
    fn what_is_printed_is_commented_and_reads_back() {
        for preset in emberlm_model::families::presets() {
            let config = presets::run(preset.name).expect("a preset");
            let text = to_toml(&config).expect("TOML");
            assert_eq!(toml::from_str::<RunConfig>(&text).expect("TOML"), config);
            for (i, line) in text.lines().enumerate() {
                if let Some((key, _)) = line.split_once(" = ") {
                    let before = text.lines().nth(i - 1).unwrap_or_default();
                    let documented = before.starts_with("# ");
                    let inner = text.lines().take(i).filter(|l| l.starts_with('[')).last();
                    // Those of a choice of the model's.
                    let nested = inner.is_some_and(|header| header.starts_with("[model."));
                    assert!(documented || nested, "`{key}` has no comment");
                }
            }
        }
    }
}
