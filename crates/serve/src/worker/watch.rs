//! Observes the end of a model that is no longer served.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, Weak};

use super::{Command, Shared, Worker};

/// Observes the handles and requests of a model, and its engine's thread, without keeping them alive.
#[derive(Clone, Debug)]
pub struct WorkerWatch {
    commands: Weak<Sender<Command>>,
    users: Weak<()>,
    thread: Weak<Mutex<Shared>>,
}

impl Worker {
    /// Observes this handle, its copies and their requests.
    pub fn watch(&self) -> WorkerWatch {
        WorkerWatch {
            commands: Arc::downgrade(&self.commands),
            users: Arc::downgrade(&self.users.0),
            thread: Arc::downgrade(&self.shared),
        }
    }
}

impl WorkerWatch {
    /// Returns true while the model has a handle or a request.
    pub fn is_used(&self) -> bool {
        self.users.strong_count() > 0
    }

    /// Returns true if the engine's thread has no handle and no request any more, and still frees its memory.
    pub fn is_ending(&self) -> bool {
        self.commands.strong_count() == 0 && !self.has_ended()
    }

    /// Returns true once the engine's thread has ended and its memory is free.
    pub fn has_ended(&self) -> bool {
        self.thread.strong_count() == 0
    }

    /// Returns true if `worker` is a handle of the engine's thread.
    pub fn is_of(&self, worker: &Worker) -> bool {
        Weak::ptr_eq(&self.thread, &Arc::downgrade(&worker.shared))
    }
}
