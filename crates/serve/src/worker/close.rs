//! The orderly end of a worker's engine.

use tokio::sync::oneshot;

use super::{Command, Thread, Worker};
use crate::worker_engine::WorkerEngine;

impl Worker {
    /// Lets the engine save its state, and waits until it has. Call it after the last request, outside of asynchronous code.
    pub fn close(&self) {
        let (closed, done) = oneshot::channel();
        // A thread that has ended has nothing to save.
        if self.commands.send(Command::Close(closed)).is_ok() {
            let _ = done.blocking_recv();
        }
    }
}

impl<E: WorkerEngine> Thread<E> {
    pub(super) fn close(&mut self, closed: oneshot::Sender<()>) {
        self.engine.close();
        let _ = closed.send(());
    }
}
