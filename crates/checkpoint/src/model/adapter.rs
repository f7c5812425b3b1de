//! Adapters of a [`Model`].

use std::path::Path;

use emberlm_kernels::Backend;
use emberlm_model::adapter::PeftAdapter;
use emberlm_model::{LoraConfig, Transformer};

use super::adapter_source::AdapterSource;
use super::{Model, Source};
use crate::description::AdapterDescription;
use crate::error::ModelError;

impl Model {
    /// Returns the model with the adapter at `path`: a directory of PEFT, or a run or checkpoint with an adapter.
    ///
    /// # Errors
    /// There is no adapter, it cannot be read, or it was trained on other weights.
    pub fn with_adapter(mut self, path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let adapter = AdapterSource::open(path.as_ref())?;
        adapter.check(&self)?;
        if let Some(config) = adapter.model_config()? {
            self.config = config;
        }
        self.adapter = Some(adapter);
        Ok(self)
    }

    /// Opens the model that the adapter was trained on; `None` without an adapter.
    ///
    /// # Errors
    /// The base model of a checkpoint is no longer there, or has other weights.
    pub fn base(&self) -> Result<Option<Self>, ModelError> {
        Ok(match (&self.adapter, self.adapter()) {
            (Some(_), _) => Some(Self::open(self.path())?),
            (None, Some(adapter)) => Some(adapter.base.open()?),
            (None, None) => None,
        })
    }

    /// Adds the adapter to the loaded weights of [`Model::base`].
    ///
    /// # Errors
    /// The adapter cannot be read, or is not for these weights.
    pub fn add_adapter<B: Backend>(
        &self,
        base: Transformer<B>,
    ) -> Result<Transformer<B>, ModelError> {
        match (&self.adapter, &self.source) {
            (Some(adapter), _) => adapter.add_to(base),
            (None, Source::Checkpoint { checkpoint, .. }) => Ok(checkpoint.adapted(base)?),
            (None, Source::HuggingFace { .. }) => Ok(base),
        }
    }

    /// Opens the same files again: of a run the same checkpoint, even if there is a newer one.
    pub fn reopen(&self) -> impl Fn() -> Result<Self, ModelError> + Send + 'static {
        let path = self.path().to_owned();
        let adapter = self.adapter.as_ref().map(AdapterSource::path);
        move || {
            let model = Self::open(&path)?;
            match &adapter {
                Some(adapter) => model.with_adapter(adapter),
                None => Ok(model),
            }
        }
    }

    /// True if the model has an adapter.
    pub fn has_adapter(&self) -> bool {
        self.adapter.is_some() || self.adapter().is_some()
    }

    /// True if the model has an adapter that replaces modules or biases of its base, whose requests cannot share batches
    /// with those of other adapters.
    pub fn has_whole_parameters(&self) -> bool {
        let own = || self.adapter().map(|adapter| &adapter.settings);
        let settings = self
            .adapter
            .as_ref()
            .map(AdapterSource::settings)
            .or_else(own);
        settings.is_some_and(LoraConfig::has_whole_parameters)
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
        Self::open(base)?.with_adapter(path)
    }
}
