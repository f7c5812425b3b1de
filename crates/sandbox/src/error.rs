//! The sandbox's error type.

use std::io;
use std::time::Duration;

use thiserror::Error;

/// The reason that a job has no response.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// All workers are busy and the queue is full, or the job waited too long for a worker.
    #[error("all workers are busy")]
    Busy,
    /// The job exceeded its time limit and its worker was killed.
    #[error("the job took longer than {} s", limit.as_secs_f64())]
    TimedOut {
        /// The time limit of a job.
        limit: Duration,
    },
    /// The worker died: the job exceeded its memory or stack limit, or crashed.
    #[error(
        "the job exceeded {memory} bytes of memory or {stack} bytes of stack, or crashed ({status})"
    )]
    Crashed {
        /// The memory limit in bytes.
        memory: u64,
        /// The stack limit in bytes.
        stack: u64,
        /// The exit status of the worker.
        status: String,
    },
    /// The response exceeded the size limit.
    #[error("the response is larger than {limit} bytes")]
    TooLarge {
        /// The size limit of a response in bytes.
        limit: u64,
    },
    /// The worker or its parent received an invalid message.
    #[error("protocol error between worker and parent: {0}")]
    Protocol(String),
    /// No worker could be started.
    #[error("no worker process could be started: {0}")]
    Unavailable(#[source] io::Error),
}
