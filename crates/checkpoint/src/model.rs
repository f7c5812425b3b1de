//! Opens a model directory of any kind: a run (its newest whole checkpoint), a checkpoint, a new model, or a Hugging Face
//! directory.

mod weights;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use emberlm_data::{Dataset, MANIFEST_FILE, Packing};
use emberlm_model::hugging_face::{CONFIG_FILE, HuggingFaceModel};
use emberlm_model::{DecoderConfig, WeightFormat};
use emberlm_system::digits::grouped;
use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_tokenizer::chat::{ChatEncoder, ChatTemplate, ChatTemplateSpec, Stops};
use emberlm_tokenizer::{TOKENIZER_FILE, Tokenizer, TokenizerSpec};
use serde_json::{Map, Value};

use crate::checkpoint::{Checkpoint, DESCRIPTION, FOLDER};
use crate::error::{CheckpointError, ModelError};
use crate::source_files::SourceFiles;

/// The default limit of a generation context, in tokens: its cache is allocated at once.
const USUAL_CONTEXT: usize = 8192;

/// The file in which `transformers` keeps the settings that a model is best sampled with.
pub const GENERATION_CONFIG_FILE: &str = "generation_config.json";

/// A model whose configuration has been read.
#[derive(Debug)]
pub struct Model {
    opened: PathBuf,
    source: Source,
    config: DecoderConfig,
    passed_over: Vec<CheckpointError>,
}

#[derive(Debug)]
enum Source {
    Own(Box<Checkpoint>),
    HuggingFace(Box<HuggingFaceModel>),
}

