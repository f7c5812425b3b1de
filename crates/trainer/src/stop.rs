//! Requests to stop a run before its last step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::train::Interrupter;

/// A request to stop a run. Shares its interrupter with Burn's learner and the caller.
#[derive(Clone, Default)]
pub(crate) struct StopSignal {
    interrupter: Interrupter,
    discard: Arc<AtomicBool>,
}

impl StopSignal {
    /// Creates a signal that also reacts to requests through `interrupter`.
    pub(crate) fn new(interrupter: Interrupter) -> Self {
        Self {
            interrupter,
            discard: Arc::default(),
        }
    }

    /// The underlying interrupter.
    pub(crate) fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    /// Requests a stop after the current step, with a checkpoint.
    pub(crate) fn save(&self) {
        self.interrupter.stop(Some("stopped"));
    }

    /// Requests a stop without a checkpoint. Existing checkpoints are kept.
    pub(crate) fn discard(&self) {
        self.discard.store(true, Ordering::SeqCst);
        self.interrupter.stop(Some("stopped without a checkpoint"));
    }

    /// Returns true if a stop was requested.
    pub(crate) fn is_requested(&self) -> bool {
        self.interrupter.should_stop()
    }

    /// Returns true if the run should end without a checkpoint.
    pub(crate) fn discards(&self) -> bool {
        self.discard.load(Ordering::SeqCst)
    }
}
