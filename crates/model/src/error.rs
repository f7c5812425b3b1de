//! Errors of configurations, inputs and weight files.

mod adapter;

pub use adapter::AdapterError;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use emberlm_gguf::GgufError;

/// A configuration error: the field, its value and the rule it violates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model.{field} = {value}: {rule}")]
pub struct ConfigError {
    /// Path of the field below `model`.
    pub field: Cow<'static, str>,
    /// Value as given.
    pub value: String,
    /// Violated rule.
    pub rule: String,
}

impl ConfigError {
    /// Builds an error about `field`, whose `value` violates `rule`.
    pub fn new(field: &'static str, value: impl ToString, rule: impl Into<String>) -> Self {
        Self {
            field: Cow::Borrowed(field),
            value: value.to_string(),
            rule: rule.into(),
        }
    }

    /// The error with the name that the field has in another table; `names` holds pairs of a field and that name.
    pub(crate) fn renamed(mut self, names: &[(&str, &'static str)]) -> Self {
        if let Some((_, name)) = names.iter().find(|(field, _)| *field == self.field) {
            self.field = Cow::Borrowed(name);
        }
        self
    }
}

/// Tokens that the model cannot process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The input is empty.
    #[error("no tokens given: the model needs at least one")]
    Empty,
    /// The input is longer than the model's context.
    #[error("{tokens} tokens are more than the model's context of {seq_len}")]
    TooLong {
        /// Number of tokens in the input.
        tokens: usize,
        /// Longest sequence of the model, in tokens.
        seq_len: usize,
    },
    /// A token id is outside the vocabulary.
    #[error("token {id} at position {position} is outside of the vocabulary of {vocab_size}")]
    UnknownToken {
        /// Token id.
        id: u32,
        /// Position in the input, from 0.
        position: usize,
        /// Number of token ids of the model.
        vocab_size: usize,
    },
}

/// A cache format that a model or a backend does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheFormatError {
    /// The head dimension is not a multiple of the format's block length.
    #[error(
        "keys and values of {head_dim} elements per head cannot be cached as {format}: must be a multiple of {block}"
    )]
    HeadDim {
        /// Name of the format.
        format: &'static str,
        /// Elements per head.
        head_dim: usize,
        /// Elements per block.
        block: usize,
    },
    /// The backend has no kernels for packed keys and values.
    #[error("this backend cannot cache keys and values as {format}: only f32 is supported")]
    Backend {
        /// Name of the format.
        format: &'static str,
    },
}

/// A context that a component does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// A mask was given to linear attention or a delta net, whose states include all earlier tokens.
    #[error(
        "linear attention and delta nets support no {mask}: their states cannot leave out a token; use softmax attention"
    )]
    LinearMask {
        /// Field of the mask.
        mask: &'static str,
    },
    /// The weights of a delta net were asked for.
    #[error("a delta net has no attention weights: its memory has no entry per token")]
    NoWeights,
    /// Isolated documents were combined with a cache.
    #[error("isolated documents are not supported with a cache: use one cache per document")]
    CachedDocuments,
    /// The cache belongs to another model.
    #[error(
        "the cache has {cached} layers, the stack has {blocks} blocks: make the cache from the stack's configuration"
    )]
    CachedLayers {
        /// Number of layers in the cache.
        cached: usize,
        /// Number of blocks in the stack.
        blocks: usize,
    },
    /// A memory was given without cross-attention.
    #[error(
        "there is no cross-attention to attend to a memory: set `cross_attention` in the block's configuration"
    )]
    NoCrossAttention,
    /// A cross-attention was given no memory.
    #[error(
        "the cross-attention has no memory to attend to: pass the projected memory in the context"
    )]
    NoMemory,
    /// Value embeddings were given no token ids.
    #[error("the value embeddings have no tokens to look up: pass the token ids in the context")]
    NoTokens,
    /// A block that mixes the embeddings into its input was given none.
    #[error("the block has no embeddings to mix into its input: pass them in the context")]
    NoEmbeddings,
    /// The memory belongs to another stack.
    #[error(
        "the memory was projected for {projected} blocks, the stack has {blocks}: project it with this stack"
    )]
    MemoryLayers {
        /// Number of blocks that the memory was projected for.
        projected: usize,
        /// Number of blocks in the stack.
        blocks: usize,
    },
}

