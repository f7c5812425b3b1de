//! `events.jsonl`: what happened in a run, a line each.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::TrainError;

/// A line of `events.jsonl`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A logged step.
    Step {
        /// Updates made.
        step: usize,
        /// Tokens trained on.
        tokens: u64,
        /// The step's mean loss, before its update.
        loss: f64,
        /// Norm of all gradients together, before clipping.
        gradient_norm: f64,
        /// The update's rate.
        learning_rate: f64,
        /// Speed since the line before.
        tokens_per_second: f64,
    },
    /// An evaluation.
    Evaluation {
        /// Updates made.
        step: usize,
        /// Mean loss over the validation tokens.
        loss: f64,
        /// `exp(loss)`.
        perplexity: f64,
        /// Validation tokens.
        tokens: u64,
    },
    /// A checkpoint was written.
    Checkpoint {
        /// Updates made.
        step: usize,
    },
}

/// Writes events as they happen; each line reaches the file at once.
pub struct EventLog {
    path: PathBuf,
    file: File,
}

impl EventLog {
    /// A new log in a run directory.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(run: &Path) -> Result<Self, TrainError> {
        let path = run.join("events.jsonl");
        let file = File::create(&path).map_err(TrainError::file("create", &path))?;
        Ok(Self { path, file })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, event: &Event) -> Result<(), TrainError> {
        let failed = TrainError::file("write", &self.path);
        let line = serde_json::to_string(event).map_err(std::io::Error::from);
        line.and_then(|line| writeln!(self.file, "{line}"))
            .map_err(failed)
    }
}
