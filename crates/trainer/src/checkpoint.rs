//! Checkpoints: `RUN/checkpoints/step-00000500/`, whole or absent.
//!
//! | file | holds |
//! |---|---|
//! | `model.safetensors` | the weights, by the decoder's paths |
//! | `model.json` | the model's configuration and the tokenizer: a checkpoint can be used wherever it is copied to |
//! | `tokenizer.json` | the tokenizer's own file, where it is not built in |
//! | `optimizer.safetensors` | AdamW's moments, by the same paths |
//! | `state.json` | where the run stood |
//! | `manifest.json` | size and BLAKE3 of each of the others, written last |
//!
//! A model that has not been trained is the same without `optimizer.safetensors` and `state.json`.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use emberlm_data::{TOKENIZER_FILE, Tokenizer, TokenizerSpec};
use emberlm_kernels::Backend;
use emberlm_model::{Decoder, DecoderConfig, ModelConfig, weights};
use serde::{Deserialize, Serialize};

use crate::error::TrainError;

const MANIFEST: &str = "manifest.json";
const MODEL: &str = "model.safetensors";
const DESCRIPTION: &str = "model.json";
const OPTIMIZER: &str = "optimizer.safetensors";
const STATE: &str = "state.json";

/// What a checkpoint's weights are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The model.
    pub model: ModelConfig,
    /// What its token ids stand for, if that is known.
    pub tokenizer: Option<TokenizerSpec>,
}

/// Where a run stood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Updates made: with the configuration, the whole position of a run.
    pub step: usize,
    /// The newest validation loss, if there was an evaluation.
    pub validation_loss: Option<f64>,
    /// The lowest one, and the step it was seen at.
    pub best: Option<Best>,
}

/// The lowest validation loss so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// In nats per token.
    pub loss: f64,
    /// Updates made by then.
    pub step: usize,
}

/// A file of a checkpoint, as the manifest lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    bytes: u64,
    blake3: String,
}

type Manifest = BTreeMap<String, Entry>;

/// A checkpoint that was found whole.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Its directory.
    pub path: PathBuf,
    /// What it holds.
    pub description: Description,
    /// Where the run stood; none for a model that has not been trained.
    pub state: Option<State>,
}

/// What goes into a checkpoint.
pub struct Contents<'a, B: Backend> {
    /// The weights.
    pub decoder: &'a Decoder<B>,
    /// AdamW's moments.
    pub optimizer: Vec<(String, weights::HostTensor)>,
    /// What the weights are.
    pub description: &'a Description,
    /// The tokenizer that the description names, for its own file, if it has one.
    pub tokenizer: Option<&'a Tokenizer>,
    /// Where the run stands.
    pub state: &'a State,
}

/// Writes a checkpoint into a run: beside its place, synced, then renamed. One of the same step is replaced.
///
/// # Errors
/// A file cannot be written; nothing of it is left then.
pub fn write<B: Backend>(run: &Path, contents: Contents<'_, B>) -> Result<PathBuf, TrainError> {
    let folder = run.join("checkpoints");
    let name = format!("step-{:08}", contents.state.step);
    let (place, aside) = (folder.join(&name), folder.join(format!(".{name}.partial")));
    remove(&aside)?;
    fs::create_dir_all(&aside).map_err(TrainError::file("create", &aside))?;
    let written = fill(&aside, contents).and_then(|()| {
        remove(&place)?;
        fs::rename(&aside, &place).map_err(TrainError::file("rename", &aside))?;
        sync(&folder)
    });
    if written.is_err() {
        // The first error is what the user needs to hear of.
        let _ = fs::remove_dir_all(&aside);
    }
    written.map(|()| place)
}

fn remove(folder: &Path) -> Result<(), TrainError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(TrainError::file("remove", folder)(error))
        }
        _ => Ok(()),
    }
}

fn fill<B: Backend>(folder: &Path, contents: Contents<'_, B>) -> Result<(), TrainError> {
    weights::save_own(&contents.optimizer, metadata(), &folder.join(OPTIMIZER))?;
    write_json(&folder.join(STATE), contents.state)?;
    let Contents {
        decoder,
        description,
        tokenizer,
        ..
    } = contents;
    write_model(folder, decoder, description, tokenizer, &[OPTIMIZER, STATE])
}

/// Writes a model that has not been trained into an existing directory.
///
/// # Errors
/// A file cannot be written.
pub fn write_untrained<B: Backend>(
    folder: &Path,
    decoder: &Decoder<B>,
    description: &Description,
    tokenizer: Option<&Tokenizer>,
) -> Result<(), TrainError> {
    write_model(folder, decoder, description, tokenizer, &[])
}

