//! Adapters on disk: checkpoints of runs, whose base model is elsewhere, and PEFT's directories.

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_kernels::Backend;
use emberlm_model::adapter::{ADAPTER_CONFIG_FILE, PeftAdapter};
use emberlm_model::{LoraConfig, Transformer, TransformerConfig};

use super::{Model, missing, newest};
use crate::checkpoint::{Checkpoint, DESCRIPTION, FOLDER};
use crate::description::AdapterDescription;
use crate::error::ModelError;

/// An adapter to be added to an opened model.
#[derive(Debug)]
pub(crate) enum AdapterSource {
    /// A directory of PEFT.
    Peft(Box<PeftAdapter>),
    /// The checkpoint of a run.
    Checkpoint(Box<Checkpoint>, Box<AdapterDescription>),
}

impl AdapterSource {
    /// Opens the adapter at `path`: a directory of PEFT, a run or a checkpoint.
    pub(crate) fn open(path: &Path) -> Result<Self, ModelError> {
        fs::metadata(path).map_err(|error| missing(path, error))?;
        if path.join(ADAPTER_CONFIG_FILE).exists() {
            return Ok(Self::Peft(Box::new(PeftAdapter::open(path)?)));
        }
        let checkpoint = match path.join(FOLDER).exists() {
            true => newest(path)?.0,
            false if path.join(DESCRIPTION).exists() => Some(Checkpoint::open(path)?),
            false => None,
        };
        let found = checkpoint.and_then(|checkpoint| {
            let adapter = checkpoint.description.as_ref()?.adapter.clone()?;
            Some(Self::Checkpoint(Box::new(checkpoint), Box::new(adapter)))
        });
        found.ok_or_else(|| ModelError::NotAnAdapter {
            path: path.to_owned(),
        })
    }

    /// The settings of the adapter.
    pub(crate) fn settings(&self) -> &LoraConfig {
        match self {
            Self::Peft(adapter) => adapter.config(),
            Self::Checkpoint(_, adapter) => &adapter.settings,
        }
    }

    /// The directory of the adapter.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Peft(adapter) => adapter.path().to_owned(),
            Self::Checkpoint(checkpoint, _) => checkpoint.path.clone(),
        }
    }

    /// Checks that the adapter is for `model`, as far as it is recorded.
    pub(crate) fn check(&self, model: &Model) -> Result<(), ModelError> {
        match self {
            Self::Peft(_) => Ok(()),
            Self::Checkpoint(_, adapter) => Ok(adapter.base.check(model)?),
        }
    }

    /// The configuration that the adapter was trained with, if it is recorded: that of its base model, with the changes of the
    /// run.
    pub(crate) fn model_config(&self) -> Result<Option<TransformerConfig>, ModelError> {
        let description = match self {
            Self::Peft(_) => None,
            Self::Checkpoint(checkpoint, _) => checkpoint.description.as_ref(),
        };
        let config = description.map(|description| description.model.clone());
        Ok(config.map(TransformerConfig::try_from).transpose()?)
    }

    /// Adds the adapter to its base model, with the configuration of [`AdapterSource::model_config`].
    pub(crate) fn add_to<B: Backend>(
        &self,
        decoder: Transformer<B>,
    ) -> Result<Transformer<B>, ModelError> {
        Ok(match self {
            Self::Peft(adapter) => adapter.add_to(decoder)?,
            Self::Checkpoint(checkpoint, _) => checkpoint.adapted(decoder)?,
        })
    }
}
