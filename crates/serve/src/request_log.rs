//! The log of requests: one record for each, made when its answer has been sent or broken off.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use axum::extract::Request;
use axum::response::Response;

use crate::connection::Activity;
use crate::held_body::holding;
use crate::model::ServedModel;

/// The most characters of a path, and of a body, that a record keeps.
const PATH_CHARS: usize = 256;
const BODY_CHARS: usize = 4096;

/// Receives the records of requests.
pub struct RequestLog {
    /// True if records have the requests' bodies, and with them the prompts.
    pub bodies: bool,
    /// Receives each record. It runs on the server's thread and must not block.
    pub write: Box<dyn Fn(RequestRecord) + Send + Sync>,
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLog")
            .field("bodies", &self.bodies)
            .finish_non_exhaustive()
    }
}

/// A request and how it was answered. Its texts come from the client: they may hold control characters.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRecord {
    /// When the request's head was received.
    pub time: SystemTime,
    /// The client's address, or that of the proxy between.
    pub client: Option<SocketAddr>,
    /// The HTTP method.
    pub method: String,
    /// The path without its query, cut after 256 characters.
    pub path: String,
    /// The HTTP status; `None` if the client left before there was one.
    pub status: Option<u16>,
    /// The name of the model that answered.
    pub model: Option<String>,
    /// Tokens of the prompts.
    pub prompt_tokens: usize,
    /// Tokens that were generated.
    pub completion_tokens: usize,
    /// The time until the first of its sequences was given a slot; `None` if none was.
    pub queue: Option<Duration>,
    /// The time until the answer was sent or broken off.
    pub total: Duration,
    /// The body, cut after 4096 characters; `None` unless [`RequestLog::bodies`] asks for it.
    pub body: Option<String>,
}

/// A request that is being answered. Its record is made when the last reference is dropped.
#[derive(Debug)]
pub(crate) struct Trace {
    log: Option<Arc<RequestLog>>,
    time: SystemTime,
    begun: Instant,
    client: Option<SocketAddr>,
    method: String,
    path: String,
    /// 0 until there is one.
    status: AtomicU16,
    model: OnceLock<String>,
    prompt_tokens: AtomicUsize,
    completion_tokens: AtomicUsize,
    queue: OnceLock<Duration>,
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
            body: OnceLock::new(),
        }
    }

    /// The response, whose record is made once it has been sent or broken off.
    pub fn follow(self: Arc<Self>, response: Response) -> Response {
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

    /// Notes that a sequence was given a slot; of several the first counts.
    pub fn started(&self) {
        self.queue.get_or_init(|| self.begun.elapsed());
    }

    /// Keeps the body if the log asks for bodies.
    pub fn set_body(&self, bytes: &[u8]) {
        if self.log.as_ref().is_some_and(|log| log.bodies) {
            // A character has at most four bytes.
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
            total: self.begun.elapsed(),
            body: self.body.take(),
        });
    }
}
