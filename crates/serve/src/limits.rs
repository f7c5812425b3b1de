//! The limits of requests.

use std::time::Duration;

/// Limits on work and memory, per request and for all requests together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a request's body in bytes.
    pub body: usize,
    /// Maximum number of tokens of an answer.
    pub tokens: usize,
    /// Time limit of a request, from its head to the end of its answer.
    pub time: Duration,
    /// The time limit for receiving a request's body.
    pub body_time: Duration,
    /// Maximum number of texts in one request.
    pub texts: usize,
    /// Maximum memory of one request in bytes, until it is answered.
    pub request_memory: usize,
    /// Maximum memory of all requests in bytes.
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

/// Maximum number of returned alternatives to a token.
pub(crate) const MOST_ALTERNATIVES: usize = 20;
/// Maximum number of stop strings.
pub(crate) const MOST_STOPS: usize = 16;
/// Maximum number of functions that an answer may call.
pub(crate) const MOST_TOOLS: usize = 128;
/// Maximum number of tokens with a logit bias.
pub(crate) const MOST_BIASES: usize = 1024;
