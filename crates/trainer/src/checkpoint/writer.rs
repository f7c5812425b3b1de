//! Writes checkpoints on a background thread, one at a time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use emberlm_checkpoint::CheckpointError;
use emberlm_kernels::Backend;

use super::{Contents, Keep, OptimizerState, prune, write};

/// The outcome of writing a checkpoint.
pub struct Written {
    /// The step of the checkpoint.
    pub step: usize,
    /// The checkpoint's directory, or the error.
    pub result: Result<PathBuf, CheckpointError>,
    /// The outcome of removing checkpoints that are no longer kept.
    pub pruned: Result<(), CheckpointError>,
}

/// Writes a run's checkpoints while training continues.
pub struct Writer {
    run: PathBuf,
    writing: Option<JoinHandle<Written>>,
}

impl Writer {
    /// Creates a writer for a run's directory.
    pub fn new(run: &Path) -> Self {
        Self {
            run: run.to_owned(),
            writing: None,
        }
    }

    /// Starts writing a checkpoint, after syncing `events` to disk. First waits for the previous checkpoint
    /// and returns its outcome, so at most one additional copy of the weights exists.
    pub fn begin<B: Backend>(
        &mut self,
        optimizer: OptimizerState<B>,
        contents: Contents<B>,
        keep: Keep,
        events: Option<File>,
    ) -> Option<Written> {
        let before = self.wait();
        let run = self.run.clone();
        self.writing = Some(std::thread::spawn(move || {
            let step = contents.state.step;
            // If syncing fails, so will writing the checkpoint to the same disk, which reports the error.
            let _ = events.map(|events| events.sync_data());
            let result = write(&run, optimizer, &contents);
            let pruned = match &result {
                Ok(_) => prune(&run, step, keep),
                Err(_) => Ok(()),
            };
            Written {
                step,
                result,
                pruned,
            }
        }));
        before
    }

    /// Returns the outcome of the checkpoint in progress if it is complete.
    pub fn done(&mut self) -> Option<Written> {
        match &self.writing {
            Some(writing) if writing.is_finished() => self.wait(),
            _ => None,
        }
    }

    /// Waits for the checkpoint in progress and returns its outcome.
    pub fn wait(&mut self) -> Option<Written> {
        match self.writing.take()?.join() {
            Ok(written) => Some(written),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
