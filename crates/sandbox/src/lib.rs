//! Runs untrusted work in child processes with limits on memory, stack and time.
//!
//! Some inputs make a parser or compiler overflow its stack, exhaust memory or run for minutes: grammars sent
//! by clients, or chat templates that come with a model. A [`Sandbox`] runs such work in child processes of the
//! same program. A child that exceeds a limit is killed and replaced, and the caller gets a [`SandboxError`].
//!
//! | type | purpose |
//! |---|---|
//! | [`Sandbox`] | a pool of worker processes with a bounded queue; cheap to clone |
//! | [`SandboxOptions`] | the limits, and the sizes of the pool and the queue |
//! | [`WorkerCommand`] | the command that starts a worker process |
//! | [`Handlers`] | the jobs that a worker can run, by name; [`Handlers::serve`] is the worker's main function |
//!
//! The crate is independent of the jobs. A job has a name, and a request and a response that `serde` can
//! serialize:
//!
//! ```standalone_crate
//! use emberlm_sandbox::{Handlers, Sandbox, SandboxOptions, WorkerCommand};
//!
//! // `program --sandbox-worker` is the worker.
//! if std::env::args().nth(1).as_deref() == Some("--sandbox-worker") {
//!     Handlers::new()
//!         .on("length", |text: String| text.len())
//!         .serve();
//! }
//! let command = WorkerCommand::this_program(["--sandbox-worker"]);
//! let sandbox = Sandbox::new(SandboxOptions::new(command));
//! let length: usize = sandbox.run("length", &"some text")?;
//! # Ok::<(), emberlm_sandbox::SandboxError>(())
//! ```
//!
//! # Limits by platform
//!
//! On Linux, memory is limited by `RLIMIT_AS`, relative to the memory mapped when the worker starts. Time is
//! limited by the parent, with `RLIMIT_CPU` as a second line of defense. The worker writes no files, dumps no
//! core, and dies with its parent (by `PR_SET_PDEATHSIG` and at the end of its stdin). On other Unix systems
//! memory is not limited, and on Windows only time is. A stack overflow or an abort still ends only the worker.

mod child;
mod error;
mod frame;
mod limits;
mod options;
mod pool;
mod worker;

pub use error::SandboxError;
pub use options::{SandboxOptions, WorkerCommand};
pub use pool::Sandbox;
pub use worker::Handlers;
