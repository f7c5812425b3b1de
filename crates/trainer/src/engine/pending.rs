//! The steps that were made and not yet judged.

use std::collections::VecDeque;
use std::time::Instant;

use burn::tensor::Tensor;
use emberlm_kernels::{Backend, TrainingBackend};

use crate::guard::Guard;
use crate::skip::StepDecision;
use crate::training_model::TokenBatch;

/// The most steps that are made before the host looks at them: none of those after one that has to be skipped counts.
const MOST_STEPS: usize = 64;
/// The most positions whose tokens are kept for steps to be made again, 8 bytes each on the device.
const MOST_POSITIONS: usize = 1 << 23;

/// A rank's micro-batches of one step.
#[derive(Clone)]
pub(crate) struct StepBatches<B: TrainingBackend> {
    pub(super) batches: Vec<TokenBatch<B>>,
    /// Positions in all of them.
    pub(super) positions: usize,
    /// Targets to learn from in all of them.
    pub(super) targets: usize,
}

impl<B: TrainingBackend> StepBatches<B> {
    pub(crate) fn new(batches: Vec<TokenBatch<B>>) -> Self {
        Self {
            positions: batches.iter().map(TokenBatch::count).sum(),
            targets: batches.iter().map(|batch| batch.learnt).sum(),
            batches,
        }
    }
}

/// A step that was made and whose outcome is to be settled.
pub(super) struct PendingStep<B: TrainingBackend> {
    pub(super) batches: StepBatches<B>,
    /// The targets of all ranks.
    pub(super) targets: usize,
    pub(super) learning_rate: f64,
    pub(super) figures: StepFigures<B::InnerBackend>,
}

/// The loss and the gradient norm of a pending step.
pub(super) enum StepFigures<B: Backend> {
    /// Read and judged before the update.
    Judged {
        loss: f64,
        norm: f64,
        verdict: StepDecision,
    },
    /// On the device, `[1]` each; the guard decided about the update.
    OnDevice {
        loss: Tensor<B, 1>,
        norm: Tensor<B, 1>,
        guard: Guard<B>,
    },
}

/// All steps since the last settlement, and those to be made again.
pub(super) struct PendingSteps<B: TrainingBackend> {
    steps: Vec<PendingStep<B>>,
    /// When the first of them was begun.
    started: Instant,
    again: VecDeque<StepBatches<B>>,
}

impl<B: TrainingBackend> Default for PendingSteps<B> {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            started: Instant::now(),
            again: VecDeque::new(),
        }
    }
}

impl<B: TrainingBackend> PendingSteps<B> {
    /// The number of steps to be judged.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Begins a step. Returns the guard of the newest step before it, and so of all.
    pub(super) fn begin(&mut self) -> Option<Guard<B::InnerBackend>> {
        if self.steps.is_empty() {
            self.started = Instant::now();
        }
        match &self.steps.last()?.figures {
            StepFigures::OnDevice { guard, .. } => Some(guard.clone()),
            StepFigures::Judged { .. } => None,
        }
    }

    /// Adds a step that was made.
    pub(super) fn push(&mut self, step: PendingStep<B>) {
        self.steps.push(step);
    }

    /// Returns true if they are enough to be judged.
    pub(super) fn is_full(&self) -> bool {
        let positions: usize = self.steps.iter().map(|step| step.batches.positions).sum();
        self.steps.len() >= MOST_STEPS || positions >= MOST_POSITIONS
    }

    /// Takes all steps in their order, with the time at which the first was begun.
    pub(super) fn take(&mut self) -> (Vec<PendingStep<B>>, Instant) {
        (std::mem::take(&mut self.steps), self.started)
    }

    /// Makes the steps of these micro-batches, in their order, the next ones.
    pub(super) fn put_back(&mut self, steps: Vec<StepBatches<B>>) {
        for batches in steps.into_iter().rev() {
            self.again.push_front(batches);
        }
    }

    /// Takes the micro-batches of the next step to be made again.
    pub(super) fn again(&mut self) -> Option<StepBatches<B>> {
        self.again.pop_front()
    }
}
