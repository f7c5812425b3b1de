//! Finds and reads checkpoints: directories `RUN/checkpoints/step-00000500/`, which are created atomically.
//! [`mod@crate::write`] writes them and [`crate::keep`] removes old ones.
//!
//! | file | contents |
//! |---|---|
//! | `model.safetensors` | weights, named by parameter paths; of a run with an adapter only the adapter's |
//! | `model.json` | model configuration and tokenizer, so that a checkpoint can be copied and used anywhere |
//! | `tokenizer.json` | the tokenizer, unless it is built in |
//! | `hugging_face_config.json`, `tokenizer_config.json`, … | unchanged files of the Hugging Face directory that the model was fine-tuned from |
//! | `training.safetensors` | weights that training resumes from, if `model.safetensors` contains their average |
//! | `optimizer.safetensors` | optimizer moments, named by parameter paths |
//! | `state.json` | progress of the run |
//! | `settings.toml` | settings that the run was trained with |
//! | `manifest.json` | size and BLAKE3 hash of every other file; written last |
//!
//! An untrained model has the same files, except for `optimizer.safetensors`, `state.json` and
//! `settings.toml`.
//!
//! Earlier versions wrote encoders and encoder–decoders as Hugging Face directories: instead of `model.json` they have
//! `config.json`, and `model.safetensors` has the names of that format.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use emberlm_kernels::Backend;
use emberlm_model::hugging_face::CONFIG_FILE;
use emberlm_model::weights::SafetensorsStore;
use emberlm_model::{AdapterError, Transformer, TransformerConfig, WeightsError, weights};
use emberlm_system::read;
use emberlm_tokenizer::{TOKENIZER_FILE, Tokenizer};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::description::{AdapterDescription, Description};
use crate::error::CheckpointError;
use crate::source_files::SourceFiles;

/// Directory of a run that contains its checkpoints.
pub const FOLDER: &str = "checkpoints";

pub(crate) const MANIFEST: &str = "manifest.json";
/// Weights that the model is used with.
pub const MODEL: &str = "model.safetensors";
/// File with the [`Description`], which identifies a directory as a checkpoint.
pub(crate) const DESCRIPTION: &str = "model.json";
/// Weights that training resumes from, if `model.safetensors` contains their average.
pub const TRAINING: &str = "training.safetensors";
/// State of the optimizer.
pub const OPTIMIZER: &str = "optimizer.safetensors";
/// Progress of the run.
pub const STATE: &str = "state.json";
/// Settings that the run was trained with, in the format of its `config.toml`.
pub const SETTINGS: &str = "settings.toml";

/// The fields of the trainer's state that do not need the trainer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Progress {
    /// Number of completed training steps.
    pub step: usize,
    /// True if the checkpoint is removed once a newer one is complete.
    #[serde(default)]
    pub temporary: bool,
}

/// A file's entry in the manifest.
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

/// A checkpoint whose files match its manifest. `S` is the type that `state.json` is deserialized to.
#[derive(Clone, Debug)]
pub struct Checkpoint<S = Progress> {
    /// Directory of the checkpoint.
    pub path: PathBuf,
    /// Description of the model; `None` for one in the form of a Hugging Face directory, which earlier versions wrote.
    pub description: Option<Description>,
    /// Progress of the run; `None` for an untrained model.
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

/// Extent of the verification when a checkpoint is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verification {
    /// Hashes of the files needed for inference, and sizes of the others.
    Inference,
    /// Hashes of all files.
    All,
}

