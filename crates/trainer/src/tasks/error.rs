//! Errors of a task's file.

use std::path::{Path, PathBuf};

/// A task's file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// It has no line but blank ones.
    #[error("{path} has no items")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A line that is not an item of the task.
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
    /// For `map_err`: what is wrong with a line.
    pub(super) fn line(path: &Path, line: usize) -> impl FnOnce(String) -> Self {
        let path = path.to_owned();
        move |reason| Self::Line { path, line, reason }
    }
}
