//! Writes a run's events and checkpoints. A full disk stops neither training nor the program: failed writes
//! are retried.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use emberlm_checkpoint::CheckpointError;
use emberlm_kernels::Backend;

use crate::checkpoint::{Contents, Keep, OptimizerState, Writer, Written};
use crate::config::CheckpointConfig;
use crate::error::TrainError;
use crate::hooks::{CheckpointEnd, HookList};
use crate::report::events::{Event, EventLog, now};
use crate::report::messages::Messages;
use crate::report::tensorboard::TensorBoard;
use crate::run::folder::RunFolder;

/// The number of attempts to write the last checkpoint, with pauses in between.
const MAX_ATTEMPTS: u64 = 4;

/// The time after which the first checkpoint is written, if `train.checkpoints.minutes` is not 0.
const FIRST_CHECKPOINT: Duration = Duration::from_secs(60);

/// Writes a run's files during training.
pub(crate) struct Recorder {
    folder: Arc<RunFolder>,
    events: EventLog,
    tensorboard: Option<TensorBoard>,
    writer: Writer,
    pub(crate) messages: Messages,
    pub(crate) hooks: HookList,
    /// True if the last write to the log failed.
    log_fails: bool,
    /// The newest complete checkpoint on disk.
    pub(crate) newest: Option<PathBuf>,
    /// The error of the last checkpoint, if it could not be written.
    failure: Option<String>,
    /// True if the last checkpoint failed and has to be retried.
    pub(crate) retry_due: bool,
    started: Instant,
}

impl Recorder {
    pub(crate) fn new(
        folder: Arc<RunFolder>,
        events: EventLog,
        tensorboard: Option<TensorBoard>,
        messages: Messages,
        hooks: HookList,
        newest: Option<PathBuf>,
    ) -> Self {
        Self {
            events,
            tensorboard,
            writer: Writer::new(folder.path()),
            folder,
            failure: None,
            messages,
            hooks,
            log_fails: false,
            newest,
            retry_due: false,
            started: Instant::now(),
        }
    }

    /// Returns true if a temporary checkpoint is due, at a line of the log or after an evaluation.
    pub(crate) fn is_temporary_due(&self, evaluated: bool, config: &CheckpointConfig) -> bool {
        if self.writer.is_busy() {
            return false;
        }
        let since = self.writer.since_begun();
        let interval = Duration::from_secs(config.minutes.saturating_mul(60));
        let waited = match since {
            Some(since) => since >= interval,
            None => self.started.elapsed() >= interval.min(FIRST_CHECKPOINT),
        };
        (evaluated && config.at_evaluations) || (waited && config.minutes > 0)
    }

    /// Checks that the run's directory still exists, before a file is written into it.
    ///
    /// # Errors
    /// The directory was removed, renamed or replaced.
    pub(crate) fn check(&self) -> Result<(), TrainError> {
        self.folder.check()
    }

    /// Writes an event to the log.
    pub(crate) fn record(&mut self, event: &Event) {
        let result = self.events.write(event);
        let mirrored = self.tensorboard.as_mut().map(|files| files.write(event));
        match result.and(mirrored.unwrap_or(Ok(()))) {
            Ok(()) => self.log_fails = false,
            Err(error) if !self.log_fails => {
                self.log_fails = true;
                self.messages.say(format!(
                    "warning: {error}; the lines are kept and written again later"
                ));
            }
            Err(_) => {}
        }
    }

    /// Starts writing a checkpoint.
    pub(crate) fn save<B: Backend>(
        &mut self,
        optimizer: OptimizerState<B>,
        contents: Contents<B>,
        keep: Keep,
    ) {
        self.retry_due = false;
        let events = self.events.handle();
        let before = self.writer.begin(optimizer, contents, keep, events);
        self.report(before);
    }

    /// Reports a checkpoint that could not be written.
    pub(crate) fn fail(&mut self, step: usize, error: CheckpointError) {
        self.report(Some(Written {
            step,
            result: Err(error),
            pruned: Ok(()),
            took: Duration::ZERO,
        }));
    }

    /// Reports the checkpoint in progress if it is complete.
    pub(crate) fn poll(&mut self) {
        let done = self.writer.done();
        self.report(done);
    }

    /// Waits for the checkpoint in progress and reports it.
    pub(crate) fn wait(&mut self) {
        let done = self.writer.wait();
        self.report(done);
    }

    fn report(&mut self, written: Option<Written>) {
        let Some(Written {
            step,
            result,
            pruned,
            ..
        }) = written
        else {
            return;
        };
        if let Err(error) = pruned {
            self.messages.say(format!(
                "warning: an old checkpoint could not be removed: {error}"
            ));
        }
        let time = now();
        match result {
            Ok(path) => {
                self.record(&Event::Checkpoint { time, step });
                self.hooks.on_checkpoint(&CheckpointEnd {
                    step,
                    result: Ok(&path),
                });
                self.newest = Some(path);
            }
            Err(error) => {
                self.retry_due = true;
                let reason = error.to_string();
                self.failure = Some(reason.clone());
                self.messages.say(format!(
                    "warning: no checkpoint at step {step}: {reason}; training continues and will retry"
                ));
                self.hooks.on_checkpoint(&CheckpointEnd {
                    step,
                    result: Err(&reason),
                });
                self.record(&Event::CheckpointFailed { time, step, reason });
            }
        }
    }

    /// Waits until the last checkpoint, which `save` begins, is written. Retries a few times on failure.
    ///
    /// # Errors
    /// The checkpoint could not be written, or the error of `save`.
    pub(crate) fn save_last(
        &mut self,
        step: usize,
        mut save: impl FnMut(&mut Self) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        for attempt in 0..MAX_ATTEMPTS {
            std::thread::sleep(Duration::from_secs(attempt));
            save(self)?;
            self.wait();
            if !self.retry_due {
                return Ok(());
            }
        }
        Err(TrainError::NoCheckpoint {
            step,
            reason: self.failure.clone().unwrap_or_default(),
            last: self.newest.clone(),
        })
    }

    /// Writes buffered events.
    ///
    /// # Errors
    /// The log or the TensorBoard file cannot be written.
    pub(crate) fn flush(&mut self) -> Result<(), TrainError> {
        let mirrored = self.tensorboard.as_mut().map(TensorBoard::flush);
        self.events.flush().and(mirrored.unwrap_or(Ok(())))
    }
}
