//! Errors of a task.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// The failure of a task.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `cargo metadata` failed, usually because of an invalid manifest.
    #[error("cannot read the workspace: {0}")]
    Metadata(#[from] cargo_metadata::Error),
    /// A file or folder could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A data file of the workspace is invalid.
    #[error("{} is invalid: {reason}", path.display())]
    Invalid { path: PathBuf, reason: String },
    /// A program could not be started.
    #[error("cannot start `{command}`: {source}")]
    Start {
        command: String,
        source: std::io::Error,
    },
    /// A program failed. It has printed the reason.
    #[error("`{command}` failed: {status}")]
    Failed { command: String, status: ExitStatus },
    /// No Python was found.
    #[error(
        "cannot start `{command}`: install Python 3, or name one that has the packages with --python"
    )]
    NoPython { command: String },
    /// Python failed to create an environment. It has printed the reason.
    #[error(
        "`{command}` failed: {status}; Debian and Ubuntu have what it needs in the package python3-venv, or name a \
         Python that has the packages with --python"
    )]
    NoVenv { command: String, status: ExitStatus },
    /// A required environment does not exist, and must not be created.
    #[error(
        "there is no Python environment in {}: leave out --offline to have it made, or name a Python that has \
         {packages} with --python",
        folder.display()
    )]
    Offline { folder: PathBuf, packages: String },
    /// A dependency whose files are needed is missing.
    #[error("the workspace does not depend on `{name}`")]
    NoPackage { name: &'static str },
    /// A benchmark did not print the expected line of JSON.
    #[error(
        "`{command}` should end with a line of JSON with the field `{field}`, but printed: {output}"
    )]
    Measurement {
        command: String,
        field: &'static str,
        output: String,
    },
    /// A server returned an unexpected response.
    #[error("`{command}`: {what}: {found}")]
    Answer {
        command: String,
        what: String,
        found: String,
    },
    /// No fuzzer has the given name.
    #[error("there is no fuzzer `{name}`; there are {known}")]
    NoTarget { name: String, known: String },
    /// No browser was found.
    #[error(
        "no chromium is installed: Debian has it in the package chromium, or name one with --chromium"
    )]
    NoBrowser,
    /// Some checks failed. They have printed the reasons.
    #[error("failed: {names}")]
    Checks { names: String },
    /// The output of a program lacks an expected item.
    #[error("`{command}` named no {what}")]
    Unnamed { command: String, what: &'static str },
}

impl Error {
    /// Converts the error of starting a program.
    pub fn start(command: &Command) -> impl FnOnce(std::io::Error) -> Self {
        let command = shown(command);
        move |source| Self::Start { command, source }
    }

    /// The failure of a program that was started.
    pub fn failed(command: &Command, status: ExitStatus) -> Self {
        let command = shown(command);
        Self::Failed { command, status }
    }

    /// Converts the error of reading `path`.
    pub fn read(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }

    /// Converts the error of writing `path`.
    pub fn write(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Write { path, source }
    }
}

/// The command line of a command, for messages.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