impl Model {
    /// Opens the model at `path`. Weights are read by [`Model::decoder`] only.
    ///
    /// # Errors
    /// `path` holds no model, or a file of the model is damaged or cannot be read. A run with damaged checkpoints opens at
    /// the newest whole one: see [`Model::passed_over`].
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let is_directory = fs::metadata(path)
            .map_err(|error| missing(path, error))?
            .is_dir();
        let holds = |name: &str| path.join(name).exists();
        let path_buf = || path.to_owned();
        if !is_directory {
            return Err(match is_gguf(path) {
                true => ModelError::Gguf { path: path_buf() },
                false => ModelError::NotADirectory { path: path_buf() },
            });
        }
        if holds(DESCRIPTION) {
            return Self::own(path, Checkpoint::open(path)?, Vec::new());
        }
        if holds(FOLDER) {
            let (newest, passed_over) = newest(path)?;
            let newest = newest.ok_or_else(|| ModelError::NoCheckpoint { path: path_buf() })?;
            return Self::own(path, newest, passed_over);
        }
        if holds(CONFIG_FILE) {
            let model = HuggingFaceModel::open(path)?;
            return Ok(Self {
                opened: path_buf(),
                config: model.config().clone(),
                source: Source::HuggingFace(Box::new(model)),
                passed_over: Vec::new(),
            });
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

    fn own(
        opened: &Path,
        checkpoint: Checkpoint,
        passed_over: Vec<CheckpointError>,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            opened: opened.to_owned(),
            config: DecoderConfig::try_from(checkpoint.description.model.clone())?,
            source: Source::Own(Box::new(checkpoint)),
            passed_over,
        })
    }

    /// The damaged checkpoints of the run that are newer than the one that was opened, newest first.
    pub fn passed_over(&self) -> &[CheckpointError] {
        &self.passed_over
    }

    /// The directory that its files are in.
    pub fn path(&self) -> &Path {
        match &self.source {
            Source::Own(checkpoint) => &checkpoint.path,
            Source::HuggingFace(model) => model.path(),
        }
    }

    /// The model's configuration.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// The Hugging Face directory, if the model is one.
    pub fn hugging_face(&self) -> Option<&HuggingFaceModel> {
        match &self.source {
            Source::Own(_) => None,
            Source::HuggingFace(model) => Some(model),
        }
    }

    /// The files on tokens, conversations and generation of the Hugging Face directory that the model is, or was trained
    /// from.
    ///
    /// # Errors
    /// A file is there and cannot be read.
    pub fn source_files(&self) -> Result<SourceFiles, ModelError> {
        Ok(match &self.source {
            Source::Own(checkpoint) => SourceFiles::of_checkpoint(&checkpoint.path)?,
            Source::HuggingFace(model) => SourceFiles::of_hugging_face(model.path())?,
        })
    }

    /// One line on where the model comes from: "a checkpoint after 1,000 steps".
    pub fn about(&self) -> Result<String, ModelError> {
        Ok(match &self.source {
            Source::Own(checkpoint) => match &checkpoint.state {
                Some(state) => {
                    format!("a checkpoint after {} steps", grouped(state.step as u64))
                }
                None => "a model that has not been trained".to_owned(),
            },
            Source::HuggingFace(model) => {
                let kind = model.config().family().model_type().unwrap_or_default();
                let stored = match model.weight_format() {
                    WeightFormat::F32 => model.element()?.name(),
                    packed => packed.name(),
                };
                format!("a Hugging Face model of type {kind}, stored in {stored}")
            }
        })
    }

    /// The packing of documents that the model was trained with; a stream for models that do not record it.
    pub fn documents(&self) -> Packing {
        match &self.source {
            Source::Own(checkpoint) => checkpoint.description.documents,
            Source::HuggingFace(_) => Packing::Stream,
        }
    }

    /// Tokens of the sequences that the model was trained on by emberlm, where they are known to be shorter than its
    /// context.
    pub fn trained_seq_len(&self) -> Option<usize> {
        match &self.source {
            Source::Own(checkpoint) => checkpoint.description.seq_len,
            Source::HuggingFace(_) => None,
        }
    }

    /// The model's tokenizer, if it has one.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, ModelError> {
        Ok(match &self.source {
            Source::Own(checkpoint) => checkpoint.tokenizer()?,
            Source::HuggingFace(model) => {
                let file = model.path().join(TOKENIZER_FILE);
                file.exists()
                    .then(|| Tokenizer::from_file(&file))
                    .transpose()?
            }
        })
    }

    /// The tokenizer of a model that reads and writes text.
    ///
    /// # Errors
    /// The model has no tokenizer.
    pub fn require_tokenizer(&self) -> Result<Tokenizer, ModelError> {
        let none = || ModelError::NoTokenizer {
            path: self.opened.clone(),
        };
        self.tokenizer()?.ok_or_else(none)
    }

    /// The length of a generation context in tokens: `asked`, or else the model's context, but at most 8192.
    ///
    /// # Errors
    /// `asked` is longer than the model's context.
    pub fn context(&self, asked: Option<usize>) -> Result<usize, ModelError> {
        let whole = self.config.seq_len();
        match asked {
            Some(context) if context > whole => Err(ModelError::Context {
                context,
                limit: whole,
            }),
            Some(context) => Ok(context),
            None => Ok(whole.min(USUAL_CONTEXT)),
        }
    }

    /// The specification of the model's tokenizer, without reading a built-in vocabulary.
    pub fn tokenizer_spec(&self) -> Result<Option<TokenizerSpec>, ModelError> {
        match &self.source {
            Source::Own(checkpoint) => Ok(checkpoint.description.tokenizer.clone()),
            Source::HuggingFace(_) => Ok(self.tokenizer()?.map(|tokenizer| tokenizer.spec())),
        }
    }

    /// The tokenizer, unless its hash is known without reading it and is `hash`.
    fn tokenizer_unless(&self, hash: &str) -> Result<Option<Tokenizer>, ModelError> {
        let known = match &self.source {
            Source::Own(checkpoint) => checkpoint.description.tokenizer.as_ref(),
            Source::HuggingFace(_) => None,
        };
        match known {
            Some(spec) if spec.hash == hash => Ok(None),
            _ => self.tokenizer(),
        }
    }

    /// The ids that end a text: the tokenizer's, and the `eos_token_id`s of a Hugging Face configuration and of
    /// [`Model::generation_config`].
    pub fn stop_tokens(&self, tokenizer: Option<&Tokenizer>) -> Vec<u32> {
        let mut ids: Vec<u32> = tokenizer
            .and_then(Tokenizer::end_of_text)
            .into_iter()
            .collect();
        if let Source::HuggingFace(model) = &self.source {
            ids.extend(token_ids(model.fields().get("eos_token_id")));
        }
        let recommended = self.generation_config().unwrap_or_default();
        ids.extend(token_ids(recommended.get("eos_token_id")));
        // A model smaller than its tokenizer's vocabulary can never choose it.
        ids.retain(|&id| (id as usize) < self.config.vocab_size());
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The fields of the `generation_config.json` in the model's directory; none where there is no such file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a JSON object.
    pub fn generation_config(&self) -> Result<Map<String, Value>, ModelError> {
        generation_config(self.path())
    }

    /// The encoder of conversations: with the template `asked` for (chatml, llama3 or a path), else with the model's own.
    /// `None` for a model without one.
    ///
    /// Models that emberlm trained have seen the end-of-text token before every conversation, so prompts begin with it,
    /// unless the template writes a special token there itself.
    pub fn chat(
        &self,
        tokenizer: &Tokenizer,
        asked: Option<&str>,
    ) -> Result<Option<ChatEncoder>, ModelError> {
        let template = match asked {
            Some(asked) => Some(asked.parse()?),
            None => self.chat_template()?,
        };
        Ok(template.map(|template| self.encoder(template, tokenizer)))
    }

    /// [`Model::chat`] with the template named `tool_use`, for conversations with tools. `None` if there is no such template.
    pub fn tool_chat(
        &self,
        tokenizer: &Tokenizer,
        asked: Option<&str>,
    ) -> Result<Option<ChatEncoder>, ModelError> {
        let template = match (asked, &self.source) {
            (Some(asked), _) => ChatTemplate::for_tools(asked)?,
            (None, Source::HuggingFace(model)) => ChatTemplate::for_tools_beside(model.path())?,
            (None, Source::Own(_)) => None,
        };
        Ok(template.map(|template| self.encoder(template, tokenizer)))
    }

    fn encoder(&self, template: ChatTemplate, tokenizer: &Tokenizer) -> ChatEncoder {
        let encoder = ChatEncoder::new(template, tokenizer);
        let trained = self.chat_template_spec();
        let begins_itself = match trained {
            Some(spec) if spec.template == encoder.template().source() => {
                spec.begins_with.is_some()
            }
            _ => encoder.begins_with().is_some(),
        };
        let beginning = match &self.source {
            Source::Own(_) if !begins_itself => tokenizer.end_of_text().into_iter().collect(),
            Source::Own(_) | Source::HuggingFace(_) => Vec::new(),
        };
        encoder.with_beginning(beginning)
    }

    /// The specification of the chat template that the model was trained with by emberlm, if it was.
    pub fn chat_template_spec(&self) -> Option<&ChatTemplateSpec> {
        match &self.source {
            Source::Own(checkpoint) => checkpoint.description.chat_template.as_ref(),
            Source::HuggingFace(_) => None,
        }
    }

    /// The model's own chat template: that of the dataset it was trained on, or the one beside a Hugging Face model.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, ModelError> {
        Ok(match &self.source {
            Source::Own(_) => {
                let spec = self.chat_template_spec();
                spec.map(ChatTemplate::try_from).transpose()?
            }
            Source::HuggingFace(model) => ChatTemplate::beside_model(model.path())?,
        })
    }

    /// The texts and tokens that end an answer: [`ChatEncoder::stops`] and [`Model::stop_tokens`].
    pub fn chat_stops(&self, tokenizer: &Tokenizer, encoder: &ChatEncoder) -> Stops {
        let mut stops = encoder.stops();
        stops.tokens.extend(self.stop_tokens(Some(tokenizer)));
        stops
            .tokens
            .retain(|&id| (id as usize) < self.config.vocab_size());
        stops.tokens.sort_unstable();
        stops.tokens.dedup();
        stops
    }

    /// The id that begins a text without a prompt, if there is one.
    pub fn beginning(&self, tokenizer: &Tokenizer) -> Option<u32> {
        let named = match &self.source {
            Source::Own(_) => {
                let spec = self.chat_template_spec();
                let name = spec.and_then(|spec| spec.begins_with.as_deref());
                name.and_then(|name| tokenizer.special_id(name))
            }
            Source::HuggingFace(model) => token_ids(model.fields().get("bos_token_id"))
                .first()
                .copied(),
        };
        let known = named.filter(|&id| (id as usize) < self.config.vocab_size());
        known.or_else(|| tokenizer.end_of_text())
    }

    /// Checks that a dataset's token ids mean the same to the model as to the dataset.
    ///
    /// # Errors
    /// The dataset has another tokenizer, or more ids than the model.
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

