//! Adapters of models on disk: in checkpoints of runs, whose base model is elsewhere, and in PEFT's directories.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use emberlm_kernels::Backend;
use emberlm_model::adapter::{ADAPTER_CONFIG_FILE, PeftAdapter};
use emberlm_model::{Decoder, DecoderConfig, LoraConfig, WeightFormat};
use emberlm_system::read;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checkpoint::Checkpoint;
use crate::error::{CheckpointError, ModelError};
use crate::model::{self, Model};

/// The adapter of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdapterDescription {
    /// Settings.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub settings: LoraConfig,
    /// The model that it adapts.
    pub base: BaseModel,
}

/// The model that an adapter was trained on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BaseModel {
    /// Its directory or file.
    pub path: PathBuf,
    /// BLAKE3 of the hashes of its weight files, in hexadecimal.
    pub blake3: String,
}

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

    /// Loads the model with its weights in a format.
    ///
    /// # Errors
    /// Those of [`BaseModel::open`].
    pub(crate) fn decoder_in<B: Backend>(
        &self,
        format: WeightFormat,
        device: &Device<B>,
    ) -> Result<Decoder<B>, CheckpointError> {
        let model = self.open()?;
        model.decoder_in(format, device).map_err(self.error())
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
            .filter(|file| !file.ends_with(crate::checkpoint::OPTIMIZER))
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
        fs::metadata(path).map_err(|error| model::missing(path, error))?;
        if path.join(ADAPTER_CONFIG_FILE).exists() {
            return Ok(Self::Peft(Box::new(PeftAdapter::open(path)?)));
        }
        let checkpoint = match path.join(crate::checkpoint::FOLDER).exists() {
            true => model::newest(path)?.0,
            false if path.join(crate::checkpoint::DESCRIPTION).exists() => {
                Some(Checkpoint::open(path)?)
            }
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
    pub(crate) fn model_config(&self) -> Result<Option<DecoderConfig>, ModelError> {
        let description = match self {
            Self::Peft(_) => None,
            Self::Checkpoint(checkpoint, _) => checkpoint.description.as_ref(),
        };
        let config = description.map(|description| description.model.clone());
        Ok(config.map(DecoderConfig::try_from).transpose()?)
    }

    /// Adds the adapter to its base model, with the configuration of [`AdapterSource::model_config`].
    pub(crate) fn add_to<B: Backend>(&self, decoder: Decoder<B>) -> Result<Decoder<B>, ModelError> {
        Ok(match self {
            Self::Peft(adapter) => adapter.add_to(decoder)?,
            Self::Checkpoint(checkpoint, _) => checkpoint.adapted(decoder)?,
        })
    }
}
