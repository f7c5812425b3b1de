//! Errors of GGUF files.

use std::path::PathBuf;

/// A GGUF file that cannot be read, written or used.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file is not a GGUF file, or it is damaged.
    #[error("{path} is not a complete GGUF file: {reason}")]
    Format {
        /// The file.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// A file of a split model is missing or does not belong to the others.
    #[error("{path}: {reason}")]
    Split {
        /// The file.
        path: PathBuf,
        /// The violated rule.
        reason: String,
    },
    /// A metadata value is missing, has another type, or is not supported.
    #[error("metadata `{key}` = {value}: {rule}")]
    Metadata {
        /// The key.
        key: String,
        /// The value; `missing` if there is none.
        value: String,
        /// The violated rule.
        rule: String,
    },
    /// A tensor cannot be written.
    #[error("tensor `{name}`: {reason}")]
    Tensor {
        /// The tensor.
        name: String,
        /// The violated rule.
        reason: String,
    },
}
