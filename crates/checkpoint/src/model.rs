//! Opens a model of any kind: a run (its newest intact checkpoint), a checkpoint, an untrained model, a Hugging Face
//! directory, or a GGUF file.

mod about;
mod adapter;
mod adapter_source;
mod base;
pub(crate) mod chat;
mod stored;
mod weights;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use emberlm_data::{Dataset, MANIFEST_FILE};
use emberlm_gguf::is_gguf;
use emberlm_model::adapter::ADAPTER_CONFIG_FILE;
use emberlm_model::hugging_face::{CONFIG_FILE, HeadStyle, HuggingFaceModel, heads_of};
use emberlm_model::{ModelKind, TransformerConfig};
use emberlm_tokenizer::{SequenceEncoder, TOKENIZER_FILE, Tokenizer, TokenizerSpec};
use serde_json::{Map, Value};

use crate::checkpoint::{Checkpoint, DESCRIPTION, FOLDER};
use crate::description::Description;
use crate::error::{CheckpointError, ModelError};
use crate::published_files::{PublishedFiles, generation_config};
pub use crate::source_files::GENERATION_CONFIG_FILE;
use crate::source_files::SourceFiles;
use adapter_source::AdapterSource;

/// Default limit of a generation context, in tokens. Its cache is allocated in advance, so longer contexts must be
/// requested.
const DEFAULT_CONTEXT_LIMIT: usize = 8192;

/// A model whose configuration has been read.
#[derive(Debug)]
pub struct Model {
    opened: PathBuf,
    source: Source,
    config: TransformerConfig,
    /// An adapter to add to the weights.
    adapter: Option<AdapterSource>,
    passed_over: Vec<CheckpointError>,
}

#[derive(Debug)]
enum Source {
    Checkpoint {
        checkpoint: Box<Checkpoint>,
        description: Box<Description>,
    },
    HuggingFace {
        model: Box<HuggingFaceModel>,
        files: PublishedFiles,
    },
}

