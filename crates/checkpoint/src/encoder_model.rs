//! Opens a directory of an encoder: a Hugging Face directory, with the files of sentence-transformers if it has them, a
//! run or a checkpoint.
//!
//! | file | read for |
//! |---|---|
//! | `config.json`, `model.safetensors` | the encoder |
//! | `tokenizer.json` | token ids, special tokens |
//! | `modules.json` | pooling and normalization; without it, the mean of all states, normalized |
//! | `1_Pooling/config.json` | the pooling |
//! | `sentence_bert_config.json` | the longest text in tokens; without it, the encoder's positions |
//! | `config_sentence_transformers.json` | the name of the default prompt, which is not supported |

use std::path::Path;

use burn::tensor::Device;
use emberlm_kernels::Backend;
use emberlm_model::encoder::Pooling;
use emberlm_model::{ModelKind, Transformer, TransformerConfig, WeightFormat};
use emberlm_tokenizer::{SequenceEncoder, Tokenizer};

use crate::embedder::Embedder;
use crate::error::ModelError;
use crate::model::Model;
use crate::sentence_files::SentenceFiles;

/// An encoder whose configuration and tokenizer have been read.
///
/// ```no_run
/// use burn::backend::Flex;
/// use emberlm_checkpoint::EncoderModel;
///
/// # fn main() -> Result<(), emberlm_checkpoint::ModelError> {
/// let model = EncoderModel::open("all-MiniLM-L6-v2")?;
/// let embedder = model.embedder::<Flex>(&Default::default())?;
/// let vectors = embedder.embed(&["a text", "another"])?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EncoderModel {
    model: Model,
    tokenizer: Option<Tokenizer>,
    /// The longest text, in tokens.
    longest: usize,
    pooling: Pooling,
    normalize: bool,
    warnings: Vec<String>,
}

impl EncoderModel {
    /// Opens the encoder at `path`. Its weights are read by [`EncoderModel::embedder`] only.
    ///
    /// # Errors
    /// `path` holds no encoder, a file is damaged or cannot be read, or `modules.json` lists a module that is not
    /// supported.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::of(Model::open(path)?)
    }

    /// Reads the files of an encoder beside its weights.
    ///
    /// # Errors
    /// Those of [`EncoderModel::open`].
    pub fn of(model: Model) -> Result<Self, ModelError> {
        let model = model.of_kind(ModelKind::Encoder)?;
        let tokenizer = model.tokenizer()?;
        let limit = model.config().seq_len();
        let files = SentenceFiles::read(model.path())?;
        let longest = files.longest.map_or(limit, |longest| longest.min(limit));
        let (pooling, normalize) = files.modules.unwrap_or((Pooling::Mean, true));
        Ok(Self {
            warnings: files.warnings,
            model,
            tokenizer,
            longest,
            pooling,
            normalize,
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Takes the model, to train it.
    pub fn into_model(self) -> Model {
        self.model
    }

    /// Warnings about settings of sentence-transformers that are ignored, in addition to [`Model::warnings`].
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The encoder's configuration.
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

    /// The longest text in tokens, special tokens included.
    pub fn longest_text(&self) -> usize {
        self.longest
    }

    /// The pooling of a text's states.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// True if embeddings have length 1.
    pub fn normalizes(&self) -> bool {
        self.normalize
    }

    /// Reads the weights of the encoder.
    ///
    /// # Errors
    /// A tensor is missing, unexpected, or of another shape or type.
    pub fn load<B: Backend>(&self, device: &Device<B>) -> Result<Transformer<B>, ModelError> {
        self.model.decoder_in(WeightFormat::F32, device)
    }

    /// Reads the weights, to embed texts.
    ///
    /// # Errors
    /// The directory has no tokenizer, or a tensor is missing, unexpected, or of another shape or type.
    pub fn embedder<B: Backend>(&self, device: &Device<B>) -> Result<Embedder<B>, ModelError> {
        let sequences = SequenceEncoder::new(self.require_tokenizer()?, self.longest);
        Ok(Embedder {
            encoder: self.load(device)?,
            sequences,
            pooling: self.pooling,
            normalize: self.normalize,
        })
    }
}
