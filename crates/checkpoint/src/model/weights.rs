//! A model's weights.

use burn::tensor::Device;
use emberlm_kernels::Backend;
use emberlm_model::weights::Element;
use emberlm_model::{Decoder, WeightFormat};

use super::{Model, Source};
use crate::error::ModelError;

impl Model {
    /// The element type that the weights which are not packed are stored in.
    pub fn element(&self) -> Result<Element, ModelError> {
        Ok(match &self.source {
            Source::Own(_) => Element::F32,
            Source::HuggingFace(model) => model.element()?,
        })
    }

    /// The format that the weights are stored in. Checkpoints are in f32; a Hugging Face directory may hold packed weights.
    pub fn weight_format(&self) -> WeightFormat {
        match &self.source {
            Source::Own(_) => WeightFormat::F32,
            Source::HuggingFace(model) => model.weight_format(),
        }
    }

    /// The model with its weights as they are stored: in f32, or packed.
    pub fn decoder<B: Backend>(&self, device: &Device<B>) -> Result<Decoder<B>, ModelError> {
        self.decoder_in(self.weight_format(), device)
    }

    /// The model with its weights in a format. Weights that are stored packed are read as they are, or unpacked; others are packed
    /// one by one as they are read, so that beside the result no more than one of them is held in f32.
    pub fn decoder_in<B: Backend>(
        &self,
        format: WeightFormat,
        device: &Device<B>,
    ) -> Result<Decoder<B>, ModelError> {
        Ok(match &self.source {
            Source::Own(checkpoint) => checkpoint.decoder_in(format, device)?,
            Source::HuggingFace(model) => model.decoder_in(format, device)?,
        })
    }
}
