//! Errors in a configuration, an input or a weights file.

use std::borrow::Cow;
use std::path::PathBuf;

/// A configuration error: the field, its value and the rule it violates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model.{field} = {value}: {rule}")]
pub struct ConfigError {
    /// The field's path below `model`.
    pub field: Cow<'static, str>,
    /// The value as given.
    pub value: String,
    /// The rule.
    pub rule: String,
}

impl ConfigError {
    /// An error in `field`, whose `value` violates `rule`.
    pub fn new(field: &'static str, value: impl ToString, rule: impl Into<String>) -> Self {
        Self {
            field: Cow::Borrowed(field),
            value: value.to_string(),
            rule: rule.into(),
        }
    }
}

/// Tokens that the model cannot process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// No tokens at all.
    #[error("no tokens given: the model needs at least one")]
    Empty,
    /// More tokens than positions.
    #[error("{tokens} tokens are more than the model's context of {seq_len}")]
    TooLong {
        /// Tokens given.
        tokens: usize,
        /// The model's longest sequence.
        seq_len: usize,
    },
    /// An id outside of the vocabulary.
    #[error("token {id} at position {position} is outside of the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Its position, from 0.
        position: usize,
        /// Number of ids.
        vocab_size: usize,
    },
}

/// An unsupported context of a component, such as a mask or a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// A mask with linear attention, whose running sums contain all tokens so far.
    #[error(
        "linear attention supports no {mask}: its running sums cannot leave out a token; use softmax attention"
    )]
    LinearMask {
        /// The field of the mask.
        mask: &'static str,
    },
    /// Isolated documents with a cache.
    #[error("isolated documents are not supported with a cache: use one cache per document")]
    CachedDocuments,
    /// A cache of another model.
    #[error(
        "the cache has {cached} layers, the stack has {blocks} blocks: make the cache from the stack's configuration"
    )]
    CachedLayers {
        /// The layers of the cache.
        cached: usize,
        /// The blocks of the stack.
        blocks: usize,
    },
    /// A memory without cross-attention.
    #[error(
        "there is no cross-attention to attend to a memory: set `cross_attention` in the block's configuration"
    )]
    NoCrossAttention,
    /// Cross-attention without a memory.
    #[error(
        "the cross-attention has no memory to attend to: pass the projected memory in the context"
    )]
    NoMemory,
    /// The memory of another stack.
    #[error(
        "the memory was projected for {projected} blocks, the stack has {blocks}: project it with this stack"
    )]
    MemoryLayers {
        /// The blocks that the memory was projected for.
        projected: usize,
        /// The blocks of the stack.
        blocks: usize,
    },
}

/// A weights file that is not this model's.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error, or the format's.
        source: std::io::Error,
    },
    /// The file is no safetensors file, or a damaged one.
    #[error("{path} is not a whole safetensors file: {reason}")]
    Format {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A tensor that the model needs is not there.
    #[error("tensor `{name}` is missing")]
    Missing {
        /// Its name in the file.
        name: String,
    },
    /// A tensor of another shape than the model's.
    #[error("tensor `{name}` has shape {found:?}, the model needs {expected:?}")]
    Shape {
        /// Its name in the file.
        name: String,
        /// Its shape there.
        found: Vec<usize>,
        /// The model's.
        expected: Vec<usize>,
    },
    /// A tensor of a type that is not read.
    #[error("tensor `{name}` has type {found}: {rule}")]
    Type {
        /// Its name in the file.
        name: String,
        /// Its type there.
        found: String,
        /// The types that are read.
        rule: String,
    },
    /// A scale of packed weights that is not finite.
    #[error("tensor `{name}` has the scale {scale} in row {row}: it must be finite")]
    Scale {
        /// Its name in the file.
        name: String,
        /// The row, from 0.
        row: usize,
        /// The scale.
        scale: f32,
    },
    /// The shape that a file gives for packed weights is not the model's.
    #[error("tensor `{name}` says {found:?}, the model needs {expected:?}")]
    WrittenShape {
        /// Its name in the file.
        name: String,
        /// The shape that it gives.
        found: Vec<i64>,
        /// The model's.
        expected: Vec<i64>,
    },
    /// A head that should be the embedding but is not.
    #[error("tensor `{name}` is not `{embedding}`, though the configuration ties them")]
    NotTied {
        /// The head's name in the file.
        name: String,
        /// The embedding's.
        embedding: String,
    },
    /// An index of shards that does not fit them.
    #[error("{path}: {reason}")]
    Index {
        /// The index.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Far fewer numbers than the model has.
    #[error(
        "{bytes} bytes of tensors are too few for the {parameters} parameters that the configuration describes"
    )]
    TooFew {
        /// The model's parameters.
        parameters: usize,
        /// The bytes that are there.
        bytes: u64,
    },
    /// A decoder to be saved whose weights are packed.
    #[error("the weights are packed as {format}, which no checkpoint holds")]
    Packed {
        /// The name of the packed format.
        format: &'static str,
    },
    /// Tensors that the model has no place for.
    #[error("tensors left over: {}", listed(names))]
    LeftOver {
        /// Their names.
        names: Vec<String>,
    },
}

/// The first names of a list, and the number of the others.
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

/// A Hugging Face model directory that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HuggingFaceError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The configuration is no JSON object.
    #[error("{path} is no JSON object: {reason}")]
    Json {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A field of the configuration that this project does not compute.
    #[error("config.json: `{field}` = {value}: {rule}")]
    Field {
        /// The field's path.
        field: String,
        /// Its value, as JSON.
        value: String,
        /// The rule.
        rule: String,
    },
    /// Weights only in PyTorch's pickle format.
    #[error(
        "{path} is a PyTorch pickle, which can run any program when it is opened: it is not read"
    )]
    Pickle {
        /// The file.
        path: PathBuf,
    },
    /// No weights at all.
    #[error("{path} has no model.safetensors and no model.safetensors.index.json")]
    NoWeights {
        /// The directory.
        path: PathBuf,
    },
    /// A family that `transformers` has no type for.
    #[error("`transformers` has no type for the family `{family}`")]
    NoType {
        /// The family's name.
        family: &'static str,
    },
    /// A model that its family's type cannot express.
    #[error("`transformers`' type `{model_type}` cannot express model.{field} = {value}")]
    NotExpressible {
        /// The type.
        model_type: &'static str,
        /// The field's path below `model`.
        field: String,
        /// Its value.
        value: String,
    },
    /// The configuration describes no model.
    #[error("config.json describes no model: {0}")]
    Config(#[from] ConfigError),
    /// The weights are not the model's.
    #[error("{path}: {source}")]
    Weights {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: WeightsError,
    },
}