/// The newest whole checkpoint of a run, with the errors of the newer ones.
fn newest(run: &Path) -> Result<(Option<Checkpoint>, Vec<CheckpointError>), CheckpointError> {
    let mut passed_over = Vec::new();
    let newest = Checkpoint::newest(run, |damaged| passed_over.push(damaged))?;
    Ok((newest, passed_over))
}

fn is_gguf(path: &Path) -> bool {
    let extension = path.extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

fn missing(path: &Path, source: io::Error) -> ModelError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => ModelError::NotFound { path },
        _ => ModelError::Read { path, source },
    }
}

/// The fields of the `generation_config.json` in a model's directory.
pub(crate) fn generation_config(folder: &Path) -> Result<Map<String, Value>, ModelError> {
    let path = folder.join(GENERATION_CONFIG_FILE);
    let refuse = |reason: String| ModelError::GenerationConfig {
        path: path.clone(),
        reason,
    };
    match read_text(&path, DESCRIPTION_LIMIT) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| refuse(error.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Map::new()),
        Err(error) => Err(refuse(error.to_string())),
    }
}

/// One id, or a list of them.
pub(crate) fn token_ids(value: Option<&Value>) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(id).collect(),
        Some(value) => id(value).into_iter().collect(),
        None => Vec::new(),
    }
}
