//! What can be wrong with a configuration, an input or a weights file.

use std::path::PathBuf;

/// A configuration that names no model: the field, its value and the rule it breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model.{field} = {value}: {rule}")]
pub struct ConfigError {
    /// The field's path below `model`.
    pub field: &'static str,
    /// The value as given.
    pub value: String,
    /// What it must be.
    pub rule: String,
}

impl ConfigError {
    /// An error of `field`, whose `value` breaks `rule`.
    pub fn new(field: &'static str, value: impl ToString, rule: impl Into<String>) -> Self {
        let value = value.to_string();
        let rule = rule.into();
        Self { field, value, rule }
    }
}

/// Tokens that the model cannot take.
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
        /// Where it stands, from 0.
        position: usize,
        /// Number of ids.
        vocab_size: usize,
    },
}

/// A weights file that is not this model's.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file cannot be read or written.
    #[error("{path}: {reason}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system or the format said.
        reason: String,
    },
    /// The file is no safetensors file, or a damaged one.
    #[error("{path} is not a whole safetensors file: {reason}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
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
    #[error("tensor `{name}` has type {found}: only F32 is read here")]
    Type {
        /// Its name in the file.
        name: String,
        /// Its type there.
        found: String,
    },
    /// Tensors that the model has no place for.
    #[error("tensors left over: {}", names.join(", "))]
    LeftOver {
        /// Their names.
        names: Vec<String>,
    },
}
