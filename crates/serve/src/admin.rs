//! Access to the models for an administrator, who loads and removes them while the server runs.

use std::sync::mpsc::SyncSender;

use tokio::sync::oneshot;

use crate::model_entry::ModelEntry;

/// Access for an administrator.
#[derive(Debug)]
pub struct Admin {
    /// The key that an administrator must send. That of clients gives no access.
    pub key: String,
    /// Receives the models to load. Its receiver adds them to the [`ServedModels`](crate::ServedModels) and answers.
    pub loads: SyncSender<LoadRequest>,
}

/// A model to load.
#[derive(Debug)]
pub struct LoadRequest {
    /// The model.
    pub entry: ModelEntry,
    /// Receives the model's name once it is served, or the reason why it is not. An administrator who no longer waits does
    /// not end the load.
    pub answer: oneshot::Sender<Result<String, RefusedLoad>>,
}

/// A model that is not loaded. The messages contain the remedy.
#[derive(Debug, thiserror::Error)]
pub enum RefusedLoad {
    /// A served model has the name or the alias.
    #[error("{0}")]
    Exists(String),
    /// The path is not below a folder that models may be loaded from.
    #[error("{0}")]
    Path(String),
    /// The model does not fit into memory.
    #[error("{0}")]
    Memory(String),
    /// The model or its settings are invalid.
    #[error("{0}")]
    Invalid(String),
}
