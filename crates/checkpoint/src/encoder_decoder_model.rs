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
use emberlm_model::{ModelKind, Transformer, TransformerConfig, WeightFormat};
use emberlm_tokenizer::Tokenizer;

use crate::encoder_model::checked_tokenizer;
use crate::error::ModelError;
use crate::model::Model;

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
    model: Model,
    tokenizer: Option<Tokenizer>,
}

impl EncoderDecoderModel {
    /// Opens the encoder–decoder at `path`. Its weights are read by [`EncoderDecoderModel::load`] only.
    ///
    /// # Errors
    /// `path` holds no encoder–decoder, a file is damaged or cannot be read, or the tokenizer has more ids than the
    /// model.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::of(Model::open(path)?)
    }

    /// Reads the tokenizer of an encoder–decoder.
    ///
    /// # Errors
    /// Those of [`EncoderDecoderModel::open`].
    pub fn of(model: Model) -> Result<Self, ModelError> {
        let model = model.of_kind(ModelKind::EncoderDecoder)?;
        let tokenizer = checked_tokenizer(&model)?;
        Ok(Self { model, tokenizer })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Takes the model, to train it.
    pub fn into_model(self) -> Model {
        self.model
    }

    /// The model's configuration.
    pub fn config(&self) -> &TransformerConfig {
        self.model.config()
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
            path: self.model.path().to_owned(),
        };
        self.tokenizer.as_ref().ok_or_else(error)
    }

    /// The token ids of a source text, with the special tokens of the tokenizer's template.
    ///
    /// # Errors
    /// The model has no tokenizer, or it cannot encode the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        self.model.prompt(self.require_tokenizer()?, text)
    }

    /// Reads the weights.
    ///
    /// # Errors
    /// A tensor is missing, unexpected, or of another shape or type.
    pub fn load<B: Backend>(&self, device: &Device<B>) -> Result<Transformer<B>, ModelError> {
        self.model.decoder_in(WeightFormat::F32, device)
    }
}