/// Writes the model and, last, the manifest of its files and `others`.
fn write_model<B: Backend>(
    folder: &Path,
    decoder: &Decoder<B>,
    description: &Description,
    tokenizer: Option<&Tokenizer>,
    others: &[&'static str],
) -> Result<(), TrainError> {
    let tensors = weights::named_tensors(decoder);
    weights::save_own(&tensors, metadata(), &folder.join(MODEL))?;
    write_json(&folder.join(DESCRIPTION), description)?;
    let mut names = vec![MODEL, DESCRIPTION];
    names.extend(others);
    if let Some(tokenizer) = tokenizer
        && tokenizer.save(folder)?
    {
        names.push(TOKENIZER_FILE);
    }
    let mut manifest = Manifest::new();
    for name in names {
        let path = folder.join(name);
        sync(&path)?;
        manifest.insert(name.to_owned(), entry(&path)?);
    }
    let path = folder.join(MANIFEST);
    write_json(&path, &manifest)?;
    sync(&path)?;
    sync(folder)
}

fn metadata() -> HashMap<String, String> {
    HashMap::from([("format".to_owned(), "emberlm".to_owned())])
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), TrainError> {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::from);
    text.and_then(|text| fs::write(path, text + "\n"))
        .map_err(TrainError::file("write", path))
}

fn sync(path: &Path) -> Result<(), TrainError> {
    let file = File::open(path).map_err(TrainError::file("open", path))?;
    file.sync_all().map_err(TrainError::file("sync", path))
}

fn entry(path: &Path) -> Result<Entry, TrainError> {
    let file = File::open(path).map_err(TrainError::file("open", path))?;
    let mut hasher = blake3::Hasher::new();
    hasher
        .update_reader(&file)
        .map_err(TrainError::file("read", path))?;
    Ok(Entry {
        bytes: hasher.count(),
        blake3: hasher.finalize().to_string(),
    })
}

impl Checkpoint {
    /// Opens a checkpoint's directory and checks its files against the manifest: the optimizer's, which is two thirds of
    /// all and which only a resumed run reads, by its size, every other by its hash.
    ///
    /// # Errors
    /// A file is missing, unreadable, or not the one that was written.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        let manifest: Manifest = read_json(path, MANIFEST)?;
        for name in [MODEL, DESCRIPTION] {
            if !manifest.contains_key(name) {
                let reason = format!("its manifest does not list {name}");
                return Err(broken(path, reason));
            }
        }
        for name in [MODEL, DESCRIPTION, STATE, OPTIMIZER, TOKENIZER_FILE] {
            let Some(expected) = manifest.get(name) else {
                continue;
            };
            let file = path.join(name);
            let unread = |error: &dyn std::fmt::Display| broken(path, error.to_string());
            let same = match name {
                OPTIMIZER => {
                    let found = fs::metadata(&file).map_err(TrainError::file("read", &file));
                    found.map_err(|error| unread(&error))?.len() == expected.bytes
                }
                _ => entry(&file).map_err(|error| unread(&error))? == *expected,
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

    /// The newest whole checkpoint of a run, if it has one. Damaged ones are passed over.
    ///
    /// # Errors
    /// The run's directory cannot be read; all its checkpoints are damaged (the newest one's error).
    pub fn newest(run: &Path) -> Result<Option<Self>, TrainError> {
        let folder = run.join("checkpoints");
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(TrainError::file("read", folder)(error)),
        };
        let mut steps: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| step_of(path).is_some())
            .collect();
        steps.sort_unstable_by_key(|path| step_of(path));
        let mut first_error = None;
        for path in steps.iter().rev() {
            match Self::open(path) {
                Ok(checkpoint) => return Ok(Some(checkpoint)),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error.map_or(Ok(None), Err)
    }

    /// What the model's token ids stand for, if that is known.
    ///
    /// # Errors
    /// The description is not one of this program's tokenizers, and the checkpoint has no usable file of it.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, TrainError> {
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
    ) -> Result<Decoder<B>, TrainError> {
        let config = DecoderConfig::try_from(self.description.model.clone())?;
        weights::load_own(config.blank::<B>(device), &self.path.join(MODEL))
            .map_err(|error| broken(&self.path, error.to_string()))
    }
}

/// The step of a checkpoint's directory name.
fn step_of(path: &Path) -> Option<usize> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("step-")?.parse().ok()
}

fn broken(path: &Path, reason: String) -> TrainError {
    TrainError::Checkpoint {
        path: path.to_owned(),
        reason,
    }
}

fn read_json<T: serde::de::DeserializeOwned>(folder: &Path, name: &str) -> Result<T, TrainError> {
    let text = fs::read_to_string(folder.join(name))
        .map_err(|error| broken(folder, format!("{name}: {error}")))?;
    serde_json::from_str(&text).map_err(|error| broken(folder, format!("{name}: {error}")))
}
