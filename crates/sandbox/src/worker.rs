//! The worker process.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::process;
use std::thread;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::frame::{self, Outcome, Response, Setup};
use crate::limits;

/// Maximum size in bytes of the setup frame, which comes from the parent.
const MAX_SETUP: u64 = 4096;

type Handler = Box<dyn Fn(&[u8]) -> Result<Vec<u8>, serde_json::Error> + Send>;

/// The jobs that a worker can run, by name.
#[derive(Default)]
pub struct Handlers {
    handlers: BTreeMap<&'static str, Handler>,
}

impl Handlers {
    /// Creates an empty set of jobs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a job. A panic of `handler` ends the worker, like a crash.
    #[must_use]
    pub fn on<Q: DeserializeOwned, R: Serialize>(
        mut self,
        kind: &'static str,
        handler: impl Fn(Q) -> R + Send + 'static,
    ) -> Self {
        let handler = move |request: &[u8]| {
            let request = serde_json::from_slice(request)?;
            serde_json::to_vec(&handler(request))
        };
        self.handlers.insert(kind, Box::new(handler));
        self
    }

    /// Applies the parent's limits, then runs the jobs that it sends until it closes the pipe. Ends the
    /// process.
    pub fn serve(self) -> ! {
        process::exit(match self.run() {
            Ok(()) => 0,
            Err(_) => 1,
        })
    }

    fn run(self) -> io::Result<()> {
        let setup = frame::read(&mut io::stdin().lock(), MAX_SETUP)?;
        let setup: Setup = serde_json::from_slice(&setup)?;
        let stack = usize::try_from(setup.stack).unwrap_or(usize::MAX);
        let jobs = thread::Builder::new()
            .stack_size(stack)
            .spawn(move || self.run_jobs(setup))?;
        let ended = jobs.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("a job panicked")))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "stdout is the pipe to the parent here, not a terminal"
    )]
    fn run_jobs(&self, setup: Setup) -> io::Result<()> {
        limits::apply(setup.memory);
        let baseline = limits::mapped();
        let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout().lock());
        frame::write_ready(&mut stdout)?;
        loop {
            let Ok(kind) = frame::read(&mut stdin, u64::MAX) else {
                return Ok(());
            };
            let request = frame::read(&mut stdin, u64::MAX)?;
            limits::allow_cpu_time(setup.seconds);
            let (outcome, payload) = self.answer(&kind, &request, setup.response);
            drop(request);
            // Memory retained by a job reduces that of the next one. Allocators always keep some, so the worker
            // is replaced only above half of the limit.
            let held = limits::mapped().zip(baseline);
            let last = held.is_some_and(|(now, then)| now.saturating_sub(then) > setup.memory / 2);
            let response = Response {
                outcome,
                last,
                payload,
            };
            frame::write_response(&mut stdout, &response)?;
            if last {
                return stdout.flush();
            }
        }
    }

    fn answer(&self, kind: &[u8], request: &[u8], limit: u64) -> (Outcome, Vec<u8>) {
        let handler = std::str::from_utf8(kind)
            .ok()
            .and_then(|kind| self.handlers.get(kind));
        let Some(handler) = handler else {
            return (Outcome::Refused, b"no such job".to_vec());
        };
        match handler(request) {
            Ok(payload) if payload.len() as u64 > limit => (Outcome::TooLarge, Vec::new()),
            Ok(payload) => (Outcome::Done, payload),
            Err(error) => (Outcome::Refused, error.to_string().into_bytes()),
        }
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.handlers.keys()).finish()
    }
}
