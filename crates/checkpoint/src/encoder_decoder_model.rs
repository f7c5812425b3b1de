//! Opens a directory of an encoder–decoder: a Hugging Face directory of type `t5` or `mt5`, a run or a checkpoint.
//!
//! | file | read for |
//! |---|---|
//! | `config.json`, `model.safetensors` | the model |
//! | `tokenizer.json` | token ids, and the special tokens around a source |
//! | `generation_config.json` | sampling settings, the tokens that end a target |

use std::path::Path;

use burn::tensor::Device;
use emberlm_kernels::Backend;
use emberlm_model::hugging_face::encoder_decoder::HuggingFaceEncoderDecoder;
use emberlm_model::{Transformer, TransformerConfig};
use emberlm_tokenizer::chat::{ChatEncoder, ChatTemplate, Stops};
use emberlm_tokenizer::{SequenceEncoder, Tokenizer, config_warnings};
use serde_json::{Map, Value};

use crate::encoder_model::tokenizer_beside;
use crate::error::{CheckpointError, ModelError};
use crate::kind::model_folder;
use crate::model::chat::stops_of;
use crate::model::token_ids;
use crate::published_files::generation_config;

/// An encoder–decoder whose configuration and tokenizer have been read.
///
/// ```no_run
/// use burn::backend::Flex;
/// use emberlm_checkpoint::EncoderDecoderModel;
///
/// # fn main() -> Result<(), emberlm_checkpoint::ModelError> {
/// let model = EncoderDecoderModel::open("flan-t5-small")?;
/// let source = model.encode("translate English to German: a house")?;
/// let weights = model.load::<Flex>(&Default::default())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EncoderDecoderModel {
    source: HuggingFaceEncoderDecoder,
    tokenizer: Option<Tokenizer>,
    passed_over: Vec<CheckpointError>,
    warnings: Vec<String>,
}

impl EncoderDecoderModel {
    /// Opens the encoder–decoder at `path`. Its weights are read by [`EncoderDecoderModel::load`] only.
    ///
    /// # Errors
    /// `path` holds no encoder–decoder, a file is damaged or cannot be read, or the tokenizer has more ids than the
    /// model. A run with damaged checkpoints opens at the newest intact one; see [`EncoderDecoderModel::passed_over`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::open_path(path.as_ref())
    }

    fn open_path(path: &Path) -> Result<Self, ModelError> {
        let (path, passed_over) = model_folder(path)?;
        let path = path.as_path();
        let source = HuggingFaceEncoderDecoder::open(path)?;
        let tokenizer = tokenizer_beside(path, source.config().vocab_size())?;
        let mut warnings = source.warnings().to_vec();
        warnings.extend(config_warnings(path, true));
        Ok(Self {
            warnings,
            source,
            tokenizer,
            passed_over,
        })
    }

    /// The errors of damaged checkpoints that are newer than the opened one, newest first.
    pub fn passed_over(&self) -> &[CheckpointError] {
        &self.passed_over
    }

    /// Warnings about settings in the directory's files that are ignored.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The model's configuration.
    pub fn config(&self) -> &TransformerConfig {
        self.source.config()
    }

    /// The Hugging Face directory.
    pub fn hugging_face(&self) -> &HuggingFaceEncoderDecoder {
        &self.source
    }

    /// Takes the Hugging Face directory, to train the model.
    pub fn into_hugging_face(self) -> HuggingFaceEncoderDecoder {
        self.source
    }

    /// The tokenizer, if the directory has one.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_ref()
    }

    /// The tokenizer, for operations on text.
    ///
    /// # Errors
    /// The directory has none.
    pub fn require_tokenizer(&self) -> Result<&Tokenizer, ModelError> {
        let error = || ModelError::NoTokenizer {
            path: self.source.path().to_owned(),
        };
        self.tokenizer.as_ref().ok_or_else(error)
    }

    /// Encodes source texts with the special tokens of the tokenizer's template. Relative positions set no limit.
    ///
    /// # Errors
    /// The directory has no tokenizer.
    pub fn sources(&self) -> Result<SequenceEncoder, ModelError> {
        Ok(SequenceEncoder::new(self.require_tokenizer()?, usize::MAX))
    }

    /// The token ids of a source text, with the special tokens of the tokenizer's template.
    ///
    /// # Errors
    /// The model has no tokenizer, or it cannot encode the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        Ok(self.sources()?.encode(text)?.ids)
    }

    /// The chat template `requested` (chatml, llama3 or a path), by default the one in the directory.
    ///
    /// # Errors
    /// The template cannot be read or compiled.
    pub fn chat_template(
        &self,
        requested: Option<&str>,
    ) -> Result<Option<ChatTemplate>, ModelError> {
        Ok(match requested {
            Some(requested) => Some(requested.parse()?),
            None => ChatTemplate::beside_model(self.source.path())?,
        })
    }

    /// Builds the encoder of conversations with the template `requested`, and the tokens and strings that end an answer.
    /// Returns `None` if there is no template ([`EncoderDecoderModel::chat_template`]).
    ///
    /// # Errors
    /// The template cannot be read or compiled, or the directory has no tokenizer.
    pub fn chat(
        &self,
        requested: Option<&str>,
    ) -> Result<Option<(ChatEncoder, Stops)>, ModelError> {
        let tokenizer = self.require_tokenizer()?;
        let Some(template) = self.chat_template(requested)? else {
            return Ok(None);
        };
        let encoder = ChatEncoder::new(template, tokenizer);
        let stops = stops_of(&encoder, self.stop_tokens(), self.config().vocab_size());
        Ok(Some((encoder, stops)))
    }

    /// Describes the model in one line.
    pub fn about(&self) -> String {
        let kind = self.source.model_type();
        format!("a Hugging Face encoder–decoder of type {kind}")
    }

    /// The ids that end a target: the `eos_token_id`s of `config.json` and `generation_config.json`.
    pub fn stop_tokens(&self) -> Vec<u32> {
        let mut ids = token_ids(self.source.fields().get("eos_token_id"));
        let recommended = self.generation_config().unwrap_or_default();
        ids.extend(token_ids(recommended.get("eos_token_id")));
        ids.retain(|&id| (id as usize) < self.config().vocab_size());
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The fields of the `generation_config.json` in the model's directory; none where there is no such file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a JSON object.
    pub fn generation_config(&self) -> Result<Map<String, Value>, ModelError> {
        generation_config(self.source.path())
    }

    /// Reads the weights.
    ///
    /// # Errors
    /// A tensor is missing, unexpected, or of another shape or type.
    pub fn load<B: Backend>(&self, device: &Device<B>) -> Result<Transformer<B>, ModelError> {
        Ok(self.source.model(device)?)
    }
}
