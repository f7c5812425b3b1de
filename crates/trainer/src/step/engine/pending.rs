//! Steps that were made but not judged yet.

use std::collections::VecDeque;
use std::time::Instant;

use burn::tensor::Tensor;
use emberlm_kernels::{Backend, TrainingBackend};

use crate::objective::model::TokenBatch;
use crate::optimizer::guard::Guard;
use crate::optimizer::skip::StepDecision;

/// The most steps made before the host judges them. If a step is skipped, all later ones are wasted work.
const MOST_STEPS: usize = 64;
/// The most positions whose tokens are kept in case steps must be recomputed, at 8 bytes each on the device.
const MOST_POSITIONS: usize = 1 << 23;

/// One rank's micro-batches of one step.
#[derive(Clone)]
pub(crate) struct StepBatches<B: TrainingBackend> {
    pub(super) batches: Vec<TokenBatch<B>>,
    /// Positions in all micro-batches.
    pub(super) positions: usize,
    /// Targets that contribute to the loss, in all micro-batches.
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

/// A step that was made but not judged yet.
pub(super) struct PendingStep<B: TrainingBackend> {
    pub(super) batches: StepBatches<B>,
    /// Targets of all ranks.
    pub(super) targets: usize,
    /// Positions of all ranks.
    pub(super) positions: usize,
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
    /// On the device, `[1]` each. The guard decided about the update.
    OnDevice {
        loss: Tensor<B, 1>,
        norm: Tensor<B, 1>,
        guard: Guard<B>,
    },
}

/// All steps since the last settlement, and the steps to recompute.
pub(super) struct PendingSteps<B: TrainingBackend> {
    steps: Vec<PendingStep<B>>,
    /// The start of the first pending step.
    started: Instant,
    recompute: VecDeque<StepBatches<B>>,
}

impl<B: TrainingBackend> Default for PendingSteps<B> {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            started: Instant::now(),
            recompute: VecDeque::new(),
        }
    }
}

impl<B: TrainingBackend> PendingSteps<B> {
    /// The number of pending steps.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Starts a step. Returns the guard of the newest pending step, which covers all earlier ones.
    pub(super) fn begin(&mut self) -> Option<Guard<B::InnerBackend>> {
        if self.steps.is_empty() {
            self.started = Instant::now();
        }
        match &self.steps.last()?.figures {
            StepFigures::OnDevice { guard, .. } => Some(guard.clone()),
            StepFigures::Judged { .. } => None,
        }
    }

    pub(super) fn push(&mut self, step: PendingStep<B>) {
        self.steps.push(step);
    }

    /// Returns true if so many steps are pending that they should be judged.
    pub(super) fn is_full(&self) -> bool {
        let positions: usize = self.steps.iter().map(|step| step.batches.positions).sum();
        self.steps.len() >= MOST_STEPS || positions >= MOST_POSITIONS
    }

    /// Takes all pending steps in order, with the start time of the first.
    pub(super) fn take(&mut self) -> (Vec<PendingStep<B>>, Instant) {
        (std::mem::take(&mut self.steps), self.started)
    }

    /// Queues steps to be recomputed next, in order.
    pub(super) fn put_back(&mut self, steps: Vec<StepBatches<B>>) {
        for batches in steps.into_iter().rev() {
            self.recompute.push_front(batches);
        }
    }

    /// Takes the micro-batches of the next step to recompute.
    pub(super) fn next_recompute(&mut self) -> Option<StepBatches<B>> {
        self.recompute.pop_front()
    }
}
