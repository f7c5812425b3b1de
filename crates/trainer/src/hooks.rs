//! Hooks: a program's own code at steps, evaluations and checkpoints of a run, which may add metrics.
//!
//! A run's hooks are in [`RunOptions::hooks`](crate::RunOptions::hooks). They are called in their order, on rank 0 only, on
//! the thread that trains.
//!
//! ```
//! use emberlm_trainer::hooks::{EvaluationEnd, Hook, HookContext, HookError, StepEnd, StepResult};
//! use emberlm_trainer::metrics::{Direction, Metric};
//!
//! /// Logs the loss in bits, and stops the run after five evaluations without a better one.
//! #[derive(Default)]
//! struct EarlyStop {
//!     worse: usize,
//! }
//!
//! impl Hook for EarlyStop {
//!     fn metrics(&self) -> Vec<Metric> {
//!         vec![Metric::new("bits_per_token", "Bits per token").direction(Direction::LowerIsBetter)]
//!     }
//!
//!     fn on_step(&mut self, step: &StepEnd<'_>, context: &mut HookContext<'_>) -> Result<(), HookError> {
//!         if let StepResult::Updated(metrics) = step.result {
//!             context.record("bits_per_token", metrics.loss / std::f64::consts::LN_2);
//!         }
//!         Ok(())
//!     }
//!
//!     fn on_evaluation(&mut self, evaluation: &EvaluationEnd<'_>, context: &mut HookContext<'_>) -> Result<(), HookError> {
//!         self.worse = if evaluation.is_best { 0 } else { self.worse + 1 };
//!         if self.worse == 5 {
//!             context.stop();
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let hooks: Vec<Box<dyn Hook>> = vec![Box::new(EarlyStop::default())];
//! # assert_eq!(hooks[0].metrics().len(), 1);
//! ```

use std::path::Path;

use crate::engine::StepMetrics;
use crate::events::{DatasetLoss, Ending};
use crate::metrics::Metric;

mod list;

pub use list::HookContext;
pub(crate) use list::HookList;

/// An error of a hook. It ends the run, with a checkpoint.
pub type HookError = Box<dyn std::error::Error + Send + Sync>;

/// A program's own code in a run.
pub trait Hook: Send {
    /// The metrics that the hook records. Their names must not be built in or another hook's.
    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }

    /// Called once, when the run's directory has its configuration and its log.
    ///
    /// # Errors
    /// Any; it ends the run.
    fn on_start(&mut self, start: &RunBegin<'_>) -> Result<(), HookError> {
        let _ = start;
        Ok(())
    }

    /// Called after each step whose figures are known. On a device that works behind the host, these are the steps
    /// after which something is due.
    ///
    /// Readings of several steps are aggregated until the next line of the log; a resumed run starts a new aggregate.
    ///
    /// # Errors
    /// Any; it ends the run.
    fn on_step(
        &mut self,
        step: &StepEnd<'_>,
        context: &mut HookContext<'_>,
    ) -> Result<(), HookError> {
        let _ = (step, context);
        Ok(())
    }

    /// Called after each evaluation, before it is logged.
    ///
    /// # Errors
    /// Any; it ends the run.
    fn on_evaluation(
        &mut self,
        evaluation: &EvaluationEnd<'_>,
        context: &mut HookContext<'_>,
    ) -> Result<(), HookError> {
        let _ = (evaluation, context);
        Ok(())
    }

    /// Called when a checkpoint is complete on disk, or could not be written. Checkpoints are written while training
    /// continues, so this is some steps after the checkpoint's own.
    ///
    /// # Errors
    /// Any; it ends the run.
    fn on_checkpoint(&mut self, checkpoint: &CheckpointEnd<'_>) -> Result<(), HookError> {
        let _ = checkpoint;
        Ok(())
    }

    /// Called once, at the end of the run.
    ///
    /// # Errors
    /// Any; the run then ends with it.
    fn on_end(&mut self, end: &RunEnd) -> Result<(), HookError> {
        let _ = end;
        Ok(())
    }
}

/// The beginning of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunBegin<'a> {
    /// The run's directory.
    pub run: &'a Path,
    /// The steps made before, by a run that is resumed.
    pub step: usize,
    /// The steps of the whole run.
    pub steps: usize,
}

/// A step that was made.
#[derive(Clone, Copy, Debug)]
pub struct StepEnd<'a> {
    /// Its number, from 1.
    pub step: usize,
    /// The steps of the whole run.
    pub steps: usize,
    /// Its outcome.
    pub result: StepResult<'a>,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug)]
pub enum StepResult<'a> {
    /// The weights were updated.
    Updated(StepMetrics),
    /// The weights were left as they were.
    Skipped {
        /// The reason.
        reason: &'a str,
    },
}

/// An evaluation.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationEnd<'a> {
    /// The steps made before it.
    pub step: usize,
    /// The mean validation loss, in nats per token.
    pub loss: f64,
    /// The validation tokens that were predicted.
    pub tokens: u64,
    /// Each dataset's own loss, where there are several.
    pub datasets: &'a [DatasetLoss],
    /// The loss is the lowest so far.
    pub is_best: bool,
}

/// A checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointEnd<'a> {
    /// Its step.
    pub step: usize,
    /// Its directory, or the reason why it could not be written.
    pub result: Result<&'a Path, &'a str>,
}

/// The end of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunEnd {
    /// The steps made.
    pub step: usize,
    /// The way it ended.
    pub ending: Ending,
}
