//! Checkpoints: `RUN/checkpoints/step-00000500/`, whole or absent.
//!
//! | file | holds |
//! |---|---|
//! | `model.safetensors` | the weights, by the decoder's paths |
//! | `model.json` | the model's configuration and the tokenizer: a checkpoint can be used wherever it is copied to |
//! | `tokenizer.json` | the tokenizer's own file, where it is not built in |
//! | `hugging_face_config.json`, `tokenizer_config.json`, … | of a model that was trained from a Hugging Face directory: its files, as they came |
//! | `training.safetensors` | the weights that training resumes from, if `model.safetensors` holds their average |
//! | `optimizer.safetensors` | the optimizer's moments, by the same paths |
//! | `state.json` | where the run stood |
//! | `manifest.json` | size and BLAKE3 of each of the others, written last |
//!
//! A model that has not been trained is the same without `optimizer.safetensors` and `state.json`.
//!
//! This file finds and reads checkpoints; [`mod@crate::write`] writes them and [`crate::keep`] removes old ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use emberlm_data::{ChatTemplateSpec, Packing};
use emberlm_kernels::Backend;
use emberlm_model::{Decoder, DecoderConfig, ModelConfig, WeightFormat, weights};
use emberlm_system::read;
use emberlm_tokenizer::{TOKENIZER_FILE, Tokenizer, TokenizerSpec};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::CheckpointError;
use crate::keep;
use crate::source_files::SourceFiles;

/// The folder of a run's checkpoints.
pub const FOLDER: &str = "checkpoints";

pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const MODEL: &str = "model.safetensors";
/// The file of a checkpoint's [`Description`]: a directory that holds it is a checkpoint.
pub(crate) const DESCRIPTION: &str = "model.json";
/// The weights that training continues from, where [`Checkpoint::decoder`] is their average.
pub const TRAINING: &str = "training.safetensors";
/// The optimizer's state.
pub const OPTIMIZER: &str = "optimizer.safetensors";
/// The position of the run.
pub const STATE: &str = "state.json";

/// The model, tokenizer and chat template that a checkpoint's weights belong to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The model, with the keys of `[model]` in `config.toml`.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub model: ModelConfig,
    /// The tokenizer, if known.
    pub tokenizer: Option<TokenizerSpec>,
    /// The chat template of the training conversations, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<ChatTemplateSpec>,
    /// The packing of documents into training sequences.
    #[serde(default, skip_serializing_if = "Packing::is_stream")]
    pub documents: Packing,
    /// Tokens of the training sequences, if they are shorter than the model's context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq_len: Option<usize>,
}

impl Description {
    /// The description of a model without tokenizer and chat template.
    pub fn of_model(model: &DecoderConfig) -> Self {
        Self {
            model: model.raw().clone(),
            tokenizer: None,
            chat_template: None,
            documents: Packing::Stream,
            seq_len: None,
        }
    }
}

/// The step at which a checkpoint was written: the only field of the trainer's state that is needed to use the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Progress {
    /// The number of completed training steps.
    pub step: usize,
}

/// A file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FileEntry")]
pub(crate) struct Entry {
    /// The file's size in bytes.
    bytes: u64,
    /// BLAKE3 of the whole file, in hexadecimal.
    blake3: String,
}

pub(crate) type Manifest = BTreeMap<String, Entry>;

/// A checkpoint whose files match its manifest. `S` is the part of `state.json` that is read.
#[derive(Clone, Debug)]
pub struct Checkpoint<S = Progress> {
    /// The checkpoint's directory.
    pub path: PathBuf,
    /// The model that the weights belong to.
    pub description: Description,
    /// The position of the run. `None` for a model that has not been trained.
    pub state: Option<S>,
}

impl Entry {
    pub(crate) fn of(path: &Path) -> Result<Self, CheckpointError> {
        let file = read::open(path).map_err(CheckpointError::file("open", path))?;
        let mut hasher = blake3::Hasher::new();
        hasher
            .update_reader(&file)
            .map_err(CheckpointError::file("read", path))?;
        Ok(Self {
            bytes: hasher.count(),
            blake3: hasher.finalize().to_string(),
        })
    }
}

/// The extent of the check when a checkpoint is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// The files that a model is used with; the rest by its size.
    Model,
    /// Every file.
    All,
}

