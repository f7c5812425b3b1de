//! The limits, and the command that starts workers.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Limits of jobs, and the sizes of the pool and its queue.
#[derive(Clone, Debug)]
pub struct SandboxOptions {
    /// The command that starts a worker.
    pub command: WorkerCommand,
    /// Memory of one worker in bytes, in addition to the memory mapped when it starts.
    pub memory: u64,
    /// Stack size of the thread that runs jobs, in bytes.
    pub stack: u64,
    /// Time limit of one job, from the moment when a worker takes it.
    pub time: Duration,
    /// Maximum number of worker processes. Each is started when it is first needed.
    pub workers: usize,
    /// Maximum number of jobs that wait for a worker. Further ones fail with
    /// [`Busy`](crate::SandboxError::Busy).
    pub queue: usize,
    /// Maximum time that a job waits for a worker.
    pub wait: Duration,
    /// Maximum size of a response in bytes.
    pub response: u64,
    /// Idle time after which a worker is stopped.
    pub idle: Duration,
}

impl SandboxOptions {
    /// Workers started by `command`, with moderate limits: 256 MiB of memory, 8 MiB of stack, 5 s per job, two
    /// workers, 64 waiting jobs.
    pub fn new(command: WorkerCommand) -> Self {
        Self {
            command,
            memory: 256 << 20,
            stack: 8 << 20,
            time: Duration::from_secs(5),
            workers: 2,
            queue: 64,
            wait: Duration::from_secs(60),
            response: 16 << 20,
            idle: Duration::from_secs(60),
        }
    }
}

/// The command that starts a worker process. The program must call [`Handlers::serve`](crate::Handlers::serve).
/// Its earlier output on stdout is ignored.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    program: PathBuf,
    args: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl WorkerCommand {
    /// The current program, with `args`.
    pub fn this_program<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> Self {
        // On Linux this path starts the same executable even if the file has been replaced, as by an update.
        let program = if cfg!(target_os = "linux") {
            PathBuf::from("/proc/self/exe")
        } else {
            std::env::current_exe().unwrap_or_default()
        };
        Self::new(program, args)
    }

    /// Another program, with `args`.
    pub fn new<A: Into<OsString>>(
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
        }
    }

    /// Sets an environment variable of the worker.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            // mimalloc reserves 1 GiB of address space at once, which would count as mapped by the worker.
            .env("MIMALLOC_ARENA_RESERVE", "16MiB")
            .env("MIMALLOC_SHOW_ERRORS", "0")
            .env("RUST_BACKTRACE", "0")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }
}
