//! The outcome of a step.

/// A report on a step and on the pending steps that were judged with it.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// Positions computed by all ranks in the judged steps.
    pub positions: usize,
    /// The duration of the judged steps in seconds.
    pub seconds: f64,
    /// The skipped steps, in order.
    pub skipped: Vec<SkippedStep>,
    /// The outcome of the last judged step.
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

    /// Returns true if the last step's effect on the weights is known and the run continues.
    pub(crate) fn is_judged(&self) -> bool {
        matches!(self.outcome, StepOutcome::Updated(_) | StepOutcome::Skipped)
    }

    /// The report on an abandoned step.
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
    /// The weights were left unchanged.
    Skipped,
    /// The step is not judged yet, or must be recomputed because an earlier step was skipped.
    Deferred,
    /// A request to stop interrupted the step between two micro-batches. Its gradients are dropped, and the
    /// weights are those after the last complete step.
    Abandoned,
    /// The limit of consecutive skipped steps is reached, so the run has to end.
    Diverged,
}

/// The metrics of a step that updated the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepMetrics {
    /// The mean loss over the step's targets, in nats per token.
    pub loss: f64,
    /// The global gradient norm before clipping.
    pub gradient_norm: f64,
    /// The learning rate of the update.
    pub learning_rate: f64,
    /// The number of targets on all ranks that contribute to the loss, unless every position does.
    pub targets: Option<usize>,
}

/// A step that did not update the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct SkippedStep {
    /// The step's number, counted from 1.
    pub step: usize,
    /// The mean loss.
    pub loss: f64,
    /// The global gradient norm before clipping.
    pub gradient_norm: f64,
    /// The reason.
    pub reason: String,
    /// True for an overflow while the loss scale adapts.
    pub expected: bool,
    /// The number of consecutive steps skipped for an unexpected reason, including this one.
    pub in_a_row: usize,
}
