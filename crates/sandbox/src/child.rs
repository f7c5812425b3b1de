//! The parent's handle of one worker process.

use std::io::{self, ErrorKind};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::SandboxError;
use crate::frame::{self, Response, Setup};
use crate::options::SandboxOptions;

/// Startup timeout of a worker.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// A process handle that any thread can use to kill it.
pub type Process = Arc<Mutex<Child>>;

/// Kills a process, waits for it and returns its exit status.
pub fn kill(process: &Process) -> String {
    let mut child = process.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = child.kill();
    match child.wait() {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    }
}

/// A worker process and the thread that communicates with it.
pub struct WorkerProcess {
    process: Process,
    requests: SyncSender<(String, Vec<u8>)>,
    responses: Receiver<io::Result<Response>>,
    limits: Setup,
}

impl WorkerProcess {
    /// Starts a process and waits until it is ready. The process is killed when the calling thread ends.
    pub fn start(options: &SandboxOptions) -> Result<Self, SandboxError> {
        let limits = Setup {
            memory: options.memory,
            stack: options.stack,
            seconds: options.time.as_secs() + 1,
            response: options.response,
        };
        let mut child = options
            .command
            .command()
            .spawn()
            .map_err(SandboxError::Unavailable)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let process = Arc::new(Mutex::new(child));
        let (requests, to_write) = sync_channel(1);
        let (to_read, responses) = sync_channel(1);
        let (to_report, started) = sync_channel(1);
        let worker = Self {
            process,
            requests,
            responses,
            limits,
        };
        let Some((stdin, stdout)) = pipes else {
            return Err(SandboxError::Unavailable(ErrorKind::BrokenPipe.into()));
        };
        let mut pipes = Pipes { stdin, stdout };
        let communicate = move || {
            let ready = pipes.set_up(&limits);
            let failed = ready.is_err();
            if to_report.send(ready).is_err() || failed {
                return;
            }
            for (kind, request) in to_write {
                let response = pipes.exchange(&kind, &request, limits.response);
                let failed = response.is_err();
                if to_read.send(response).is_err() || failed {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("sandbox-pipes".to_owned());
        thread
            .spawn(communicate)
            .map_err(SandboxError::Unavailable)?;
        match started.recv_timeout(STARTUP_TIMEOUT) {
            Ok(Ok(())) => Ok(worker),
            Ok(Err(error)) => Err(SandboxError::Unavailable(error)),
            Err(_) => Err(SandboxError::Unavailable(ErrorKind::TimedOut.into())),
        }
    }

    /// Returns the process handle.
    pub fn process(&self) -> Process {
        Arc::clone(&self.process)
    }

    /// Returns true if the process ended while it had no job, for example because it was killed.
    pub fn has_ended(&self) -> bool {
        let mut child = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(child.try_wait(), Ok(None))
    }

    /// Sends a job and waits for its response. After an error the worker must be discarded.
    pub fn exchange(
        &self,
        kind: String,
        request: Vec<u8>,
        time: Duration,
    ) -> Result<Response, SandboxError> {
        let sent = self.requests.send((kind, request));
        let response = match sent {
            Ok(()) => self.responses.recv_timeout(time),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        };
        match response {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.kind() == ErrorKind::InvalidData => {
                Err(SandboxError::Protocol(error.to_string()))
            }
            Err(RecvTimeoutError::Timeout) => Err(SandboxError::TimedOut { limit: time }),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => Err(self.crashed()),
        }
    }

    fn crashed(&self) -> SandboxError {
        // The pipe is closed, so the process has ended or is about to end. Its own exit status is more
        // informative than that of a kill.
        let status = {
            let mut child = self.process.lock().unwrap_or_else(PoisonError::into_inner);
            let mut status = child.try_wait();
            for _ in 0..50 {
                if !matches!(status, Ok(None)) {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
                status = child.try_wait();
            }
            status.ok().flatten()
        };
        SandboxError::Crashed {
            memory: self.limits.memory,
            stack: self.limits.stack,
            status: status.map_or_else(|| kill(&self.process), |status| status.to_string()),
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        kill(&self.process);
    }
}

struct Pipes {
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl Pipes {
    fn set_up(&mut self, limits: &Setup) -> io::Result<()> {
        frame::write(&mut self.stdin, &serde_json::to_vec(limits)?)?;
        frame::read_ready(&mut self.stdout)
    }

    fn exchange(&mut self, kind: &str, request: &[u8], limit: u64) -> io::Result<Response> {
        frame::write(&mut self.stdin, kind.as_bytes())?;
        frame::write(&mut self.stdin, request)?;
        frame::read_response(&mut self.stdout, limit)
    }
}
