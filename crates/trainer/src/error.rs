//! What can stop a run.

use std::path::PathBuf;

use emberlm_data::{DataError, TokenizerError};
use emberlm_generate::GenerateError;
use emberlm_model::{ConfigError, WeightsError};

/// An error of training, evaluation or a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A training setting that is not allowed.
    #[error("{table}.{field} = {value}: {rule}")]
    Setting {
        /// The table it stands in: `train` or `data`.
        table: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: String,
    },
    /// A model setting that is not allowed.
    #[error(transparent)]
    Model(#[from] ConfigError),
    /// The dataset cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
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
    #[error("{path}: {action}: {reason}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        reason: String,
    },
    /// The run directory is already a run's.
    #[error("{path} already holds a run")]
    RunExists {
        /// The directory.
        path: PathBuf,
    },
    /// A checkpoint that is not whole or not readable.
    #[error("{path} is not a whole checkpoint: {reason}")]
    Checkpoint {
        /// Its directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The loss is not a number any more.
    #[error("the loss is {loss} at step {step}")]
    Diverged {
        /// The step.
        step: usize,
        /// The loss.
        loss: f64,
    },
    /// The run was ended from the dashboard, at once.
    #[error("the run was killed from the dashboard, without a last checkpoint")]
    Killed,
}

impl TrainError {
    /// For `map_err` on a file operation.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |error| Self::File {
            path,
            action,
            reason: error.to_string(),
        }
    }
}
