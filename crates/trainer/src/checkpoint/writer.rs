//! Writes checkpoints on a background thread, one at a time.

use std::fs::File;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use emberlm_checkpoint::CheckpointError;
use emberlm_kernels::Backend;

use super::{Contents, Keep, OptimizerState, prune, write};

/// The longest time that training waits for a checkpoint.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The least time between two checkpoints, in times that one takes, if that is more than [`LONGEST_WAIT`].
const LEAST_RATIO: u32 = 20;

/// The outcome of writing a checkpoint.
pub struct Written {
    /// The step of the checkpoint.
    pub step: usize,
    /// The checkpoint's directory, or the error.
    pub result: Result<PathBuf, CheckpointError>,
    /// The outcome of removing checkpoints that are no longer kept.
    pub pruned: Result<(), CheckpointError>,
    /// The time that it took.
    pub took: Duration,
}

/// A checkpoint in progress, or the outcome if the system started no thread for it.
type Writing = Result<JoinHandle<Written>, Box<Written>>;

/// Writes a run's checkpoints while training continues.
pub struct Writer {
    run: PathBuf,
    writing: Option<Writing>,
    /// The time at which the newest checkpoint was begun.
    begun: Option<Instant>,
    /// The time that the checkpoint before it took.
    took: Duration,
}

impl Writer {
    /// Creates a writer for a run's directory.
    pub fn new(run: &Path) -> Self {
        Self {
            run: run.to_owned(),
            writing: None,
            begun: None,
            took: Duration::ZERO,
        }
    }

    /// The time since the newest checkpoint was begun. `None` before the first.
    pub fn since_begun(&self) -> Option<Duration> {
        self.begun.map(|begun| begun.elapsed())
    }

    /// Returns true if another checkpoint now would delay training: the newest is still being written, or checkpoints take
    /// long compared with the time since it was begun.
    pub fn is_busy(&self) -> bool {
        let Some(since) = self.since_begun() else {
            return false;
        };
        let writing = self.writing.as_ref();
        let is_writing = writing.is_some_and(|writing| !has_ended(writing));
        let took = if is_writing { since } else { self.took };
        took > LONGEST_WAIT && since < took * LEAST_RATIO
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
        let begun = Instant::now();
        self.begun = Some(begun);
        let step = contents.state.step;
        let work = move || {
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
                took: begun.elapsed(),
            }
        };
        let thread = thread::Builder::new().name("checkpoint".to_owned());
        let thread = thread.spawn(work);
        self.writing = Some(thread.map_err(|source| {
            Box::new(Written {
                step,
                result: Err(CheckpointError::file("start a thread to write", &self.run)(
                    source,
                )),
                pruned: Ok(()),
                took: Duration::ZERO,
            })
        }));
        before
    }

    /// Returns the outcome of the checkpoint in progress if it is complete.
    pub fn done(&mut self) -> Option<Written> {
        match &self.writing {
            Some(writing) if has_ended(writing) => self.wait(),
            _ => None,
        }
    }

    /// Waits for the checkpoint in progress and returns its outcome.
    pub fn wait(&mut self) -> Option<Written> {
        let written = match self.writing.take()? {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(refused) => *refused,
        };
        self.took = written.took;
        Some(written)
    }
}

fn has_ended(writing: &Writing) -> bool {
    writing.as_ref().map_or(true, JoinHandle::is_finished)
}
