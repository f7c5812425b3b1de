//! Errors of reading and writing checkpoints, and of opening models.

use std::path::PathBuf;

use emberlm_model::{
    AdapterError, ConfigError, HuggingFaceError, InputError, ModelKind, WeightsError,
};
use emberlm_system::digits::grouped;
use emberlm_tokenizer::chat::ChatError;
use emberlm_tokenizer::{TokenizerError, TokenizerSpec};

/// A checkpoint that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file is missing, unreadable or does not match the manifest.
    #[error("{path} is not a complete checkpoint: {reason}")]
    Damaged {
        /// The checkpoint's directory.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {action}: {source}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The model's configuration breaks a rule.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The tokenizer cannot be read or written.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Weights cannot be written.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The model cannot be written as a Hugging Face directory.
    #[error(transparent)]
    HuggingFace(#[from] HuggingFaceError),
    /// The base model of an adapter cannot be opened.
    #[error("the adapter's base model {path} cannot be opened: {source}")]
    Base {
        /// The base model's path.
        path: PathBuf,
        /// The cause.
        source: Box<ModelError>,
    },
    /// An adapter was trained on other weights.
    #[error("the adapter was trained on {base}, and the weights of {path} are not the same")]
    OtherBase {
        /// The recorded base model.
        base: PathBuf,
        /// The given model.
        path: PathBuf,
    },
}

impl CheckpointError {
    /// Returns a function for `map_err` on the result of a file operation.
    pub fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            path,
            action,
            source,
        }
    }
}

/// A model directory that cannot be opened, or a model that does not support the requested operation.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The path does not exist.
    #[error("no such model: {path}")]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// The path cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The directory has GGUF files, and no other model.
    #[error("{path} is a directory of GGUF files")]
    Gguf {
        /// The directory.
        path: PathBuf,
    },
    /// `generation_config.json` cannot be read.
    #[error("{path} is not a JSON object: {reason}")]
    GenerationConfig {
        /// The file.
        path: PathBuf,
        /// Error of the parser or the operating system.
        reason: String,
    },
    /// The model is of another kind.
    #[error("{path} is {}, not {}", found.named(), needed.named())]
    OtherKind {
        /// The path.
        path: PathBuf,
        /// The kind of the model.
        found: ModelKind,
        /// The kind that is needed.
        needed: ModelKind,
    },
    /// The path is a file.
    #[error("{path} is a file, not a model's directory")]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The run has not written a checkpoint yet.
    #[error("{path} has no checkpoint yet")]
    NoCheckpoint {
        /// The run's directory.
        path: PathBuf,
    },
    /// The directory contains a dataset instead of a model.
    #[error("{path} is a dataset, not a model")]
    Dataset {
        /// The directory.
        path: PathBuf,
    },
    /// The directory does not contain a model.
    #[error("{path} holds no model")]
    NotAModel {
        /// The directory.
        path: PathBuf,
    },
    /// The operation needs a tokenizer, but the model has none.
    #[error("{path} has no tokenizer, so it cannot read text")]
    NoTokenizer {
        /// Path that was passed to [`crate::Model::open`].
        path: PathBuf,
    },
    /// An empty text cannot be continued: the tokenizer has neither an end-of-text token nor a line break.
    #[error("without a prompt a line break begins the text, which this model's tokenizer lacks")]
    NoBeginning,
    /// The requested context is longer than the model's.
    #[error("context = {context}: must be at most {limit}, the model's")]
    Context {
        /// The requested context in tokens.
        context: usize,
        /// The model's context in tokens.
        limit: usize,
    },
    /// The dataset was created with another tokenizer.
    #[error(
        "{dataset} was made with another tokenizer than the model's: {} there, {} in {model}",
        summary(.of_dataset), summary(.of_model)
    )]
    OtherTokenizer {
        /// The dataset's directory.
        dataset: PathBuf,
        /// The dataset's tokenizer.
        of_dataset: Box<TokenizerSpec>,
        /// The model's directory.
        model: PathBuf,
        /// The model's tokenizer.
        of_model: Box<TokenizerSpec>,
    },
    /// The dataset has token ids outside the model's vocabulary.
    #[error("{dataset} has {ids} token ids, but the model in {model} has {vocab_size}")]
    SmallVocabulary {
        /// The dataset's directory.
        dataset: PathBuf,
        /// Number of token ids of the dataset.
        ids: usize,
        /// The model's directory.
        model: PathBuf,
        /// Number of token ids of the model.
        vocab_size: usize,
    },
    /// The directory does not contain an adapter.
    #[error("{path} holds no adapter")]
    NotAnAdapter {
        /// The directory.
        path: PathBuf,
    },
    /// The directory contains only an adapter, whose base model is not at the recorded path.
    #[error("{path} holds an adapter of `{base}`, which is not there")]
    AdapterOnly {
        /// The directory.
        path: PathBuf,
        /// The recorded path or name of the base model.
        base: String,
    },
    /// The adapter cannot be used with the model.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// A file that describes the modules of a sentence encoder cannot be used.
    #[error("{path}: {reason}")]
    Modules {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The model cannot process a text.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The Hugging Face directory cannot be read.
    #[error(transparent)]
    HuggingFace(#[from] HuggingFaceError),
    /// The model's configuration breaks a rule.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The tokenizer cannot be read.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template cannot be used.
    #[error(transparent)]
    Chat(#[from] ChatError),
}

/// Summarizes a tokenizer: kind, number of ids and abbreviated hash.
fn summary(spec: &TokenizerSpec) -> String {
    let hash: String = spec.hash.chars().take(8).collect();
    format!(
        "{} ({} ids, {hash}…)",
        spec.kind,
        grouped(spec.vocab_size as u64)
    )
}