/// Weights that cannot be read, written or used for a model.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system or the format.
        source: std::io::Error,
    },
    /// The file is not a safetensors file, or it is damaged.
    #[error("{path} is not a complete safetensors file: {reason}")]
    Format {
        /// The file.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// A tensor of the model is missing.
    #[error("tensor `{name}` is missing")]
    Missing {
        /// Name of the tensor in the file.
        name: String,
    },
    /// A tensor does not have the model's shape.
    #[error("tensor `{name}` has shape {found:?}, the model needs {expected:?}")]
    Shape {
        /// Name of the tensor in the file.
        name: String,
        /// Shape in the file.
        found: Vec<usize>,
        /// Shape in the model.
        expected: Vec<usize>,
    },
    /// A tensor has an unsupported element type.
    #[error("tensor `{name}` has type {found}: {rule}")]
    Type {
        /// Name of the tensor in the file.
        name: String,
        /// Type in the file.
        found: String,
        /// Supported types.
        rule: String,
    },
    /// A scale of packed weights is not finite.
    #[error("tensor `{name}` has the scale {scale} in row {row}: must be finite")]
    Scale {
        /// Name of the tensor in the file.
        name: String,
        /// Row of the matrix, from 0.
        row: usize,
        /// Scale of the row.
        scale: f32,
    },
    /// The shape that a file declares for packed weights is not the model's.
    #[error("tensor `{name}` contains {found:?}, the model needs {expected:?}")]
    WrittenShape {
        /// Name of the tensor in the file.
        name: String,
        /// Declared shape.
        found: Vec<i64>,
        /// Shape in the model.
        expected: Vec<i64>,
    },
    /// The head of a tied model differs from the embedding.
    #[error("tensor `{name}` is not `{embedding}`, though the configuration ties them")]
    NotTied {
        /// Name of the head in the file.
        name: String,
        /// Name of the embedding in the file.
        embedding: String,
    },
    /// An index is invalid or does not match its shards.
    #[error("{path}: {reason}")]
    Index {
        /// The index, or the shard that contradicts it.
        path: PathBuf,
        /// Description of the mismatch.
        reason: String,
    },
    /// The files are far too small for the model.
    #[error(
        "{bytes} bytes of tensors are too few for the {parameters} parameters that the configuration describes"
    )]
    TooFew {
        /// Number of parameters of the model.
        parameters: usize,
        /// Total size of the stored tensors in bytes.
        bytes: u64,
    },
    /// A checkpoint cannot store packed weights.
    #[error("the weights are packed as {format}, which checkpoints cannot store")]
    Packed {
        /// Name of the packed format.
        format: &'static str,
    },
    /// A weight cannot be packed.
    #[error("`{name}`: {source}")]
    Packing {
        /// Path of the parameter.
        name: String,
        /// Violated rule.
        source: emberlm_kernels::PackedError,
    },
    /// A Hugging Face directory cannot store the format of packed weights.
    #[error(
        "Hugging Face directories cannot store weights packed as {format}: must be f32 or int8"
    )]
    Unpublished {
        /// Name of the packed format.
        format: &'static str,
    },
    /// The weights have an adapter, which a model directory cannot store.
    #[error("the model has an adapter: merge it, or write the adapter")]
    Adapter,
    /// A tensor of a GGUF file cannot be read.
    #[error(transparent)]
    Gguf(GgufError),
    /// The file has tensors that the model does not have.
    #[error("tensors left over: {}", listed(names))]
    LeftOver {
        /// Names of the tensors.
        names: Vec<String>,
    },
}

/// Formats the first names of a list and the number of the others.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let shown = names.iter().take(SHOWN).map(String::as_str);
    let shown: Vec<&str> = shown.collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Formats an error of a GGUF file with the file's path, unless it has it already.
fn located(path: &Path, error: &GgufError) -> String {
    match error {
        GgufError::Io { .. } | GgufError::Format { .. } | GgufError::Split { .. } => {
            error.to_string()
        }
        GgufError::Metadata { .. } | GgufError::Tensor { .. } => {
            format!("{}: {error}", path.display())
        }
    }
}

/// A Hugging Face model directory that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HuggingFaceError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The configuration is not a JSON object.
    #[error("{path} is not a JSON object: {reason}")]
    Json {
        /// The file.
        path: PathBuf,
        /// Error of the JSON parser.
        reason: String,
    },
    /// A field of the configuration is invalid or unsupported.
    #[error("config.json: `{field}` = {value}: {rule}")]
    Field {
        /// Path of the field.
        field: String,
        /// Value as JSON.
        value: String,
        /// Violated rule.
        rule: String,
    },
    /// The directory has weights only in PyTorch's pickle format.
    #[error(
        "{path} is a PyTorch pickle, which can run any program when it is opened: it is not read"
    )]
    Pickle {
        /// The file.
        path: PathBuf,
    },
    /// The directory has no weights.
    #[error("{path} has no model.safetensors and no model.safetensors.index.json")]
    NoWeights {
        /// The directory.
        path: PathBuf,
    },
    /// A GGUF file cannot be read, or describes no supported model.
    #[error("{}", located(path, source))]
    Gguf {
        /// The file.
        path: PathBuf,
        /// Error of the file.
        source: GgufError,
    },
    /// The metadata of a GGUF file describe no supported model.
    #[error("{} describes no supported model: {reason}", path.display())]
    GgufModel {
        /// The file.
        path: PathBuf,
        /// The key or the size, its value and the violated rule.
        reason: String,
    },
    /// `transformers` has no model type for the family.
    #[error("`transformers` has no type for the family `{family}`")]
    NoType {
        /// Name of the family.
        family: &'static str,
    },
    /// The family's model type cannot express the configuration.
    #[error("`transformers`' type `{model_type}` cannot express model.{field} = {value}")]
    NotExpressible {
        /// Model type.
        model_type: &'static str,
        /// Path of the field below `model`.
        field: String,
        /// Value of the field.
        value: String,
    },
    /// GGUF files have no architecture for the family.
    #[error("GGUF files have no architecture for the family `{family}`")]
    NoArchitecture {
        /// Name of the family.
        family: &'static str,
    },
    /// The architecture of GGUF files does not record a setting.
    #[error("GGUF's architecture `{architecture}` cannot express model.{field} = {value}")]
    NotRecorded {
        /// Name of the architecture.
        architecture: &'static str,
        /// Path of the field below `model`.
        field: String,
        /// Value of the field.
        value: String,
    },
    /// The architecture of GGUF files cannot describe the model.
    #[error("GGUF's architecture `{architecture}` cannot describe the model: {reason}")]
    NotDescribed {
        /// Name of the architecture.
        architecture: &'static str,
        /// Violated rule.
        reason: String,
    },
    /// The configuration describes an invalid model.
    #[error("config.json describes no model: {0}")]
    Config(#[from] ConfigError),
    /// The weights cannot be read, or do not match the configuration.
    #[error("{path}: {source}")]
    Weights {
        /// The directory.
        path: PathBuf,
        /// Error of the weights.
        source: WeightsError,
    },
}
