//! The reasons of a worker to reject a command.

use emberlm_generate::GenerateError;

use crate::worker_engine::SubmitError;

/// A command that a worker rejected.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The maximum number of requests is running or waiting.
    #[error("too many concurrent requests (limit {limit})")]
    Full {
        /// The limit.
        limit: usize,
    },
    /// The engine rejected the request.
    #[error(transparent)]
    Invalid(#[from] GenerateError),
    /// The model was unloaded and cannot be loaded again.
    #[error("the model cannot be loaded: {0}")]
    Load(String),
    /// Another model needed the memory, and the request's answer was not read meanwhile.
    #[error("the answer was not read while another model needed the memory")]
    Unread,
    /// The thread has ended, because it failed or the program is ending.
    #[error("the model's thread has ended")]
    Gone,
}

impl From<SubmitError> for Refusal {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Invalid(error) => Self::Invalid(error),
            SubmitError::Load(reason) => Self::Load(reason),
        }
    }
}
