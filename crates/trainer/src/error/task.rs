//! The error type of the tasks.

use std::path::{Path, PathBuf};

/// A task's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A data file cannot be read.
    #[error(transparent)]
    Data(#[from] emberlm_data::DataError),
    /// The file has no items, only blank lines.
    #[error("{path} has no items")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A line is not a valid item of the task.
    #[error("{path}:{line}: {reason}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
}

impl TaskError {
    /// Adds the file and the line number to an error, for `map_err`.
    pub(crate) fn line(path: &Path, line: usize) -> impl FnOnce(String) -> Self {
        let path = path.to_owned();
        move |reason| Self::Line { path, line, reason }
    }
}
