//! The weights of served models, which adapters of one base model share.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use emberlm_checkpoint::Model;
use emberlm_kernels::Backend;
use emberlm_model::{CacheFormat, Transformer, WeightFormat};

use super::groups::base_path;
use super::models::ModelSpec;
use crate::error::CliError;
use crate::model;
use crate::weights_arg::Formats;

/// The models that have been loaded, by path and format. Copies share the weights' memory.
pub struct Bases<B: Backend> {
    loaded: Vec<(PathBuf, Option<WeightFormat>, Transformer<B>)>,
    have_adapters: bool,
}

impl<B: Backend> Bases<B> {
    /// No models.
    pub fn new() -> Self {
        Self {
            loaded: Vec::new(),
            have_adapters: false,
        }
    }

    /// The formats of a served model. If the user requests no format of the weights and there are adapters, it is that of
    /// training, in which an adapter and its base model share weights.
    pub fn formats(&self, spec: &ModelSpec, model: &Model) -> Formats {
        let stored = || match self.have_adapters {
            true => model.weight_format(),
            false => model::inference_weights(model, None, B::keeps_packed_weights()).format,
        };
        Formats {
            weights: Some(spec.weights.unwrap_or_else(stored)),
            precision: spec.precision,
            cache: spec.options.cache,
        }
    }

    /// States that some models will be adapted.
    pub fn expect_adapters(&mut self) {
        self.have_adapters = true;
    }

    /// Forgets the weights of other models than those at these paths.
    pub fn keep(&mut self, paths: &[&Path]) {
        self.loaded
            .retain(|(path, ..)| paths.contains(&path.as_path()));
    }

    /// The weights of a model, loaded once.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn decoder(
        &mut self,
        base: &Model,
        formats: Formats,
        device: &Device<B>,
    ) -> Result<Transformer<B>, CliError> {
        let path = &base_path(base);
        let known = self
            .loaded
            .iter()
            .find(|(known, of, _)| known == path && *of == formats.weights);
        if let Some((_, _, decoder)) = known {
            return Ok(decoder.clone().with_precision(formats.precision));
        }
        // The engine sets the format of its caches.
        let formats = Formats {
            cache: CacheFormat::F32,
            ..formats
        };
        let decoder = model::decoder_in::<B>(base, formats, device)?;
        self.loaded
            .push((path.clone(), formats.weights, decoder.clone()));
        Ok(decoder)
    }
}
