//! Adapters of a [`Model`].

use std::path::Path;

use emberlm_model::adapter::PeftAdapter;

use super::{Model, Source};
use crate::adapter::{AdapterDescription, AdapterSource};
use crate::error::ModelError;

impl Model {
    /// Returns the model with the adapter at `path`: a directory of PEFT, or a run or checkpoint with an adapter.
    ///
    /// # Errors
    /// There is no adapter, it cannot be read, or it was trained on other weights.
    pub fn with_adapter(mut self, path: &Path) -> Result<Self, ModelError> {
        let adapter = AdapterSource::open(path)?;
        adapter.check(&self)?;
        self.adapter = Some(adapter);
        Ok(self)
    }

    /// True if the model has an adapter.
    pub fn has_adapter(&self) -> bool {
        self.adapter.is_some() || self.adapter().is_some()
    }

    /// The description of the adapter, if the model is a checkpoint of one.
    pub fn adapter(&self) -> Option<&AdapterDescription> {
        match &self.source {
            Source::Checkpoint { description, .. } => description.adapter.as_ref(),
            Source::HuggingFace { .. } => None,
        }
    }

    /// Opens the base model of a directory of PEFT, by the path that it records, with the adapter.
    pub(super) fn from_peft(path: &Path) -> Result<Self, ModelError> {
        let adapter = PeftAdapter::open(path)?;
        let base = adapter.base().map(|base| path.join(base));
        let base = base.filter(|base| base.exists() && base != path);
        let base = base.ok_or_else(|| ModelError::AdapterOnly {
            path: path.to_owned(),
            base: adapter.base().unwrap_or_default().to_owned(),
        })?;
        Self::open(&base)?.with_adapter(path)
    }
}
