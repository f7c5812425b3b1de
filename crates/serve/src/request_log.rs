//! The request log: one record per request, written when its response was sent or aborted.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::response::Response;

use crate::connection::Activity;
use crate::held_body::holding;
use crate::model::ServedModel;

/// The most characters that a record keeps of a path and of a body.
const PATH_CHARS: usize = 256;
const BODY_CHARS: usize = 4096;
/// The most warnings about a request, and the most characters of one.
const MOST_WARNINGS: usize = 16;
const WARNING_CHARS: usize = 300;
/// The header of a response with a warning about its request.
const WARNING: &str = "x-emberlm-warning";

/// Receives the records of requests.
pub struct RequestLog {
    /// True to include request bodies, and thereby prompts, in the records.
    pub bodies: bool,
    /// Called with each record on the server's thread. Must not block.
    pub write: Box<dyn Fn(RequestRecord) + Send + Sync>,
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLog")
            .field("bodies", &self.bodies)
            .finish_non_exhaustive()
    }
}

/// A request and its outcome. Its texts are from the client and may contain control characters.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRecord {
    /// The time at which the request's head was received.
    pub time: SystemTime,
    /// The address of the client or its proxy.
    pub client: Option<SocketAddr>,
    /// The HTTP method.
    pub method: String,
    /// The path without query, truncated to 256 characters.
    pub path: String,
    /// The HTTP status. `None` if the client disconnected before there was one.
    pub status: Option<u16>,
    /// The name of the requested model.
    pub model: Option<String>,
    /// The number of prompt tokens.
    pub prompt_tokens: usize,
    /// The number of generated tokens.
    pub completion_tokens: usize,
    /// The time until the first sequence received a slot. `None` if none did.
    pub queue: Option<Duration>,
    /// The time until the response was sent or aborted.
    pub total: Duration,
    /// The parts of the request that are not enforced.
    pub warnings: Vec<String>,
    /// The paths of fields that were accepted without effect.
    pub ignored: Vec<&'static str>,
    /// The body, truncated to 4096 characters. `None` unless [`RequestLog::bodies`] is set.
    pub body: Option<String>,
}

/// A request in progress. Dropping the last reference writes its record.
#[derive(Debug)]
pub(crate) struct Trace {
    log: Option<Arc<RequestLog>>,
    time: SystemTime,
    begun: Instant,
    client: Option<SocketAddr>,
    method: String,
    path: String,
    /// The HTTP status; 0 before there is one.
    status: AtomicU16,
    model: OnceLock<String>,
    prompt_tokens: AtomicUsize,
    completion_tokens: AtomicUsize,
    queue: OnceLock<Duration>,
    warnings: Mutex<Vec<String>>,
    ignored: OnceLock<Vec<&'static str>>,
    body: OnceLock<String>,
}

impl Trace {
    pub fn new(request: &Request, log: Option<Arc<RequestLog>>) -> Self {
        let activity = request.extensions().get::<Arc<Activity>>();
        let path = request.uri().path().chars();
        Self {
            log,
            time: SystemTime::now(),
            begun: Instant::now(),
            client: activity.map(|activity| activity.client()),
            method: request.method().as_str().to_owned(),
            path: path.take(PATH_CHARS).collect(),
            status: AtomicU16::new(0),
            model: OnceLock::new(),
            prompt_tokens: AtomicUsize::new(0),
            completion_tokens: AtomicUsize::new(0),
            queue: OnceLock::new(),
            warnings: Mutex::default(),
            ignored: OnceLock::new(),
            body: OnceLock::new(),
        }
    }

    /// Attaches the trace to the response, with its warnings as headers. The record is written once the response was sent
    /// or aborted.
    pub fn follow(self: Arc<Self>, mut response: Response) -> Response {
        for warning in self.warnings().iter() {
            // Headers have ASCII characters only.
            let visible = |c: char| if matches!(c, ' '..='~') { c } else { '?' };
            let text: String = warning.chars().map(visible).collect();
            if let Ok(value) = HeaderValue::from_str(&text) {
                response.headers_mut().append(WARNING, value);
            }
        }
        let status = response.status().as_u16();
        self.status.store(status, Ordering::Relaxed);
        holding(response, self)
    }

    pub fn set_model(&self, model: &ServedModel) {
        self.model.get_or_init(|| model.name.clone());
    }

    pub fn add_prompt(&self, tokens: usize) {
        self.prompt_tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    pub fn add_completion(&self, tokens: usize) {
        self.completion_tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    /// Records that a sequence received a slot. Only the first call counts.
    pub fn started(&self) {
        self.queue.get_or_init(|| self.begun.elapsed());
    }

    /// Records the fields that have no effect. Only the first call counts.
    pub fn set_ignored(&self, paths: Vec<&'static str>) {
        self.ignored.get_or_init(|| paths);
    }

    /// Adds a warning about a part of the request that has no effect. Further ones than the first few are left out.
    pub fn warn(&self, text: &str) {
        let mut warnings = self.warnings();
        if warnings.len() < MOST_WARNINGS {
            warnings.push(text.chars().take(WARNING_CHARS).collect());
        }
    }

    fn warnings(&self) -> MutexGuard<'_, Vec<String>> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the body if the log includes bodies.
    pub fn set_body(&self, bytes: &[u8]) {
        if self.log.as_ref().is_some_and(|log| log.bodies) {
            // A character has at most four bytes in UTF-8.
            let bytes = &bytes[..bytes.len().min(4 * BODY_CHARS)];
            self.body.get_or_init(|| {
                let text = String::from_utf8_lossy(bytes);
                text.chars().take(BODY_CHARS).collect()
            });
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let Some(log) = &self.log else {
            return;
        };
        let status = self.status.load(Ordering::Relaxed);
        let warnings = self.warnings().clone();
        (log.write)(RequestRecord {
            time: self.time,
            client: self.client,
            method: std::mem::take(&mut self.method),
            path: std::mem::take(&mut self.path),
            status: (status > 0).then_some(status),
            model: self.model.take(),
            prompt_tokens: self.prompt_tokens.load(Ordering::Relaxed),
            completion_tokens: self.completion_tokens.load(Ordering::Relaxed),
            queue: self.queue.take(),
            warnings,
            ignored: self.ignored.take().unwrap_or_default(),
            total: self.begun.elapsed(),
            body: self.body.take(),
        });
    }
}
