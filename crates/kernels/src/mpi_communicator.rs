//! A communicator of MPI that all threads may use.

#![allow(unsafe_code)]

use std::fmt::{Debug, Formatter};

use mpi::topology::SimpleCommunicator;

/// A communicator that several threads of a process use in turn.
pub struct SharedCommunicator(SimpleCommunicator);

// SAFETY: the communicator is a handle of the MPI library, which allows calls from any thread if it was initialized with
// `MPI_THREAD_SERIALIZED`, as long as no two threads call it at the same time. No function of this type calls it.
unsafe impl Send for SharedCommunicator {}
// SAFETY: as above. Threads that share a reference must not call the library at the same time, which is a requirement of
// MPI_THREAD_SERIALIZED on all calls, whatever their communicator.
unsafe impl Sync for SharedCommunicator {}

impl Debug for SharedCommunicator {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedCommunicator").finish_non_exhaustive()
    }
}

impl SharedCommunicator {
    /// Shares a communicator. MPI must be initialized with support of calls from several threads.
    pub fn new(communicator: SimpleCommunicator) -> Self {
        Self(communicator)
    }

    /// The communicator.
    pub fn get(&self) -> &SimpleCommunicator {
        &self.0
    }
}
