//! Loads the weights of a [`Checkpoint`], which may be an adapter of another model.

use burn::tensor::Device;
use emberlm_kernels::Backend;
use emberlm_model::{Transformer, TransformerConfig, WeightFormat, weights};
use serde::de::DeserializeOwned;

use crate::checkpoint::{Checkpoint, MODEL, TRAINING, damaged};
use crate::description::AdapterDescription;
use crate::error::CheckpointError;

impl<S: DeserializeOwned> Checkpoint<S> {
    /// Loads the model.
    ///
    /// # Errors
    /// The configuration is invalid, or the weights do not match it.
    pub fn decoder<B: Backend>(
        &self,
        device: &Device<B>,
    ) -> Result<Transformer<B>, CheckpointError> {
        self.decoder_in(self.weight_format(), device)
    }

    /// The format of the weights: f32, or that of an adapter's base model.
    pub fn weight_format(&self) -> WeightFormat {
        let description = self.description.as_ref();
        let adapter = description.and_then(|description| description.adapter.as_ref());
        adapter.map_or(WeightFormat::F32, AdapterDescription::weight_format)
    }

    /// Loads the model with its weights in the given format. Weights are packed one by one while loading.
    ///
    /// # Errors
    /// Those of [`Checkpoint::decoder`].
    pub fn decoder_in<B: Backend>(
        &self,
        format: WeightFormat,
        device: &Device<B>,
    ) -> Result<Transformer<B>, CheckpointError> {
        self.weights(MODEL, format, device)
    }

    /// Loads the model with the weights that training resumes from. They differ from [`Checkpoint::decoder`] if that
    /// is an average.
    ///
    /// # Errors
    /// Those of [`Checkpoint::decoder`].
    pub fn training_decoder<B: Backend>(
        &self,
        device: &Device<B>,
    ) -> Result<Transformer<B>, CheckpointError> {
        let name = match self.holds_average() {
            true => TRAINING,
            false => MODEL,
        };
        self.weights(name, self.weight_format(), device)
    }

    fn weights<B: Backend>(
        &self,
        name: &str,
        format: WeightFormat,
        device: &Device<B>,
    ) -> Result<Transformer<B>, CheckpointError> {
        let Some(description) = &self.description else {
            return Err(damaged(&self.path, "it has no model.json".to_owned()));
        };
        let config = TransformerConfig::try_from(description.model.clone())?;
        if let Some(adapter) = &description.adapter {
            let base = adapter.base.decoder_as::<B>(&config, format, device)?;
            return self.add_adapter(adapter, base);
        }
        weights::load_own_in(config.blank::<B>(device), &self.path.join(name), format)
            .map_err(|error| damaged(&self.path, error.to_string()))
    }
}