impl<S: DeserializeOwned> Checkpoint<S> {
    /// Opens a checkpoint's directory and checks its files against the manifest: the optimizer's, which is two thirds of
    /// all and which only a resumed run reads, by its size, every other by its hash.
    ///
    /// # Errors
    /// A file is missing, unreadable, or not the one that was written.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        Self::checked(path, Depth::Model)
    }

    fn checked(path: &Path, depth: Depth) -> Result<Self, CheckpointError> {
        let manifest: Manifest = read_json(path, MANIFEST)?;
        for name in [MODEL, DESCRIPTION] {
            if !manifest.contains_key(name) {
                let reason = format!("its manifest does not list {name}");
                return Err(broken(path, reason));
            }
        }
        let names = [
            MODEL,
            DESCRIPTION,
            STATE,
            TRAINING,
            OPTIMIZER,
            TOKENIZER_FILE,
        ];
        for name in names.into_iter().chain(SourceFiles::names()) {
            let Some(expected) = manifest.get(name) else {
                continue;
            };
            let file = path.join(name);
            let unread = |error: &dyn std::fmt::Display| broken(path, error.to_string());
            let same = match name {
                OPTIMIZER | TRAINING if depth == Depth::Model => {
                    let found = fs::metadata(&file).map_err(CheckpointError::file("read", &file));
                    found.map_err(|error| unread(&error))?.len() == expected.bytes
                }
                _ => Entry::of(&file).map_err(|error| unread(&error))? == *expected,
            };
            if !same {
                let reason = format!("{name} is not the file that was written");
                return Err(broken(path, reason));
            }
        }
        let trained = manifest.contains_key(STATE);
        Ok(Self {
            path: path.to_owned(),
            description: read_json(path, DESCRIPTION)?,
            state: trained.then(|| read_json(path, STATE)).transpose()?,
        })
    }

    /// The newest whole checkpoint of a run, if it has one. `passed_over` is called for each newer one that is damaged.
    ///
    /// # Errors
    /// The run's directory cannot be read; all its checkpoints are damaged (the error of the newest).
    pub fn newest(
        run: &Path,
        passed_over: impl FnMut(CheckpointError),
    ) -> Result<Option<Self>, CheckpointError> {
        Self::newest_checked(run, Depth::Model, passed_over)
    }

    /// As [`Checkpoint::newest`], of those that a run can be resumed from; none where all are damaged.
    ///
    /// # Errors
    /// The run's directory cannot be read; all its checkpoints are damaged (the error of the newest).
    pub fn newest_to_resume(
        run: &Path,
        passed_over: impl FnMut(CheckpointError),
    ) -> Result<Option<Self>, CheckpointError> {
        Self::newest_checked(run, Depth::All, passed_over)
    }

    fn newest_checked(
        run: &Path,
        depth: Depth,
        mut passed_over: impl FnMut(CheckpointError),
    ) -> Result<Option<Self>, CheckpointError> {
        let mut errors = Vec::new();
        for (_, path) in keep::listed(run)?.into_iter().rev() {
            match Self::checked(&path, depth) {
                Ok(checkpoint) => {
                    errors.into_iter().for_each(&mut passed_over);
                    return Ok(Some(checkpoint));
                }
                Err(error) => errors.push(error),
            }
        }
        errors.into_iter().next().map_or(Ok(None), Err)
    }

    /// The model's tokenizer, if it is known.
    ///
    /// # Errors
    /// The description is not one of this program's tokenizers, and the checkpoint has no usable file of it.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, CheckpointError> {
        let spec = self.description.tokenizer.as_ref();
        let open = |spec| Tokenizer::open(spec, &self.path);
        Ok(spec.map(open).transpose()?)
    }

    /// The model with the checkpoint's weights.
    ///
    /// # Errors
    /// The configuration is no model, or the weights are not the model's.
    pub fn decoder<B: Backend>(
        &self,
        device: &burn::tensor::Device<B>,
    ) -> Result<Decoder<B>, CheckpointError> {
        self.decoder_in(WeightFormat::F32, device)
    }

    /// The model with the checkpoint's weights in a format. Weights are packed one by one as they are read.
    ///
    /// # Errors
    /// As [`Checkpoint::decoder`].
    pub fn decoder_in<B: Backend>(
        &self,
        format: WeightFormat,
        device: &burn::tensor::Device<B>,
    ) -> Result<Decoder<B>, CheckpointError> {
        self.weights(MODEL, format, device)
    }

    /// The model with the weights that training resumes from: the same, unless those are an average.
    ///
    /// # Errors
    /// As [`Checkpoint::decoder`].
    pub fn training_decoder<B: Backend>(
        &self,
        device: &burn::tensor::Device<B>,
    ) -> Result<Decoder<B>, CheckpointError> {
        let name = match self.holds_average() {
            true => TRAINING,
            false => MODEL,
        };
        self.weights(name, WeightFormat::F32, device)
    }

    /// Returns true if [`Checkpoint::decoder`] is an average of the weights.
    pub fn holds_average(&self) -> bool {
        self.path.join(TRAINING).exists()
    }

    fn weights<B: Backend>(
        &self,
        name: &str,
        format: WeightFormat,
        device: &burn::tensor::Device<B>,
    ) -> Result<Decoder<B>, CheckpointError> {
        let config = DecoderConfig::try_from(self.description.model.clone())?;
        weights::load_own_in(config.blank::<B>(device), &self.path.join(name), format)
            .map_err(|error| broken(&self.path, error.to_string()))
    }

    /// The optimizer's state, by name.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn optimizer(&self) -> Result<Vec<(String, weights::HostTensor)>, CheckpointError> {
        weights::load_tensors(&self.path.join(OPTIMIZER))
            .map_err(|error| broken(&self.path, error.to_string()))
    }
}

/// The name of the directory of the checkpoint after `step` steps.
pub fn folder_name(step: usize) -> String {
    format!("step-{step:08}")
}

/// The step of a run's newest checkpoint, whole or damaged, if it has any.
///
/// # Errors
/// The run's directory cannot be read.
pub fn newest_step(run: &Path) -> Result<Option<usize>, CheckpointError> {
    Ok(keep::listed(run)?.last().map(|&(step, _)| step))
}

/// The step of a checkpoint's directory name.
pub(crate) fn step_of(path: &Path) -> Option<usize> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("step-")?.parse().ok()
}

fn broken(path: &Path, reason: String) -> CheckpointError {
    CheckpointError::Damaged {
        path: path.to_owned(),
        reason,
    }
}

fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T, CheckpointError> {
    let text = read::read_text(&folder.join(name), read::DESCRIPTION_LIMIT)
        .map_err(|error| broken(folder, format!("{name}: {error}")))?;
    serde_json::from_str(&text).map_err(|error| broken(folder, format!("{name}: {error}")))
}
