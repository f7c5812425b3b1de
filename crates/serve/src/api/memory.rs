//! Limits on the memory of requests, for each request and in total.
//!
//! Memory is reserved before a request is passed to the model, by an upper bound of what is kept until its
//! answer is written. It is released with the last byte of the answer. Key-value caches are not counted: they
//! are allocated once.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answers::AnswerRequest;
use super::error::ApiError;

/// Bytes per unit of the budget. A semaphore has 32-bit counts.
const UNIT: usize = 1 << 10;
/// Bytes per prompt token: its id in the request, in the slot and in the token counts, and its text.
pub(crate) const PROMPT_TOKEN: usize = 48;
/// Bytes per token of an answer, including its serialized form.
const TOKEN: usize = 64;
/// Additional bytes per token if log-probabilities are requested, and per alternative.
const LOGPROBS: usize = 400;
const ALTERNATIVE: usize = 256;
/// Tokens of a streamed answer that may be buffered.
const STREAMED: usize = 96;
/// Bytes per token each time that a stream repeats the text.
const REPEATED: usize = 32;
/// Bytes per token that penalties count.
const COUNTED: usize = 20;
/// Additional bytes per answer.
const SAMPLE: usize = 4 << 10;
/// Bytes per byte of a stop string, shared by the answers: its matching table and the held-back text.
const STOP_BYTE: usize = 10;

/// The memory budget of all requests.
#[derive(Debug)]
pub(crate) struct Memory {
    each: usize,
    all: usize,
    left: Arc<Semaphore>,
}

/// Memory reserved for a request, released on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    _units: OwnedSemaphorePermit,
}

/// The parts of a request's answers that are kept in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    /// True if the answers are streamed.
    pub streams: bool,
    /// True if each answer starts with the prompt's text.
    pub echoes: bool,
    /// The number of times that a stream repeats the whole text, with its log-probabilities, at the end.
    pub repeats: usize,
    /// Bytes of the request that are echoed in the response.
    pub returned: usize,
}

impl Kept {
    /// An upper bound of the memory for the answers to a prompt, in bytes.
    pub fn bytes(
        self,
        answer_request: &AnswerRequest,
        max_new_tokens: usize,
        vocab_size: usize,
    ) -> usize {
        let chooser = &answer_request.chooser;
        let tokens = match self.streams && self.repeats == 0 {
            true => max_new_tokens.min(STREAMED),
            false => max_new_tokens,
        };
        let token = TOKEN
            + self.repeats * REPEATED
            + chooser
                .top_logprobs
                .map_or(0, |count| LOGPROBS.saturating_add(count * ALTERNATIVE))
                .saturating_mul(self.repeats.max(1));
        // Modified logits need a copy of the vocabulary's logits in f32.
        let changed = !chooser.logit_bias.is_empty()
            || chooser.constraint.is_some()
            || !chooser.penalties.are_none();
        let counted = match chooser.penalties.are_none() {
            true => 0,
            false => vocab_size.min(answer_request.prompt.len().saturating_add(max_new_tokens)),
        };
        let sample = SAMPLE
            + counted * COUNTED
            + tokens.saturating_mul(token)
            + chooser.logit_bias.len() * 16
            + if changed { 4 * vocab_size } else { 0 }
            + if self.echoes {
                4 * answer_request.prompt.len() * 8
            } else {
                0
            };
        let shared = self.returned
            + answer_request.prompt.len() * PROMPT_TOKEN
            + answer_request.stops.pattern_bytes() * STOP_BYTE;
        shared.saturating_add(answer_request.samples.saturating_mul(sample))
    }
}

impl Memory {
    pub fn new(each: usize, all: usize) -> Self {
        let units = (all / UNIT).min(Semaphore::MAX_PERMITS);
        Self {
            each: each.min(all),
            all,
            left: Arc::new(Semaphore::new(units)),
        }
    }

    /// Reserves memory for a request.
    ///
    /// # Errors
    /// `bytes` exceeds the limit per request or the remaining memory.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation, ApiError> {
        let units = u32::try_from(bytes.div_ceil(UNIT));
        let (Ok(units), true) = (units, bytes <= self.each) else {
            return Err(ApiError::request_memory(bytes, self.each));
        };
        match Arc::clone(&self.left).try_acquire_many_owned(units) {
            Ok(units) => Ok(Reservation { _units: units }),
            Err(_) => Err(ApiError::all_memory(self.all)),
        }
    }
}

/// A serialized response, with its memory reserved until it is sent.
struct ReservedBody {
    bytes: Vec<u8>,
    _reservation: Reservation,
}

impl AsRef<[u8]> for ReservedBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A JSON response that holds its memory reservation until it is sent.
pub(crate) fn json(answer: &impl Serialize, reservation: Reservation) -> Response {
    let bytes = match serde_json::to_vec(answer) {
        Ok(bytes) => bytes,
        Err(error) => return ApiError::internal(error.to_string()).into_response(),
    };
    let body = Bytes::from_owner(ReservedBody {
        bytes,
        _reservation: reservation,
    });
    const KIND: HeaderValue = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, KIND)], body).into_response()
}
