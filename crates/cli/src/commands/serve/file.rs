//! The `serve --config` file: models with individual settings.

use std::path::Path;

use emberlm_serve::ModelEntry;
use emberlm_system::read::read_argument;
use emberlm_trainer::run_config::toml_reason;
use serde::Deserialize;

use crate::error::CliError;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    model: Vec<ModelEntry>,
}

/// Reads the models of a file.
///
/// # Errors
/// Returns an error if the file cannot be read or has an invalid key or value.
pub fn read(path: &Path) -> Result<Vec<ModelEntry>, CliError> {
    let text = read_argument(path).map_err(CliError::io("read", path))?;
    parse(&text).map_err(|error| error.within(&path.display().to_string()))
}

fn parse(text: &str) -> Result<Vec<ModelEntry>, CliError> {
    let written: ConfigFile = toml::from_str(text).map_err(|error| {
        CliError::new(toml_reason(&error, text)).hint(
            "each model is a table [[model]] with `path` and optional settings; docs/guides/serve.md lists them",
        )
    })?;
    Ok(written.model)
}

#[cfg(test)]
mod tests {
    use std::num::NonZero;

    use emberlm_model::WeightFormat;

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