impl<S: DeserializeOwned> Checkpoint<S> {
    /// Opens a checkpoint and verifies its files against the manifest, by their hashes. Files that only a resumed run
    /// reads (the optimizer state is two thirds of a checkpoint) are verified by their sizes.
    ///
    /// # Errors
    /// A file is missing, unreadable, or does not match the manifest.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        Self::open_verified(path, Verification::Inference)
    }

    /// [`Checkpoint::open`] for resuming its run: verifies the hashes of all files.
    ///
    /// # Errors
    /// Those of [`Checkpoint::open`].
    pub fn open_to_resume(path: &Path) -> Result<Self, CheckpointError> {
        Self::open_verified(path, Verification::All)
    }

    /// The settings that the run was trained with, in the format of its `config.toml`. `None` for checkpoints of earlier
    /// versions and of untrained models.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn settings(&self) -> Result<Option<String>, CheckpointError> {
        let file = self.path.join(SETTINGS);
        if !file.exists() {
            return Ok(None);
        }
        let text = read::read_text(&file, read::DESCRIPTION_LIMIT);
        text.map(Some).map_err(CheckpointError::file("read", file))
    }

    fn open_verified(path: &Path, verification: Verification) -> Result<Self, CheckpointError> {
        let manifest: Manifest = read_json(path, MANIFEST)?;
        let is_decoder = !manifest.contains_key(CONFIG_FILE);
        for name in [MODEL, DESCRIPTION] {
            if !manifest.contains_key(name) && (is_decoder || name == MODEL) {
                let reason = format!("its manifest does not list {name}");
                return Err(damaged(path, reason));
            }
        }
        let names = [
            MODEL,
            DESCRIPTION,
            CONFIG_FILE,
            STATE,
            SETTINGS,
            TRAINING,
            OPTIMIZER,
            TOKENIZER_FILE,
        ];
        for name in names.into_iter().chain(SourceFiles::names()) {
            let Some(expected) = manifest.get(name) else {
                continue;
            };
            let file = path.join(name);
            let unreadable = |error: &dyn std::fmt::Display| damaged(path, error.to_string());
            let matches = match name {
                OPTIMIZER | TRAINING if verification == Verification::Inference => {
                    let found = fs::metadata(&file).map_err(CheckpointError::file("read", &file));
                    found.map_err(|error| unreadable(&error))?.len() == expected.bytes
                }
                _ => Entry::of(&file).map_err(|error| unreadable(&error))? == *expected,
            };
            if !matches {
                let reason = format!("{name} is not the file that was written");
                return Err(damaged(path, reason));
            }
        }
        let trained = manifest.contains_key(STATE);
        Ok(Self {
            path: path.to_owned(),
            description: is_decoder
                .then(|| read_json(path, DESCRIPTION))
                .transpose()?,
            state: trained.then(|| read_json(path, STATE)).transpose()?,
        })
    }

    /// Opens the newest intact checkpoint of a run; returns `None` if the run has no checkpoint. `passed_over` is
    /// called for each newer, damaged one.
    ///
    /// # Errors
    /// The run's directory cannot be read, or all checkpoints are damaged. The error is then that of the newest.
    pub fn newest(
        run: &Path,
        passed_over: impl FnMut(CheckpointError),
    ) -> Result<Option<Self>, CheckpointError> {
        Self::newest_verified(run, Verification::Inference, passed_over)
    }

    /// [`Checkpoint::newest`] for resuming a run: verifies the hashes of all files.
    ///
    /// # Errors
    /// Those of [`Checkpoint::newest`].
    pub fn newest_to_resume(
        run: &Path,
        passed_over: impl FnMut(CheckpointError),
    ) -> Result<Option<Self>, CheckpointError> {
        Self::newest_verified(run, Verification::All, passed_over)
    }

    fn newest_verified(
        run: &Path,
        verification: Verification,
        mut passed_over: impl FnMut(CheckpointError),
    ) -> Result<Option<Self>, CheckpointError> {
        let mut errors = Vec::new();
        for (_, path) in listed(run)?.into_iter().rev() {
            match Self::open_verified(&path, verification) {
                Ok(checkpoint) => {
                    errors.into_iter().for_each(&mut passed_over);
                    return Ok(Some(checkpoint));
                }
                Err(error) => errors.push(error),
            }
        }
        errors.into_iter().next().map_or(Ok(None), Err)
    }

    /// Opens the model's tokenizer, if known.
    ///
    /// # Errors
    /// The tokenizer is not built in, and the checkpoint has no valid file of it.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, CheckpointError> {
        let file = self.path.join(TOKENIZER_FILE);
        Ok(match &self.description {
            Some(description) => {
                let open = |spec| Tokenizer::open(spec, &self.path);
                description.tokenizer.as_ref().map(open).transpose()?
            }
            None if file.exists() => Some(Tokenizer::from_file(&file)?),
            None => None,
        })
    }

    /// Returns true if [`Checkpoint::decoder`] loads an average of the weights.
    pub fn holds_average(&self) -> bool {
        self.path.join(TRAINING).exists()
    }

    /// Adds the checkpoint's adapter, if any, to its base model, with the configuration of the run.
    pub(crate) fn adapted<B: Backend>(
        &self,
        base: Transformer<B>,
    ) -> Result<Transformer<B>, CheckpointError> {
        let description = self.description.as_ref();
        let Some((description, adapter)) =
            description.and_then(|description| Some((description, description.adapter.as_ref()?)))
        else {
            return Ok(base);
        };
        let config = TransformerConfig::try_from(description.model.clone())?;
        self.add_adapter(adapter, base.reconfigured(&config)?)
    }

    /// Adds the checkpoint's adapter to its base model.
    pub(crate) fn add_adapter<B: Backend>(
        &self,
        adapter: &AdapterDescription,
        base: Transformer<B>,
    ) -> Result<Transformer<B>, CheckpointError> {
        let add = || -> Result<_, AdapterError> {
            let store = SafetensorsStore::open(&self.path.join(MODEL))?;
            base.with_adapter(&adapter.settings, 0)?
                .load_adapter(&store)
        };
        add().map_err(|error| damaged(&self.path, error.to_string()))
    }

    /// Reads the tensors of the optimizer's state one by one, with their names.
    ///
    /// # Errors
    /// The file cannot be read, or, as an item, one of its tensors.
    pub fn optimizer(
        &self,
    ) -> Result<
        impl Iterator<Item = Result<(String, weights::HostTensor), CheckpointError>>,
        CheckpointError,
    > {
        let error = |error: WeightsError| damaged(&self.path, error.to_string());
        let tensors = weights::read_tensors(&self.path.join(OPTIMIZER)).map_err(error)?;
        Ok(tensors.map(move |tensor| tensor.map_err(error)))
    }
}

