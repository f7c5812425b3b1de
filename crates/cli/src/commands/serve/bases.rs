//! The weights of served models, which adapters of one base model share.

use std::path::PathBuf;

use burn::tensor::Device;
use emberlm_checkpoint::Model;
use emberlm_kernels::Backend;
use emberlm_model::{CacheFormat, Decoder, WeightFormat};

use crate::error::CliError;
use crate::model;

/// The models that have been loaded, by path and format. Copies share the weights' memory.
pub struct Bases<B: Backend>(Vec<(PathBuf, WeightFormat, Decoder<B>)>);

impl<B: Backend> Default for Bases<B> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<B: Backend> Bases<B> {
    /// The weights of a model, loaded once.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn decoder(
        &mut self,
        base: &Model,
        format: WeightFormat,
        device: &Device<B>,
    ) -> Result<Decoder<B>, CliError> {
        let path = base.path();
        let known = self
            .0
            .iter()
            .find(|(known, of, _)| known == path && *of == format);
        if let Some((_, _, decoder)) = known {
            return Ok(decoder.clone());
        }
        let decoder = model::decoder_in::<B>(base, Some(format), CacheFormat::F32, device)?;
        self.0.push((path.to_owned(), format, decoder.clone()));
        Ok(decoder)
    }
}
