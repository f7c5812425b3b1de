//! The pool of workers and its queue.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::child::{Process, WorkerProcess, kill};
use crate::error::SandboxError;
use crate::frame::{Outcome, Response};
use crate::options::SandboxOptions;

/// A pool of worker processes with a bounded queue. Cheap to clone. Workers start on demand and are killed when
/// the last clone is dropped.
#[derive(Clone)]
pub struct Sandbox {
    owner: Arc<Owner>,
}

impl Sandbox {
    /// Creates a pool without starting workers.
    pub fn new(options: SandboxOptions) -> Self {
        let shared = Arc::new(Shared {
            options,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        Self {
            owner: Arc::new(Owner { shared }),
        }
    }

    /// The options.
    pub fn options(&self) -> &SandboxOptions {
        &self.owner.shared.options
    }

    /// Runs a job and waits for its response.
    ///
    /// # Errors
    /// No worker was free in time, or the job exceeded a limit.
    pub fn run<R: DeserializeOwned + Send + 'static>(
        &self,
        kind: &str,
        request: &(impl Serialize + ?Sized),
    ) -> Result<R, SandboxError> {
        let (sender, receiver) = sync_channel(1);
        self.submit(kind, request, move |result| {
            // Cannot fail: this function holds the receiver.
            let _ = sender.send(result);
        });
        let gone = |_| Err(SandboxError::Unavailable(io::ErrorKind::BrokenPipe.into()));
        receiver.recv().unwrap_or_else(gone)
    }

    /// Queues a job. `respond` is called once: from another thread, or immediately if the queue is full. It
    /// must not block.
    pub fn submit<R: DeserializeOwned>(
        &self,
        kind: &str,
        request: &(impl Serialize + ?Sized),
        respond: impl FnOnce(Result<R, SandboxError>) + Send + 'static,
    ) {
        let request = match serde_json::to_vec(request) {
            Ok(request) => request,
            Err(error) => return respond(Err(SandboxError::Protocol(error.to_string()))),
        };
        let respond = Box::new(move |result: Result<Vec<u8>, SandboxError>| {
            let unreadable = |error: serde_json::Error| SandboxError::Protocol(error.to_string());
            respond(result.and_then(|bytes| serde_json::from_slice(&bytes).map_err(unreadable)));
        });
        self.owner.shared.queue(Job {
            kind: kind.to_owned(),
            request,
            queued: Instant::now(),
            respond,
        });
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sandbox").field(self.options()).finish()
    }
}

/// Closes the pool when the last [`Sandbox`] is dropped. The pool's own threads hold only [`Shared`].
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let (processes, jobs) = {
            let mut state = self.shared.lock();
            state.closed = true;
            (
                std::mem::take(&mut state.processes),
                std::mem::take(&mut state.jobs),
            )
        };
        self.shared.changed.notify_all();
        processes.iter().for_each(|process| drop(kill(process)));
        jobs.into_iter()
            .for_each(|job| (job.respond)(Err(SandboxError::Busy)));
    }
}

struct Job {
    kind: String,
    request: Vec<u8>,
    queued: Instant,
    respond: Box<dyn FnOnce(Result<Vec<u8>, SandboxError>) + Send>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Number of threads that run jobs, each with at most one process.
    threads: usize,
    /// Number of running jobs.
    running: usize,
    processes: Vec<Process>,
    closed: bool,
}

struct Shared {
    options: SandboxOptions,
    state: Mutex<State>,
    changed: Condvar,
}

enum Next {
    Job(Job),
    Idle,
    Closed,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(self: &Arc<Self>, job: Job) {
        let mut state = self.lock();
        let workers = self.options.workers.max(1);
        if state.jobs.len() + state.running >= self.options.queue + workers {
            drop(state);
            return (job.respond)(Err(SandboxError::Busy));
        }
        if state.running + state.jobs.len() >= state.threads && state.threads < workers {
            let shared = Arc::clone(self);
            let thread = thread::Builder::new().name("sandbox".to_owned());
            match thread.spawn(move || shared.run_jobs()) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    drop(state);
                    return (job.respond)(Err(SandboxError::Unavailable(error)));
                }
                // The existing threads will run the job.
                Err(_) => {}
            }
        }
        state.jobs.push_back(job);
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for the next job or event. With `idle`, waits at most for the idle timeout.
    fn next(&self, idle: bool) -> Next {
        let since = Instant::now();
        let mut state = self.lock();
        loop {
            if state.closed {
                return Next::Closed;
            }
            if let Some(job) = state.jobs.pop_front() {
                state.running += 1;
                return Next::Job(job);
            }
            let left = self.options.idle.saturating_sub(since.elapsed());
            if idle && left.is_zero() {
                return Next::Idle;
            }
            state = if idle {
                let waited = self.changed.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            } else {
                let waited = self.changed.wait(state);
                waited.unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    /// Runs jobs until the pool is closed. Workers die with the thread that started them, so this thread lives
    /// as long as the pool.
    fn run_jobs(&self) {
        let mut worker = None;
        loop {
            let job = match self.next(worker.is_some()) {
                Next::Job(job) => job,
                Next::Idle => {
                    self.retire(&mut worker);
                    continue;
                }
                Next::Closed => return,
            };
            let result = match job.queued.elapsed() > self.options.wait {
                true => Err(SandboxError::Busy),
                false => self.run_job(&mut worker, job.kind, job.request),
            };
            self.lock().running -= 1;
            (job.respond)(result);
        }
    }

    fn run_job(
        &self,
        worker: &mut Option<WorkerProcess>,
        kind: String,
        request: Vec<u8>,
    ) -> Result<Vec<u8>, SandboxError> {
        if worker.as_ref().is_some_and(WorkerProcess::has_ended) {
            self.retire(worker);
        }
        let running = match worker {
            Some(running) => running,
            None => worker.insert(self.start()?),
        };
        let response = running.exchange(kind, request, self.options.time);
        if !matches!(response, Ok(Response { last: false, .. })) {
            self.retire(worker);
        }
        let Response {
            outcome, payload, ..
        } = response?;
        match outcome {
            Outcome::Done => Ok(payload),
            Outcome::TooLarge => Err(SandboxError::TooLarge {
                limit: self.options.response,
            }),
            Outcome::Refused => {
                let reason = String::from_utf8_lossy(&payload).into_owned();
                Err(SandboxError::Protocol(reason))
            }
        }
    }

    fn start(&self) -> Result<WorkerProcess, SandboxError> {
        let worker = WorkerProcess::start(&self.options)?;
        let mut state = self.lock();
        if state.closed {
            return Err(SandboxError::Busy);
        }
        state.processes.push(worker.process());
        Ok(worker)
    }

    fn retire(&self, worker: &mut Option<WorkerProcess>) {
        if let Some(worker) = worker.take() {
            let process = worker.process();
            self.lock()
                .processes
                .retain(|it| !Arc::ptr_eq(it, &process));
        }
    }
}
