//! Writing checkpoints off the training thread, one at a time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use emberlm_checkpoint::CheckpointError;
use emberlm_kernels::Backend;

use super::{Contents, Keep, prune, write};

/// The result of writing a checkpoint.
pub struct Written {
    /// Its step.
    pub step: usize,
    /// Its directory; an error where it is not there.
    pub result: Result<PathBuf, CheckpointError>,
    /// The result of removing older checkpoints that need not be kept.
    pub pruned: Result<(), CheckpointError>,
}

/// Writes a run's checkpoints while training continues.
pub struct Writer {
    run: PathBuf,
    writing: Option<JoinHandle<Written>>,
}

impl Writer {
    /// A writer into a run.
    pub fn new(run: &Path) -> Self {
        Self {
            run: run.to_owned(),
            writing: None,
        }
    }

    /// Begins to write a checkpoint after the `events` before it have reached the disk. Waits for the
    /// previous one, so that never two copies of the weights wait, and returns its outcome.
    pub fn begin<B: Backend>(
        &mut self,
        contents: Contents<B>,
        keep: Keep,
        events: Option<File>,
    ) -> Option<Written> {
        let before = self.wait();
        let run = self.run.clone();
        self.writing = Some(std::thread::spawn(move || {
            let step = contents.state.step;
            // A failure shows again at the checkpoint's own files, which lie on the same disk.
            let _ = events.map(|events| events.sync_data());
            let result = write(&run, &contents);
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

    /// The result of the checkpoint in progress, if it is finished.
    pub fn done(&mut self) -> Option<Written> {
        match &self.writing {
            Some(writing) if writing.is_finished() => self.wait(),
            _ => None,
        }
    }

    /// Waits for the checkpoint in progress, and returns its result.
    pub fn wait(&mut self) -> Option<Written> {
        match self.writing.take()?.join() {
            Ok(written) => Some(written),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
