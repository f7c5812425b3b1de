//! Loads the weights of a [`Model`].

use burn::tensor::Device;
use emberlm_kernels::Backend;
use emberlm_model::hugging_face::with_head_of;
use emberlm_model::weights::Element;
use emberlm_model::{ModelKind, Transformer, TransformerConfig, WeightFormat};

use super::adapter_source::AdapterSource;
use super::{Model, Source};
use crate::error::{CheckpointError, ModelError};

impl Model {
    /// The element type of the stored weights that are not packed.
    pub fn element(&self) -> Result<Element, ModelError> {
        Ok(match &self.source {
            Source::Checkpoint { .. } => Element::F32,
            Source::HuggingFace { model, .. } => model.element()?,
        })
    }

    /// The format of the stored weights. Checkpoints are f32, or the format of an adapter's base model; Hugging Face
    /// directories may contain packed weights. With an adapter it is the format that the adapter was trained on, if that is
    /// recorded.
    pub fn weight_format(&self) -> WeightFormat {
        let stored = match &self.source {
            Source::Checkpoint { checkpoint, .. } => checkpoint.weight_format(),
            Source::HuggingFace { model, .. } => model.weight_format(),
        };
        let trained = self.adapter.as_ref().map(AdapterSource::settings);
        let trained = trained.and_then(|settings| settings.base_format(stored));
        trained.unwrap_or(stored)
    }

    /// The format that holds every matrix of a Hugging Face model in the bits that it is stored in
    /// ([`HuggingFaceModel::inference_format`](emberlm_model::hugging_face::HuggingFaceModel::inference_format)). It is
    /// [`Self::weight_format`] for checkpoints, for models with an adapter, and for other kinds than decoders.
    pub fn inference_format(&self) -> Result<WeightFormat, ModelError> {
        Ok(match (&self.source, &self.adapter) {
            (Source::HuggingFace { model, .. }, None) if self.kind() == ModelKind::Decoder => {
                model.inference_format()?
            }
            _ => self.weight_format(),
        })
    }

    /// Loads the model in the format of its stored weights: f32 or packed.
    pub fn decoder<B: Backend>(&self, device: &Device<B>) -> Result<Transformer<B>, ModelError> {
        self.decoder_in(self.weight_format(), device)
    }

    /// Loads the model with its weights in the given format. Stored packed weights are read unchanged or unpacked.
    /// Floating-point weights are packed one by one while loading, so at most one of them is held in f32.
    pub fn decoder_in<B: Backend>(
        &self,
        format: WeightFormat,
        device: &Device<B>,
    ) -> Result<Transformer<B>, ModelError> {
        let decoder = match &self.source {
            Source::Checkpoint { checkpoint, .. } => checkpoint.decoder_in(format, device)?,
            // The adapter of an encoder may have another head than its base. That of a decoder reconfigures the base itself.
            Source::HuggingFace { model, .. }
                if self.kind() != ModelKind::Decoder && self.config != *model.config() =>
            {
                self.decoder_as(&self.config, 0, format, device)?
            }
            Source::HuggingFace { model, .. } => model.decoder_in(format, device)?,
        };
        match &self.adapter {
            Some(adapter) => adapter.add_to(decoder),
            None => Ok(decoder),
        }
    }

    /// Loads the model for `config`, which may have other training settings, a shorter context, or another head of an
    /// encoder, whose parameters then have their initial values by `seed`.
    ///
    /// # Errors
    /// Another setting of `config` differs from the model's, or the weights cannot be read.
    pub fn decoder_as<B: Backend>(
        &self,
        config: &TransformerConfig,
        seed: u64,
        format: WeightFormat,
        device: &Device<B>,
    ) -> Result<Transformer<B>, ModelError> {
        Ok(match &self.source {
            Source::HuggingFace { model, .. } if config.kind() != ModelKind::Decoder => {
                let model = model.model_as::<B>(config, seed, device)?;
                model.with_weights(format).map_err(CheckpointError::from)?
            }
            Source::HuggingFace { model, .. } => model
                .decoder_in::<B>(format, device)?
                .reconfigured(config)?,
            Source::Checkpoint { checkpoint, .. } => {
                let weights = checkpoint.decoder_in::<B>(format, device)?;
                with_head_of(&weights, config, seed)?
            }
        })
    }
}
