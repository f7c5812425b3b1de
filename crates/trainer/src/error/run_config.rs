//! The error of reading or writing a run's configuration.

use std::path::PathBuf;

/// An error in reading or writing a run's configuration.
#[derive(Debug, thiserror::Error)]
pub enum RunConfigError {
    /// No preset has this name.
    #[error("unknown preset `{name}`")]
    UnknownPreset {
        /// The name.
        name: String,
    },
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file is not valid TOML.
    #[error("{path} is not valid TOML: {reason}")]
    NotToml {
        /// The file.
        path: PathBuf,
        /// The line and the violated rule.
        reason: String,
    },
    /// A setting does not have the form `KEY=VALUE`.
    #[error("{setting}: no `=` in it")]
    NoEquals {
        /// The setting.
        setting: String,
    },
    /// An unknown key or a value of the wrong type in the file.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// The key and the problem.
        reason: String,
        /// The most similar known key or value.
        suggestion: Option<String>,
    },
    /// An unknown key or a value of the wrong type in a setting.
    #[error("{setting}: {reason}")]
    Setting {
        /// The setting.
        setting: String,
        /// The key and the problem.
        reason: String,
        /// The most similar known key or value.
        suggestion: Option<String>,
    },
    /// The configuration cannot be written as TOML.
    #[error("the configuration cannot be written as TOML: {reason}")]
    Write {
        /// The serializer's message.
        reason: String,
    },
}
