//! The `serve --config` file: models with individual settings.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use emberlm_generate::EngineConfig;
use emberlm_kernels::Precision;
use emberlm_model::{CacheFormat, WeightFormat};
use emberlm_serve::SamplingDefaults;
use emberlm_system::read::read_argument;
use emberlm_trainer::run_config::toml_reason;
use serde::{Deserialize, Deserializer, de};

use crate::error::CliError;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    model: Vec<Entry>,
}

/// A `[[model]]` table. `None` falls back to the command line's setting.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The model's directory, relative to the working directory.
    pub path: PathBuf,
    /// The model name in the API. The default is the directory's name.
    pub name: Option<String>,
    /// Other names of the model in the API.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// True to serve the newest checkpoint of a run.
    #[serde(default)]
    pub follow: bool,
    #[serde(default, deserialize_with = "weights")]
    pub weights: Option<WeightFormat>,
    #[serde(default, deserialize_with = "precision")]
    pub precision: Option<Precision>,
    #[serde(default, deserialize_with = "cache")]
    pub cache: Option<CacheFormat>,
    pub context: Option<NonZero<usize>>,
    pub slots: Option<NonZero<usize>>,
    pub max_queue: Option<usize>,
    pub chat_template: Option<String>,
    pub deterministic: Option<bool>,
    /// A smaller model that drafts tokens, relative to the working directory.
    pub draft: Option<PathBuf>,
    #[serde(default, deserialize_with = "draft_tokens")]
    pub draft_tokens: Option<usize>,
    /// Defaults for sampling settings missing from a request.
    #[serde(default)]
    pub sampling: SamplingDefaults,
}

/// Reads the models of a file.
///
/// # Errors
/// Returns an error if the file cannot be read or has an invalid key or value.
pub fn read(path: &Path) -> Result<Vec<Entry>, CliError> {
    let text = read_argument(path).map_err(CliError::io("read", path))?;
    parse(&text).map_err(|error| error.within(&path.display().to_string()))
}

fn parse(text: &str) -> Result<Vec<Entry>, CliError> {
    let written: ConfigFile = toml::from_str(text).map_err(|error| {
        CliError::new(toml_reason(&error, text)).hint(
            "each model is a table [[model]] with `path` and optional settings; docs/guides/serve.md lists them",
        )
    })?;
    Ok(written.model)
}

fn weights<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<WeightFormat>, D::Error> {
    named(deserializer, WeightFormat::ALL, WeightFormat::name)
}

fn precision<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Precision>, D::Error> {
    named(deserializer, Precision::ALL, Precision::name)
}

fn cache<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<CacheFormat>, D::Error> {
    named(deserializer, CacheFormat::ALL, CacheFormat::name)
}

fn draft_tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let tokens = usize::deserialize(deserializer)?;
    let most = EngineConfig::MOST_DRAFT_TOKENS;
    match tokens > most {
        true => Err(de::Error::custom(format!(
            "must be at most {most} (got {tokens})"
        ))),
        false => Ok(Some(tokens)),
    }
}

/// Reads the name of one of `all`.
fn named<'de, D: Deserializer<'de>, T: Copy, const N: usize>(
    deserializer: D,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let found = all.into_iter().find(|&one| name(one) == text);
    found.map(Some).ok_or_else(|| {
        let names = all.map(name).join(", ");
        de::Error::custom(format!("must be one of {names} (got {text:?})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_individual_settings() {
        let entries = parse(
            r#"
            [[model]]
            path = "runs/book"

            [[model]]
            path = "models/chat"
            name = "chat"
            aliases = ["gpt-3.5-turbo"]
            weights = "int8"
            context = 512
            sampling = { temperature = 0.5 }
            "#,
        )
        .unwrap();
        assert_eq!(entries[0].path, Path::new("runs/book"));
        assert_eq!(entries[0].weights, None);
        assert_eq!(entries[1].weights, Some(WeightFormat::INT8));
        assert_eq!(entries[1].context.map(NonZero::get), Some(512));
        assert_eq!(entries[1].sampling.temperature, Some(0.5));
    }

    #[test]
    fn invalid_values_are_rejected_with_key_and_rule() {
        let message = |line: &str| {
            let text = format!("[[model]]\npath = \"a\"\n{line}\n");
            parse(&text).unwrap_err().message().to_owned()
        };
        for (line, rule) in [
            ("weights = \"int4\"", "must be one of f32, int8, f16,"),
            ("context = 0", "nonzero"),
            ("contxt = 5", "unknown field `contxt`"),
            ("sampling = { temp = 1 }", "unknown field `temp`"),
            ("draft_tokens = 65", "must be at most 64 (got 65)"),
        ] {
            let message = message(line);
            assert!(message.contains(rule), "{line}: {message}");
            assert!(message.contains("line 3"), "{line}: {message}");
        }
    }
}
