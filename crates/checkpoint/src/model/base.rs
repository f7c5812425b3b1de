//! The base models of adapters.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use emberlm_kernels::Backend;
use emberlm_model::{Transformer, TransformerConfig, WeightFormat};
use emberlm_system::read;

use super::Model;
use crate::checkpoint::OPTIMIZER;
use crate::description::{AdapterDescription, BaseModel};
use crate::error::{CheckpointError, ModelError};

impl AdapterDescription {
    /// The format of the base model's weights in training; f32 if the base model cannot be opened.
    pub(crate) fn weight_format(&self) -> WeightFormat {
        let stored = || Model::open(&self.base.path).map(|model| model.weight_format());
        match self.settings.base_weights.is_empty() {
            true => stored().unwrap_or_default(),
            false => self
                .settings
                .base_format(WeightFormat::F32)
                .unwrap_or_default(),
        }
    }
}

impl Model {
    /// The hash of the weights, including those of an adapter and of its base model. Reads all of them.
    ///
    /// # Errors
    /// Its files cannot be read.
    pub fn weights_hash(&self) -> Result<String, CheckpointError> {
        let mut hashes = weights_hash(self.path())?;
        if let Some(adapter) = &self.adapter {
            hashes += &weights_hash(&adapter.path())?;
        }
        if let Some(adapter) = self.adapter() {
            hashes += &adapter.base.blake3;
        }
        Ok(blake3::hash(hashes.as_bytes()).to_string())
    }
}

impl BaseModel {
    /// Identifies a model.
    ///
    /// # Errors
    /// Its files cannot be read.
    pub fn of(model: &Model) -> Result<Self, CheckpointError> {
        let path = model.path();
        let path = fs::canonicalize(path).map_err(CheckpointError::file("open", path))?;
        Ok(Self {
            blake3: weights_hash(&path)?,
            path,
        })
    }

    /// Checks that `model` is this one, wherever it is.
    ///
    /// # Errors
    /// It has other weights.
    pub fn check(&self, model: &Model) -> Result<(), CheckpointError> {
        let path = model.path();
        match weights_hash(path)? == self.blake3 {
            true => Ok(()),
            false => Err(CheckpointError::OtherBase {
                base: self.path.clone(),
                path: path.to_owned(),
            }),
        }
    }

    /// Opens the model.
    ///
    /// # Errors
    /// The model is no longer there, or has other weights.
    pub(crate) fn open(&self) -> Result<Model, CheckpointError> {
        let model = Model::open(&self.path).map_err(self.error())?;
        self.check(&model)?;
        Ok(model)
    }

    /// Loads the model for `config` with its weights in a format ([`Model::decoder_as`]).
    ///
    /// # Errors
    /// Those of [`BaseModel::open`].
    pub(crate) fn decoder_as<B: Backend>(
        &self,
        config: &TransformerConfig,
        format: WeightFormat,
        device: &Device<B>,
    ) -> Result<Transformer<B>, CheckpointError> {
        let model = self.open()?;
        model
            // A head that the base lacks is trained and saved with the adapter.
            .decoder_as(config, 0, format, device)
            .map_err(self.error())
    }

    fn error(&self) -> impl FnOnce(ModelError) -> CheckpointError {
        let path = self.path.clone();
        move |source| CheckpointError::Base {
            path,
            source: Box::new(source),
        }
    }
}

/// The hash of the weight files of a model: the file itself, or the `.safetensors` files in a directory.
fn weights_hash(path: &Path) -> Result<String, CheckpointError> {
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let entries = fs::read_dir(path).map_err(CheckpointError::file("read", path))?;
        files = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|file| file.extension().is_some_and(|end| end == "safetensors"))
            // A checkpoint has its optimizer's state, too.
            .filter(|file| !file.ends_with(OPTIMIZER))
            .collect();
        files.sort();
    }
    let mut hashes = blake3::Hasher::new();
    for file in files {
        let opened = read::open(&file).map_err(CheckpointError::file("open", &file))?;
        let mut hasher = blake3::Hasher::new();
        hasher
            .update_reader(&opened)
            .map_err(CheckpointError::file("read", &file))?;
        hashes.update(hasher.finalize().as_bytes());
    }
    Ok(hashes.finalize().to_string())
}
