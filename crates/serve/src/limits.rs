//! The limits of requests.

use std::time::Duration;

use emberlm_generate::grammar_limits::{GRAMMAR_LIMITS, LimitInfo};
use emberlm_tokenizer::StopStrings;

use crate::grammars::MAX_PENDING;
use crate::jobs;
use crate::worker::QUEUED;

/// The most open connections. When another one arrives, the one that has been idle the longest is closed.
pub(crate) const CONNECTIONS: usize = 1024;
/// The timeout for receiving a request's head, and for idle connections.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(30);

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
            body: 16 << 20,
            tokens: 4096,
            time: Duration::from_secs(600),
            body_time: Duration::from_secs(30),
            texts: 64,
            request_memory: 256 << 20,
            memory: 1 << 30,
        }
    }
}

/// The limits without an option.
pub(crate) fn fixed() -> [LimitInfo; 12] {
    let limits = Limits::default();
    [
        LimitInfo::count("connections", CONNECTIONS as u64),
        LimitInfo::count("texts in a request", limits.texts as u64),
        LimitInfo::count("documents to rank", MOST_DOCUMENTS as u64),
        LimitInfo::count("stop texts", MOST_STOPS as u64),
        LimitInfo::count("bytes of a stop text", StopStrings::MAX_LEN as u64),
        LimitInfo::count("entries of `stop_token_ids`", MOST_STOP_TOKENS as u64),
        LimitInfo::count("entries of `logit_bias`", MOST_BIASES as u64),
        LimitInfo::count("functions in `tools`", MOST_TOOLS as u64),
        LimitInfo::seconds("time to receive a request's head", HEAD_TIME.as_secs()),
        LimitInfo::seconds(
            "time to receive a request's body",
            limits.body_time.as_secs(),
        ),
        LimitInfo::count(
            "long requests that wait to be parsed or encoded, and short ones; further ones get 429",
            jobs::MAX_PENDING as u64,
        ),
        LimitInfo::count("tokens of one answer that wait to be sent", QUEUED as u64),
    ]
}

/// The limits of grammars without an option.
pub(crate) fn of_grammars() -> Vec<LimitInfo> {
    let pending = LimitInfo::count(
        "grammars of a model that wait to be compiled; further ones get 429",
        MAX_PENDING as u64,
    );
    GRAMMAR_LIMITS.into_iter().chain([pending]).collect()
}

/// Maximum number of returned alternatives to a token.
pub(crate) const MOST_ALTERNATIVES: usize = 20;
/// Maximum number of documents to rank.
pub(crate) const MOST_DOCUMENTS: usize = 1000;
/// Maximum number of stop strings.
pub(crate) const MOST_STOPS: usize = 16;
/// Maximum number of ids in `stop_token_ids`.
pub(crate) const MOST_STOP_TOKENS: usize = 256;
/// Maximum number of functions that an answer may call.
pub(crate) const MOST_TOOLS: usize = 128;
/// Maximum number of tokens with a logit bias.
pub(crate) const MOST_BIASES: usize = 1024;
