//! Errors that stop a run.

use std::path::PathBuf;

use emberlm_checkpoint::CheckpointError;
use emberlm_data::{DataError, TokenizerError};
use emberlm_generate::GenerateError;
use emberlm_model::{ConfigError, WeightsError};

use crate::peers::PeersError;
use crate::run_config::RunConfigError;

/// An error of training, evaluation or a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A training setting that is not allowed.
    #[error("{table}.{field} = {value}: {rule}")]
    Setting {
        /// Its table: `train` or `data`.
        table: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The rule.
        rule: String,
    },
    /// A metric that cannot be recorded.
    #[error("the metric `{name}`: {rule}")]
    Metric {
        /// Its name.
        name: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// A hook failed.
    #[error("a hook of the run failed: {0}")]
    Hook(#[source] crate::hooks::HookError),
    /// Datasets of a mix have different tokenizers.
    #[error("{} and {} have different tokenizers: {first_tokenizer} and {other_tokenizer}{}", first.display(), other.display(), vocabularies(first_tokenizer, other_tokenizer))]
    Tokenizers {
        /// The mix's first dataset.
        first: PathBuf,
        /// Its tokenizer.
        first_tokenizer: String,
        /// Another one.
        other: PathBuf,
        /// Its tokenizer.
        other_tokenizer: String,
    },
    /// A dataset's masks leave nothing to learn.
    #[error("{}: its masks leave no token of the train split to learn", path.display())]
    NothingLearnt {
        /// The dataset.
        path: PathBuf,
    },
    /// A model setting that is not allowed.
    #[error(transparent)]
    Model(#[from] ConfigError),
    /// The configuration cannot be written into the run.
    #[error(transparent)]
    Config(#[from] RunConfigError),
    /// The dataset cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A file that was verified while the run trained is damaged. Steps since its beginning may have read it.
    #[error("{source}; checkpoints after step {begun_at} may have been trained on it")]
    DamagedData {
        /// The file and its damage.
        source: DataError,
        /// The step at which the run began or was resumed.
        begun_at: usize,
    },
    /// The tokenizer cannot be read or written.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Weights cannot be read or written.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Text could not be generated for a sample.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// A file of the run cannot be read or written.
    #[error("{path}: {action}: {source}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The run directory is already a run's.
    #[error("{path} already holds a run")]
    RunExists {
        /// The directory.
        path: PathBuf,
    },
    /// The directory of a new run is something else.
    #[error("{path} is the directory of {what}, not a place for a run")]
    NotForRun {
        /// The directory.
        path: PathBuf,
        /// A dataset or a model.
        what: &'static str,
    },
    /// The directory holds no run.
    #[error("{path} holds no run")]
    NoRun {
        /// The directory.
        path: PathBuf,
    },
    /// Another process trains the run.
    #[error("{path} is being trained by {}", trainer(.process))]
    RunLocked {
        /// The directory.
        path: PathBuf,
        /// Its number; empty where its lock file was removed.
        process: String,
    },
    /// The run directory is not the one that this process began with.
    #[error("{path} was removed, renamed or replaced while it was being trained")]
    RunReplaced {
        /// The directory.
        path: PathBuf,
    },
    /// Another process can have locked the run.
    #[error("{path} was removed or replaced, so that another process can train the same run")]
    LockReplaced {
        /// The lock file.
        path: PathBuf,
    },
    /// A run cannot be resumed with what it is given.
    #[error("{path} cannot be resumed: {reason}")]
    Resume {
        /// The directory.
        path: PathBuf,
        /// The difference.
        reason: String,
    },
    /// The last checkpoint could not be written.
    #[error("the run ended at step {step} without a checkpoint: {reason}{}", last_good(.last))]
    NoCheckpoint {
        /// The step.
        step: usize,
        /// Why.
        reason: String,
        /// The last one that was written.
        last: Option<PathBuf>,
    },
    /// A checkpoint cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Too many steps in a row had to be skipped.
    #[error("{skipped} steps in a row were skipped, the last one, {step}, because {reason}{}", last_good(.last))]
    Diverged {
        /// The last step.
        step: usize,
        /// The number of skipped steps.
        skipped: usize,
        /// The reason that the last one was skipped.
        reason: String,
        /// The last checkpoint that was written.
        last: Option<PathBuf>,
    },
    /// The processes that train the model cannot exchange their gradients.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// The run was stopped without a checkpoint of its last steps.
    #[error("the run was stopped after step {step} without saving{}", kept(.last))]
    Discarded {
        /// The run's directory.
        run: PathBuf,
        /// The last whole step.
        step: usize,
        /// The newest checkpoint.
        last: Option<PathBuf>,
    },
    /// The dashboard cannot take the terminal.
    #[error("the dashboard cannot take the terminal: {0}")]
    Terminal(#[source] std::io::Error),
    /// The run ended without a result.
    #[error("the run ended without a result")]
    NoResult,
}

/// The rest of a sentence that names a checkpoint.
fn last_good(last: &Option<PathBuf>) -> String {
    match last {
        Some(path) => format!("; the last good checkpoint is {}", path.display()),
        None => "; there is no checkpoint yet".to_owned(),
    }
}

/// The rest of a sentence that says what is kept of a run.
fn kept(last: &Option<PathBuf>) -> String {
    match last {
        Some(path) => format!("; its newest checkpoint is {}", path.display()),
        None => "; it has no checkpoint".to_owned(),
    }
}

/// The process that trains a run, by its number if that is known.
fn trainer(process: &str) -> String {
    match process {
        "" => "another process".to_owned(),
        number => format!("process {number}"),
    }
}

/// The rest of a sentence that names two tokenizers.
fn vocabularies(first: &str, other: &str) -> &'static str {
    match first == other {
        true => ", with other vocabularies",
        false => "",
    }
}

impl TrainError {
    /// For `map_err` on a file operation.
    pub(crate) fn file(
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
