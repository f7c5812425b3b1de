//! Errors of a task.

use std::path::PathBuf;

/// A task's failure, carrying what was tried.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `cargo metadata` failed: usually a manifest that does not parse.
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
    /// A data file of the workspace is not what its reader expects.
    #[error("{} is invalid: {reason}", path.display())]
    Invalid { path: PathBuf, reason: String },
    /// A program could not be started.
    #[error("cannot start `{command}`: {source}")]
    Start {
        command: String,
        source: std::io::Error,
    },
    /// A program ended with an error; it has said why on stderr.
    #[error("`{command}` failed: {status}")]
    Failed {
        command: String,
        status: std::process::ExitStatus,
    },
    /// There is no Python.
    #[error(
        "cannot start `{command}`: install Python 3, or name one that has the packages with --python"
    )]
    NoPython { command: String },
    /// Python cannot make an environment; it has said why on stderr.
    #[error(
        "`{command}` failed: {status}; Debian and Ubuntu have what it needs in the package python3-venv, or name a \
         Python that has the packages with --python"
    )]
    NoVenv {
        command: String,
        status: std::process::ExitStatus,
    },
    /// An environment is needed and may not be made.
    #[error(
        "there is no Python environment in {}: leave out --offline to have it made, or name a Python that has \
         {packages} with --python",
        folder.display()
    )]
    Offline { folder: PathBuf, packages: String },
    /// A dependency that is needed for its files is not there.
    #[error("the workspace does not depend on `{name}`")]
    NoPackage { name: &'static str },
    /// A benchmark's output was not the line of JSON it should be.
    #[error(
        "`{command}` should end with a line of JSON with the field `{field}`, but printed: {output}"
    )]
    Measurement {
        command: String,
        field: &'static str,
        output: String,
    },
    /// A server answered otherwise than it must.
    #[error("`{command}`: {what}: {found}")]
    Answer {
        command: String,
        what: String,
        found: String,
    },
    /// A server failed a storm; the failures have been printed.
    #[error("the server failed {failed} time(s)")]
    Storm { failed: usize },
    /// No fuzzer has this name.
    #[error("there is no fuzzer `{name}`; there are {known}")]
    NoTarget { name: String, known: String },
    /// There is no browser.
    #[error(
        "no chromium is installed: Debian has it in the package chromium, or name one with --chromium"
    )]
    NoBrowser,
    /// Some checks failed; they have said why.
    #[error("failed: {names}")]
    Checks { names: String },
    /// A program did not say what was looked for in its output.
    #[error("`{command}` named no {what}")]
    Unnamed { command: String, what: &'static str },
    /// A file is no timing report of cargo, or one of another format.
    #[error(
        "`{}` is not a timing report of cargo: {problem}\nhint: pass the page that `cargo build --timings` writes, \
         `target/cargo-timings/cargo-timing.html`; it must contain `const UNIT_DATA = [...];` with the fields name, \
         version, target, start and duration of each unit",
        path.display()
    )]
    TimingReport { path: PathBuf, problem: String },
    /// A build is measured in a target folder that has files.
    #[error(
        "`{}` is not empty: crates that are already built would not be measured\nhint: pass another folder, or leave out \
         --target-dir to build in a temporary one",
        folder.display()
    )]
    NotEmpty { folder: PathBuf },
}
