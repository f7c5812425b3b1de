//! Writing `events.jsonl`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{EVENTS_FILE, Event};
use crate::error::TrainError;

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
        let path = run.join(EVENTS_FILE);
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
