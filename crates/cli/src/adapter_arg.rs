//! The option for an adapter of the model.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use emberlm_checkpoint::Model;

use crate::error::CliError;
use crate::model;

/// The adapter to use a model with.
#[derive(Clone, Debug, Default, Args)]
pub struct AdapterArg {
    /// An adapter of the model: a directory that PEFT or `emberlm export` wrote, or a run with an adapter
    #[arg(long, value_name = "ADAPTER", value_hint = ValueHint::DirPath, help_heading = "Model")]
    pub adapter: Option<PathBuf>,
}

impl AdapterArg {
    /// Opens the model at `path` with the adapter, if one is given.
    ///
    /// # Errors
    /// The model or the adapter cannot be opened, or the adapter was trained on another model.
    pub fn open(&self, path: &Path) -> Result<Model, CliError> {
        let model = model::open(path)?;
        Ok(match &self.adapter {
            Some(adapter) => model.with_adapter(adapter)?,
            None => model,
        })
    }
}