/// Returns the name of the checkpoint directory of `step`.
pub fn folder_name(step: usize) -> String {
    format!("step-{step:08}")
}

/// Returns the step of a run's newest checkpoint, intact or damaged, if any.
///
/// # Errors
/// The run's directory cannot be read.
pub fn newest_step(run: &Path) -> Result<Option<usize>, CheckpointError> {
    Ok(listed(run)?.last().map(|&(step, _)| step))
}

/// Returns the directory of a run's newest checkpoint, intact or damaged, if any.
///
/// # Errors
/// The run's directory cannot be read.
pub fn newest_path(run: &Path) -> Result<Option<PathBuf>, CheckpointError> {
    Ok(listed(run)?.pop().map(|(_, path)| path))
}

/// Lists the checkpoints of a run, by ascending step, with their directories.
pub(crate) fn listed(run: &Path) -> Result<Vec<(usize, PathBuf)>, CheckpointError> {
    let folder = run.join(FOLDER);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(CheckpointError::file("read", folder)(error)),
    };
    let mut steps: Vec<(usize, PathBuf)> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(|path| Some((step_of(&path)?, path)))
        .collect();
    steps.sort_unstable();
    Ok(steps)
}

/// Parses the step from the name of a checkpoint directory.
fn step_of(path: &Path) -> Option<usize> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("step-")?.parse().ok()
}

pub(crate) fn damaged(path: &Path, reason: String) -> CheckpointError {
    CheckpointError::Damaged {
        path: path.to_owned(),
        reason,
    }
}

fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T, CheckpointError> {
    let text = read::read_text(&folder.join(name), read::DESCRIPTION_LIMIT)
        .map_err(|error| damaged(folder, format!("{name}: {error}")))?;
    serde_json::from_str(&text).map_err(|error| damaged(folder, format!("{name}: {error}")))
}
