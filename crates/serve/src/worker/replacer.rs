//! Replaces the model of a thread's engine.

use std::sync::Weak;
use std::sync::mpsc::Sender;

use super::Command;
use crate::worker_engine::WorkerEngine;

/// Replaces the model of the thread's engine `E`.
#[derive(Debug)]
pub struct Replacer<E: WorkerEngine> {
    pub(super) models: Sender<E::Replacement>,
    /// Does not keep the thread alive.
    pub(super) commands: Weak<Sender<Command>>,
}

impl<E: WorkerEngine> Replacer<E> {
    /// Replaces the model once all running requests have ended; waiting requests start on the new model. Returns false if
    /// the thread has ended. A model that does not fit, such as a decoder with a shorter context than the engine's, is
    /// ignored.
    pub fn replace(&self, model: E::Replacement) -> bool {
        let Some(commands) = self.commands.upgrade() else {
            return false;
        };
        self.models.send(model).is_ok() && commands.send(Command::Replace).is_ok()
    }

    /// Returns true if the thread has no handles and no requests any more.
    pub fn has_ended(&self) -> bool {
        self.commands.strong_count() == 0
    }
}
