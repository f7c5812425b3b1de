//! Hooks: custom code that runs at steps, evaluations and checkpoints and can record metrics.
//!
//! Pass hooks in [`RunOptions::hooks`](crate::RunOptions::hooks). They are called in order, on rank 0 only,
//! on the training thread.
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

use crate::report::events::{DatasetLoss, Ending};
use crate::report::metrics::Metric;
use crate::step::engine::StepMetrics;

mod list;

pub use crate::error::HookError;
pub use list::HookContext;
pub(crate) use list::HookList;

/// Custom code that runs during training.
pub trait Hook: Send {
    /// The metrics that the hook records. Their names must differ from built-in metrics and those of other
    /// hooks.
    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }

    /// Called once, after the run's directory has its configuration and its log.
    ///
    /// # Errors
    /// Any error ends the run.
    fn on_start(&mut self, start: &RunBegin<'_>) -> Result<(), HookError> {
        let _ = start;
        Ok(())
    }

    /// Called after each step whose metrics are read. On an asynchronous device, these are the steps after
    /// which something is due.
    ///
    /// Values recorded over several steps are aggregated until the next log line. A resumed run starts a new
    /// aggregate.
    ///
    /// # Errors
    /// Any error ends the run.
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
    /// Any error ends the run.
    fn on_evaluation(
        &mut self,
        evaluation: &EvaluationEnd<'_>,
        context: &mut HookContext<'_>,
    ) -> Result<(), HookError> {
        let _ = (evaluation, context);
        Ok(())
    }

    /// Called when a checkpoint is complete on disk or could not be written. Checkpoints are written while
    /// training continues, so this can be some steps after the checkpoint's step.
    ///
    /// # Errors
    /// Any error ends the run.
    fn on_checkpoint(&mut self, checkpoint: &CheckpointEnd<'_>) -> Result<(), HookError> {
        let _ = checkpoint;
        Ok(())
    }

    /// Called once, at the end of the run.
    ///
    /// # Errors
    /// Any error becomes the result of the run.
    fn on_end(&mut self, end: &RunEnd) -> Result<(), HookError> {
        let _ = end;
        Ok(())
    }
}

/// The start of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunBegin<'a> {
    /// The run's directory.
    pub run: &'a Path,
    /// Steps completed before, if the run is resumed.
    pub step: usize,
    /// The configured number of steps.
    pub steps: usize,
}

/// A completed step.
#[derive(Clone, Copy, Debug)]
pub struct StepEnd<'a> {
    /// The step's number, counted from 1.
    pub step: usize,
    /// The configured number of steps.
    pub steps: usize,
    /// The outcome of the step.
    pub result: StepResult<'a>,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug)]
pub enum StepResult<'a> {
    /// The weights were updated.
    Updated(StepMetrics),
    /// The weights were left unchanged.
    Skipped {
        /// The reason.
        reason: &'a str,
    },
}

/// A completed evaluation.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationEnd<'a> {
    /// Steps completed before the evaluation.
    pub step: usize,
    /// The mean validation loss in nats per token.
    pub loss: f64,
    /// Predicted validation tokens.
    pub tokens: u64,
    /// The loss of each dataset, if there are several.
    pub datasets: &'a [DatasetLoss],
    /// True if the loss is the lowest so far.
    pub is_best: bool,
}

/// A checkpoint that was written or failed.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointEnd<'a> {
    /// The step of the checkpoint.
    pub step: usize,
    /// The checkpoint's directory, or the reason it could not be written.
    pub result: Result<&'a Path, &'a str>,
}

/// The end of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunEnd {
    /// Steps completed.
    pub step: usize,
    /// The reason that the run ended.
    pub ending: Ending,
}
