//! The option for an adapter of the model.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use emberlm_checkpoint::{Model, ModelKind};

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

    /// [`AdapterArg::open`] of a decoder.
    ///
    /// # Errors
    /// Those of [`AdapterArg::open`]; also if the model is another one.
    pub fn open_decoder(&self, path: &Path) -> Result<Model, CliError> {
        Ok(self.open(path)?.of_kind(ModelKind::Decoder)?)
    }

    /// The options that give a child process the same adapter.
    pub fn options(&self) -> Vec<OsString> {
        let adapter = self.adapter.as_ref();
        adapter.map_or_else(Vec::new, |path| vec!["--adapter".into(), path.into()])
    }
}
