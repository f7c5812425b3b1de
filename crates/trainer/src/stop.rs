//! The request to stop a run before its last step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::train::Interrupter;

/// The request to stop a run. Burn's learner and the caller share the interrupter.
#[derive(Clone, Default)]
pub(crate) struct StopSignal {
    interrupter: Interrupter,
    discard: Arc<AtomicBool>,
}

impl StopSignal {
    /// A request that is made through an interrupter too.
    pub(crate) fn new(interrupter: Interrupter) -> Self {
        Self {
            interrupter,
            discard: Arc::default(),
        }
    }

    /// The interrupter that requests the same.
    pub(crate) fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    /// Requests the end with a checkpoint of the last whole step.
    pub(crate) fn save(&self) {
        self.interrupter.stop(Some("stopped"));
    }

    /// Requests the end without a checkpoint: the newest one that is there stays.
    pub(crate) fn discard(&self) {
        self.discard.store(true, Ordering::SeqCst);
        self.interrupter.stop(Some("stopped without a checkpoint"));
    }

    /// Returns true if the run is to end.
    pub(crate) fn is_requested(&self) -> bool {
        self.interrupter.should_stop()
    }

    /// Returns true if no checkpoint is to be written at the end.
    pub(crate) fn discards(&self) -> bool {
        self.discard.load(Ordering::SeqCst)
    }
}
