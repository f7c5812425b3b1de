//! The limits of requests.

use std::time::Duration;

/// Limits of the work and the memory that one client, and all clients together, can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body: usize,
    /// Tokens that one answer may have.
    pub tokens: usize,
    /// The time a request may take, from its head to the end of its answer.
    pub time: Duration,
    /// The time limit for receiving a request's body.
    pub body_time: Duration,
    /// Texts in one request.
    pub texts: usize,
    /// Bytes that one request may keep until it is answered.
    pub request_memory: usize,
    /// Bytes that all requests together may keep.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 1 << 20,
            tokens: 4096,
            time: Duration::from_secs(600),
            body_time: Duration::from_secs(30),
            texts: 64,
            request_memory: 256 << 20,
            memory: 1 << 30,
        }
    }
}

/// The most alternatives to a token that are returned.
pub(crate) const MOST_ALTERNATIVES: usize = 20;
/// Strings that end a text.
pub(crate) const MOST_STOPS: usize = 16;
/// Functions that an answer may call.
pub(crate) const MOST_TOOLS: usize = 128;
/// Tokens whose logits are changed.
pub(crate) const MOST_BIASES: usize = 1024;
