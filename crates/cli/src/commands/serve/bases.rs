//! The weights of served models, which adapters of one base model share.

use std::path::PathBuf;

use burn::tensor::Device;
use emberlm_checkpoint::Model;
use emberlm_kernels::Backend;
use emberlm_model::{CacheFormat, Transformer, WeightFormat};

use super::groups::base_path;
use crate::error::CliError;
use crate::model;

/// The models that have been loaded, by path and format. Copies share the weights' memory.
pub struct Bases<B: Backend> {
    loaded: Vec<(PathBuf, WeightFormat, Transformer<B>)>,
    have_adapters: bool,
}

impl<B: Backend> Bases<B> {
    /// No models. `have_adapters` states that some will be adapted.
    pub fn new(have_adapters: bool) -> Self {
        Self {
            loaded: Vec::new(),
            have_adapters,
        }
    }

    /// The format of a model's weights if the user requests none. With adapters it is that of training, in which an adapter
    /// and its base model share weights.
    pub fn format(&self, model: &Model) -> WeightFormat {
        match self.have_adapters {
            true => model.weight_format(),
            false => model::inference_weights(model, None, B::keeps_packed_weights()).format,
        }
    }

    /// The weights of a model, loaded once.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn decoder(
        &mut self,
        base: &Model,
        format: WeightFormat,
        device: &Device<B>,
    ) -> Result<Transformer<B>, CliError> {
        let path = &base_path(base);
        let known = self
            .loaded
            .iter()
            .find(|(known, of, _)| known == path && *of == format);
        if let Some((_, _, decoder)) = known {
            return Ok(decoder.clone());
        }
        let decoder = model::decoder_in::<B>(base, Some(format), CacheFormat::F32, device)?;
        self.loaded.push((path.clone(), format, decoder.clone()));
        Ok(decoder)
    }
}
