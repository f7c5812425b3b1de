//! The outcome of a step.

/// The report on a step, and on the pending steps before it that were judged with it.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// Positions that all ranks computed in the steps that were judged.
    pub positions: usize,
    /// Seconds that they took.
    pub seconds: f64,
    /// The steps that were skipped, in their order.
    pub skipped: Vec<SkippedStep>,
    /// The outcome of the last of them.
    pub outcome: StepOutcome,
}

impl StepReport {
    /// The report on a step that stays pending.
    pub(super) fn deferred() -> Self {
        Self {
            positions: 0,
            seconds: 0.0,
            skipped: Vec::new(),
            outcome: StepOutcome::Deferred,
        }
    }

    /// The report on a step that was abandoned.
    pub(super) fn abandoned() -> Self {
        Self {
            outcome: StepOutcome::Abandoned,
            ..Self::deferred()
        }
    }
}

/// The outcome of one training step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepOutcome {
    /// The weights were updated.
    Updated(StepMetrics),
    /// The weights were left as they were.
    Skipped,
    /// The step is still to be judged, or is to be computed again after an earlier step was skipped.
    Deferred,
    /// The run was asked to stop between two of its micro-batches. Its gradients are dropped; the weights are those of the
    /// last whole step.
    Abandoned,
    /// So many steps in a row were skipped that the run has to end.
    Diverged,
}

/// The figures of a step that updated the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepMetrics {
    /// The mean loss over the step's targets, in nats per token.
    pub loss: f64,
    /// The norm of all gradients together, before clipping.
    pub gradient_norm: f64,
    /// The learning rate of the update.
    pub learning_rate: f64,
    /// The targets of all ranks that were learned from, where it is not every position.
    pub targets: Option<usize>,
}

/// A step that did not update the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct SkippedStep {
    /// Its number, from 1.
    pub step: usize,
    /// Its loss.
    pub loss: f64,
    /// Its gradients' norm before clipping.
    pub gradient_norm: f64,
    /// The reason.
    pub reason: String,
    /// It was expected: a loss scale is found by a few overflows.
    pub expected: bool,
    /// The number of steps in a row that were skipped for an unexpected reason, up to this one.
    pub in_a_row: usize,
}
