//! The size of a run's model, from its `config.toml`.

use std::path::Path;

use emberlm_model::TransformerConfig;
use emberlm_model::count;
use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_trainer::folder::CONFIG_FILE;
use emberlm_trainer::run_config::{from_toml, toml_reason};

use crate::error::CliError;

/// The size of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelSize {
    /// Number of parameters.
    pub parameters: f64,
    /// Floating-point operations of a training step per token.
    pub flops_per_token: f64,
}

impl ModelSize {
    /// Computes the size of a run's model.
    ///
    /// # Errors
    /// Returns an error if the configuration cannot be read or does not describe a model.
    pub fn of_run(run: &Path) -> Result<Self, CliError> {
        let path = run.join(CONFIG_FILE);
        let text = read_text(&path, DESCRIPTION_LIMIT).map_err(CliError::io("read", &path))?;
        let shown = path.display().to_string();
        let config = from_toml(&text).map_err(|error| {
            let reason = toml_reason(&error, &text);
            CliError::new(format!("{shown}: {reason}"))
        })?;
        let model = TransformerConfig::try_from(config.model)
            .map_err(|error| CliError::from(error).within(&shown))?;
        Ok(Self {
            parameters: count::parameters(&model).total as f64,
            flops_per_token: count::flops_per_token(&model).training as f64,
        })
    }
}
