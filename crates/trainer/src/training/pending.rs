//! The steps that were made and not yet judged, on a device that works behind the host.

use std::collections::VecDeque;
use std::time::Instant;

use burn::tensor::Tensor;
use emberlm_kernels::TrainingBackend;

use crate::guard::Guard;
use crate::trainee::TokenBatch;

/// The most steps that are made before the host looks at them: none of those after one that has to be skipped counts.
const MOST_STEPS: usize = 64;
/// The most positions whose tokens are kept for steps to be made again, 8 bytes each on the device.
const MOST_POSITIONS: usize = 1 << 23;

/// A step's micro-batches.
pub(super) struct Micro<B: TrainingBackend> {
    pub(super) batches: Vec<TokenBatch<B>>,
    /// Positions in all of them.
    pub(super) tokens: usize,
    /// Targets to be learnt in all of them.
    pub(super) learnt: usize,
}

impl<B: TrainingBackend> Micro<B> {
    pub(super) fn of(batches: Vec<TokenBatch<B>>) -> Self {
        Self {
            tokens: batches.iter().map(TokenBatch::count).sum(),
            learnt: batches.iter().map(|batch| batch.learnt).sum(),
            batches,
        }
    }
}

/// A step that was made, as its guard let it, and that is to be judged.
pub(super) struct Unread<B: TrainingBackend> {
    pub(super) made: Micro<B>,
    /// Its mean loss, `[1]`.
    pub(super) loss: Tensor<B::InnerBackend, 1>,
    /// Its gradients' norm, `[1]`.
    pub(super) norm: Tensor<B::InnerBackend, 1>,
    pub(super) rate: f64,
}

/// All of them since the last reading, and those to be made again.
pub(super) struct Pending<B: TrainingBackend> {
    steps: Vec<Unread<B>>,
    /// Of the newest of them, and so of all.
    guard: Option<Guard<B::InnerBackend>>,
    /// When the first of them was begun.
    started: Instant,
    again: VecDeque<Vec<TokenBatch<B>>>,
}

impl<B: TrainingBackend> Default for Pending<B> {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            guard: None,
            started: Instant::now(),
            again: VecDeque::new(),
        }
    }
}

impl<B: TrainingBackend> Pending<B> {
    /// Steps to be judged.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// A step is begun: the guard of those before it.
    pub(super) fn begin(&mut self) -> Option<Guard<B::InnerBackend>> {
        if self.steps.is_empty() {
            self.started = Instant::now();
        }
        self.guard.clone()
    }

    /// A step was made.
    pub(super) fn push(&mut self, step: Unread<B>, guard: Guard<B::InnerBackend>) {
        self.steps.push(step);
        self.guard = Some(guard);
    }

    /// Whether they are enough.
    pub(super) fn is_full(&self) -> bool {
        let positions: usize = self.steps.iter().map(|step| step.made.tokens).sum();
        self.steps.len() >= MOST_STEPS || positions >= MOST_POSITIONS
    }

    /// All steps in their order and when the first was begun. The next one begins with a new guard.
    pub(super) fn take(&mut self) -> (Vec<Unread<B>>, Instant) {
        self.guard = None;
        (std::mem::take(&mut self.steps), self.started)
    }

    /// Makes the steps of these micro-batches, one after another, the next ones.
    pub(super) fn put_back(&mut self, steps: Vec<Vec<TokenBatch<B>>>) {
        for batches in steps.into_iter().rev() {
            self.again.push_front(batches);
        }
    }

    /// The micro-batches of the next step to be made again.
    pub(super) fn again(&mut self) -> Option<Vec<TokenBatch<B>>> {
        self.again.pop_front()
    }
}