impl Model {
    /// Opens the model at `path`, of any kind, without loading its weights, which [`Model::decoder`] does.
    ///
    /// # Errors
    /// `path` does not contain a model, or a file of the model is damaged or cannot be read. A run with damaged
    /// checkpoints opens at the newest intact one; see [`Model::passed_over`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::open_path(path.as_ref())
    }

    fn open_path(path: &Path) -> Result<Self, ModelError> {
        let is_directory = fs::metadata(path)
            .map_err(|error| missing(path, error))?
            .is_dir();
        let holds = |name: &str| path.join(name).exists();
        let path_buf = || path.to_owned();
        if !is_directory {
            return match is_gguf(path) {
                true => Self::from_hugging_face(path, path, Vec::new()),
                false => Err(ModelError::NotADirectory { path: path_buf() }),
            };
        }
        if holds(DESCRIPTION) {
            return Self::from_checkpoint(path, Checkpoint::open(path)?, Vec::new());
        }
        if holds(FOLDER) {
            let (newest, passed_over) = newest(path)?;
            let newest = newest.ok_or_else(|| ModelError::NoCheckpoint { path: path_buf() })?;
            return Self::from_checkpoint(path, newest, passed_over);
        }
        if holds(CONFIG_FILE) {
            return Self::from_hugging_face(path, path, Vec::new());
        }
        if holds(ADAPTER_CONFIG_FILE) {
            return Self::from_peft(path);
        }
        let mut files = fs::read_dir(path).into_iter().flatten().flatten();
        Err(match holds(MANIFEST_FILE) {
            true => ModelError::Dataset { path: path_buf() },
            false if files.any(|file| is_gguf(&file.path())) => {
                ModelError::Gguf { path: path_buf() }
            }
            false => ModelError::NotAModel { path: path_buf() },
        })
    }

    fn from_checkpoint(
        opened: &Path,
        checkpoint: Checkpoint,
        passed_over: Vec<CheckpointError>,
    ) -> Result<Self, ModelError> {
        let Some(description) = checkpoint.description.clone() else {
            return Self::from_hugging_face(opened, &checkpoint.path, passed_over);
        };
        Ok(Self {
            opened: opened.to_owned(),
            config: TransformerConfig::try_from(description.model.clone())?,
            source: Source::Checkpoint {
                checkpoint: Box::new(checkpoint),
                description: Box::new(description),
            },
            adapter: None,
            passed_over,
        })
    }

    fn from_hugging_face(
        opened: &Path,
        path: &Path,
        passed_over: Vec<CheckpointError>,
    ) -> Result<Self, ModelError> {
        let model = HuggingFaceModel::open(path)?;
        Ok(Self {
            opened: opened.to_owned(),
            config: model.config().clone(),
            source: Source::HuggingFace {
                files: PublishedFiles::of(&model),
                model: Box::new(model),
            },
            adapter: None,
            passed_over,
        })
    }

    /// The errors of damaged checkpoints that are newer than the opened one, newest first.
    pub fn passed_over(&self) -> &[CheckpointError] {
        &self.passed_over
    }

    /// Warnings about settings in the model's files that are ignored.
    pub fn warnings(&self) -> Vec<String> {
        match &self.source {
            Source::Checkpoint { .. } => Vec::new(),
            Source::HuggingFace { model, files } => {
                let own = model.warnings().iter().cloned();
                own.chain(files.warnings(self.kind())).collect()
            }
        }
    }

    /// The directory that contains the model's files, or the model's GGUF file.
    pub fn path(&self) -> &Path {
        match &self.source {
            Source::Checkpoint { checkpoint, .. } => &checkpoint.path,
            Source::HuggingFace { model, .. } => model.path(),
        }
    }

    /// The kind of model.
    pub fn kind(&self) -> ModelKind {
        self.config.kind()
    }

    /// Returns the model if it is of the kind `needed`.
    ///
    /// # Errors
    /// It is of another kind.
    pub fn of_kind(self, needed: ModelKind) -> Result<Self, ModelError> {
        match self.kind() {
            found if found == needed => Ok(self),
            found => Err(ModelError::OtherKind {
                path: self.opened,
                found,
                needed,
            }),
        }
    }

    /// The model's configuration.
    pub fn config(&self) -> &TransformerConfig {
        &self.config
    }

    /// The Hugging Face directory or GGUF file, if the model was opened from one.
    pub fn hugging_face(&self) -> Option<&HuggingFaceModel> {
        match &self.source {
            Source::Checkpoint { .. } => None,
            Source::HuggingFace { model, .. } => Some(model),
        }
    }

    /// The model type in `transformers`, or the family's name if it has none.
    pub fn model_type(&self) -> &'static str {
        let family = self.config.family();
        family.model_type().unwrap_or(family.name())
    }

    /// The form of the heads of an encoder; `None` for other models.
    ///
    /// # Errors
    /// A file of a checkpoint cannot be read, or its family cannot express the encoder.
    pub fn heads(&self) -> Result<Option<HeadStyle>, ModelError> {
        if let Some(directory) = self.hugging_face() {
            return Ok(directory.heads().copied());
        }
        if self.kind() != ModelKind::Encoder {
            return Ok(None);
        }
        let model_type = self.config.family().model_type();
        let fields = self.source_files()?.config_fields(model_type);
        let heads = heads_of(&self.config, fields.unwrap_or_default());
        Ok(heads.map_err(CheckpointError::from)?)
    }

    /// Reads the tokenizer, chat and generation settings of the Hugging Face directory that the model was opened or
    /// fine-tuned from.
    ///
    /// # Errors
    /// A file exists but cannot be read.
    pub fn source_files(&self) -> Result<SourceFiles, ModelError> {
        Ok(match &self.source {
            Source::Checkpoint { checkpoint, .. } => SourceFiles::of_checkpoint(&checkpoint.path)?,
            Source::HuggingFace { model, files } => files.source_files(model.fields())?,
        })
    }

    /// The model's tokenizer, if it has one.
    ///
    /// # Errors
    /// It cannot be read, or has more ids than the model. A decoder may have fewer, and does not generate the others.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, ModelError> {
        let tokenizer = match &self.source {
            Source::Checkpoint { checkpoint, .. } => checkpoint.tokenizer()?,
            Source::HuggingFace { files, .. } => files.tokenizer()?,
        };
        let vocab_size = self.config.vocab_size();
        match tokenizer.as_ref().map(Tokenizer::vocab_size) {
            Some(ids) if ids > vocab_size && self.kind() != ModelKind::Decoder => {
                Err(ModelError::SmallVocabulary {
                    dataset: self.path().join(TOKENIZER_FILE),
                    ids,
                    model: self.path().to_owned(),
                    vocab_size,
                })
            }
            _ => Ok(tokenizer),
        }
    }

    /// The model's tokenizer, for operations on text.
    ///
    /// # Errors
    /// The model has no tokenizer, or the tokenizer cannot be read.
    pub fn require_tokenizer(&self) -> Result<Tokenizer, ModelError> {
        let error = || ModelError::NoTokenizer {
            path: self.opened.clone(),
        };
        self.tokenizer()?.ok_or_else(error)
    }

    /// The length of a generation context in tokens: `requested`, by default the model's context but at most 8192. An
    /// encoder–decoder with relative positions, which set no limit, has by default T5's 512 tokens.
    ///
    /// # Errors
    /// `requested` is longer than the model's context.
    pub fn context(&self, requested: Option<usize>) -> Result<usize, ModelError> {
        let limit = match self.kind() {
            ModelKind::EncoderDecoder if requested.is_some() => usize::MAX,
            _ => self.config.seq_len(),
        };
        match requested {
            Some(context) if context > limit => Err(ModelError::Context { context, limit }),
            Some(context) => Ok(context),
            None => Ok(limit.min(DEFAULT_CONTEXT_LIMIT)),
        }
    }

    /// The specification of the model's tokenizer. Built-in vocabularies are not loaded.
    pub fn tokenizer_spec(&self) -> Result<Option<TokenizerSpec>, ModelError> {
        match &self.source {
            Source::Checkpoint { description, .. } => Ok(description.tokenizer.clone()),
            Source::HuggingFace { .. } => Ok(self.tokenizer()?.map(|tokenizer| tokenizer.spec())),
        }
    }

    /// Loads the tokenizer, unless the checkpoint records its hash and the hash is `hash`.
    fn tokenizer_unless(&self, hash: &str) -> Result<Option<Tokenizer>, ModelError> {
        let known = match &self.source {
            Source::Checkpoint { description, .. } => description.tokenizer.as_ref(),
            Source::HuggingFace { .. } => None,
        };
        match known {
            Some(spec) if spec.hash == hash => Ok(None),
            _ => self.tokenizer(),
        }
    }

    /// The ids that end a text: the tokenizer's end-of-text token, and the `eos_token_id`s in a Hugging Face
    /// configuration and in [`Model::generation_config`]. The targets of a published encoder–decoder end by the latter only.
    pub fn stop_tokens(&self, tokenizer: Option<&Tokenizer>) -> Vec<u32> {
        let of_files = self.kind() == ModelKind::EncoderDecoder && self.hugging_face().is_some();
        let mut ids: Vec<u32> = tokenizer
            .filter(|_| !of_files)
            .and_then(Tokenizer::end_of_text)
            .into_iter()
            .collect();
        if let Source::HuggingFace { model, .. } = &self.source {
            ids.extend(token_ids(model.fields().get("eos_token_id")));
        }
        let recommended = self.generation_config().unwrap_or_default();
        ids.extend(token_ids(recommended.get("eos_token_id")));
        // A model whose vocabulary is smaller than the tokenizer's cannot generate the other ids.
        ids.retain(|&id| (id as usize) < self.config.vocab_size());
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Reads `generation_config.json` in the model's directory; empty if the file does not exist.
    ///
    /// # Errors
    /// The file cannot be read, or it is not a JSON object.
    pub fn generation_config(&self) -> Result<Map<String, Value>, ModelError> {
        match &self.source {
            Source::Checkpoint { checkpoint, .. } => generation_config(&checkpoint.path),
            Source::HuggingFace { files, .. } => files.generation_config(),
        }
    }

    /// Encodes a text for the model to continue, after the special tokens of [`Tokenizer::encode_prompt`]. An empty text
    /// is [`Model::beginning`], or a line break if the model has no such token. An encoder–decoder's source has the special
    /// tokens of the tokenizer's template.
    ///
    /// # Errors
    /// The tokenizer cannot encode the text, or has no line break.
    pub fn prompt(&self, tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, ModelError> {
        if self.kind() == ModelKind::EncoderDecoder {
            return Ok(SequenceEncoder::new(tokenizer, usize::MAX)
                .encode(text)?
                .ids);
        }
        if !text.is_empty() {
            return Ok(tokenizer.encode_prompt(text)?);
        }
        if let Some(beginning) = self.beginning(tokenizer) {
            return Ok(vec![beginning]);
        }
        let line_break = tokenizer.encode("\n").unwrap_or_default();
        match line_break.is_empty() {
            true => Err(ModelError::NoBeginning),
            false => Ok(line_break),
        }
    }

    /// The id that begins a text generated without a prompt, if any.
    pub fn beginning(&self, tokenizer: &Tokenizer) -> Option<u32> {
        let named = match &self.source {
            Source::Checkpoint { .. } => {
                let spec = self.chat_template_spec();
                let name = spec.and_then(|spec| spec.begins_with.as_deref());
                name.and_then(|name| tokenizer.special_id(name))
            }
            Source::HuggingFace { model, .. } => token_ids(model.fields().get("bos_token_id"))
                .first()
                .copied(),
        };
        let known = named.filter(|&id| (id as usize) < self.config.vocab_size());
        known.or_else(|| tokenizer.end_of_text())
    }

    /// Checks that the model and a dataset agree on the meaning of token ids.
    ///
    /// # Errors
    /// The dataset has another tokenizer, or ids outside the model's vocabulary.
    pub fn check_dataset(&self, dataset: &Dataset) -> Result<(), ModelError> {
        let of_dataset = &dataset.manifest().tokenizer;
        if let Some(of_model) = self.tokenizer_unless(&of_dataset.hash)?
            && !of_model.agrees_with(dataset.tokenizer())
        {
            return Err(ModelError::OtherTokenizer {
                dataset: dataset.folder().to_owned(),
                of_dataset: Box::new(of_dataset.clone()),
                model: self.path().to_owned(),
                of_model: Box::new(of_model.spec()),
            });
        }
        let (vocab_size, ids) = (self.config.vocab_size(), of_dataset.vocab_size);
        if ids > vocab_size {
            return Err(ModelError::SmallVocabulary {
                dataset: dataset.folder().to_owned(),
                ids,
                model: self.path().to_owned(),
                vocab_size,
            });
        }
        Ok(())
    }
}

/// Opens the newest intact checkpoint of a run; also returns the errors of newer ones.
pub(crate) fn newest(
    run: &Path,
) -> Result<(Option<Checkpoint>, Vec<CheckpointError>), CheckpointError> {
    let mut passed_over = Vec::new();
    let newest = Checkpoint::newest(run, |damaged| passed_over.push(damaged))?;
    Ok((newest, passed_over))
}

pub(crate) fn missing(path: &Path, source: io::Error) -> ModelError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => ModelError::NotFound { path },
        _ => ModelError::Read { path, source },
    }
}

/// Parses a token id or a list of token ids.
pub(crate) fn token_ids(value: Option<&Value>) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(id).collect(),
        Some(value) => id(value).into_iter().collect(),
        None => Vec::new(),
    }
}
