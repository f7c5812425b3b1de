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

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use emberlm_gguf::is_gguf;
use emberlm_kernels::Backend;
use emberlm_model::TransformerConfig;
use emberlm_model::encoder::Pooling;
use emberlm_model::hugging_face::CONFIG_FILE;
use emberlm_model::hugging_face::encoder::HuggingFaceEncoder;
use emberlm_tokenizer::{SequenceEncoder, TOKENIZER_FILE, Tokenizer, config_warnings};

use crate::checkpoint::DESCRIPTION;
use crate::embedder::Embedder;
use crate::error::{CheckpointError, ModelError};
use crate::kind::model_folder;
use crate::model::missing;
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
    source: HuggingFaceEncoder,
    tokenizer: Option<Tokenizer>,
    /// The longest text, in tokens.
    longest: usize,
    pooling: Pooling,
    normalize: bool,
    passed_over: Vec<CheckpointError>,
    warnings: Vec<String>,
}

impl EncoderModel {
    /// Opens the encoder at `path`. Its weights are read by [`EncoderModel::embedder`] only.
    ///
    /// # Errors
    /// `path` holds no encoder, a file is damaged or cannot be read, or `modules.json` lists a module that is not
    /// supported. A run with damaged checkpoints opens at the newest intact one; see [`EncoderModel::passed_over`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::open_path(path.as_ref())
    }

    fn open_path(path: &Path) -> Result<Self, ModelError> {
        check_is_folder(path)?;
        let (path, passed_over) = model_folder(path)?;
        let path = path.as_path();
        if path.join(DESCRIPTION).exists() && !path.join(CONFIG_FILE).exists() {
            return Err(not_an_encoder(path, "decoder"));
        }
        let source = HuggingFaceEncoder::open(path)?;
        let tokenizer = tokenizer_beside(path, source.config().vocab_size())?;
        let limit = source.config().seq_len();
        let files = SentenceFiles::read(path)?;
        let longest = files.longest.map_or(limit, |longest| longest.min(limit));
        let (pooling, normalize) = files.modules.unwrap_or((Pooling::Mean, true));
        let mut warnings = source.warnings().to_vec();
        warnings.extend(files.warnings);
        warnings.extend(config_warnings(path, false));
        Ok(Self {
            warnings,
            source,
            tokenizer,
            longest,
            pooling,
            normalize,
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

    /// The encoder's configuration.
    pub fn config(&self) -> &TransformerConfig {
        self.source.config()
    }

    /// The Hugging Face directory.
    pub fn hugging_face(&self) -> &HuggingFaceEncoder {
        &self.source
    }

    /// Takes the Hugging Face directory, to train the encoder.
    pub fn into_hugging_face(self) -> HuggingFaceEncoder {
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

    /// The longest text in tokens, special tokens included.
    pub fn longest_text(&self) -> usize {
        self.longest
    }

    /// Describes the model in one line.
    pub fn about(&self) -> String {
        format!(
            "a Hugging Face encoder of type {}",
            self.source.model_type()
        )
    }

    /// The pooling of a text's states.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// True if embeddings have length 1.
    pub fn normalizes(&self) -> bool {
        self.normalize
    }

    /// Reads the weights.
    ///
    /// # Errors
    /// The directory has no tokenizer, or a tensor is missing, unexpected, or of another shape or type.
    pub fn embedder<B: Backend>(&self, device: &Device<B>) -> Result<Embedder<B>, ModelError> {
        let sequences = SequenceEncoder::new(self.require_tokenizer()?, self.longest);
        Ok(Embedder {
            encoder: self.source.encoder(device)?,
            sequences,
            pooling: self.pooling,
            normalize: self.normalize,
        })
    }
}

/// Returns an error unless there is a folder at `path`.
fn check_is_folder(path: &Path) -> Result<(), ModelError> {
    let metadata = fs::metadata(path).map_err(|error| missing(path, error))?;
    match metadata.is_dir() {
        true => Ok(()),
        false if is_gguf(path) => Err(not_an_encoder(path, "GGUF file")),
        false => Err(ModelError::NotADirectory {
            path: path.to_owned(),
        }),
    }
}

fn not_an_encoder(path: &Path, found: &'static str) -> ModelError {
    let path = path.to_owned();
    ModelError::NotAnEncoder { path, found }
}

/// The tokenizer in a model's directory, if there is one.
///
/// # Errors
/// The file is damaged or cannot be read, or has more ids than the model's `vocab_size`.
pub(crate) fn tokenizer_beside(
    path: &Path,
    vocab_size: usize,
) -> Result<Option<Tokenizer>, ModelError> {
    let file = path.join(TOKENIZER_FILE);
    if !file.exists() {
        return Ok(None);
    }
    let tokenizer = Tokenizer::from_file(&file)?;
    match tokenizer.vocab_size() {
        ids if ids > vocab_size => Err(ModelError::SmallVocabulary {
            dataset: file,
            ids,
            model: path.to_owned(),
            vocab_size,
        }),
        _ => Ok(Some(tokenizer)),
    }
}
