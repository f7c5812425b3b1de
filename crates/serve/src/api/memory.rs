//! Memory that requests may keep: each by itself, and all together.
//!
//! It is reserved before a request is given to the model, by an estimate from above of what is kept until its answer is
//! written, and given back with the last byte of the answer. Caches are not part of it: they are allocated once.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answers::Ask;
use super::error::ApiError;

/// Bytes of a unit of the budget: a semaphore counts in 32 bits.
const UNIT: usize = 1 << 10;
/// Bytes kept for each token of a prompt: its id in the request, the slot and counts of tokens, and its text.
pub(crate) const PROMPT_TOKEN: usize = 48;
/// Bytes kept for each token of an answer, and written for it.
const TOKEN: usize = 64;
/// Additional bytes if log-probabilities are requested, and for each alternative.
const LOGPROBS: usize = 400;
const ALTERNATIVE: usize = 256;
/// Tokens of a streamed answer that wait to be sent.
const STREAMED: usize = 96;
/// Bytes of a token each time that a stream repeats the text.
const REPEATED: usize = 32;
/// Bytes kept for each token that penalties count.
const COUNTED: usize = 20;
/// Additional bytes for each answer.
const SAMPLE: usize = 4 << 10;
/// Bytes kept for each byte of a stop string, which the answers share: with its table, and the text that is held back.
const STOP_BYTE: usize = 10;

/// The memory all requests together may keep.
#[derive(Debug)]
pub(crate) struct Memory {
    each: usize,
    all: usize,
    left: Arc<Semaphore>,
}

/// Memory that is reserved for a request until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    _units: OwnedSemaphorePermit,
}

/// The part of its answers that a request keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    /// True if the answers are sent as they are made.
    pub streams: bool,
    /// True if each answer begins with the prompt's text.
    pub echoes: bool,
    /// The number of times that a stream repeats the whole text, and its log-probabilities, at its end.
    pub repeats: usize,
    /// Bytes of the request that are returned with the answer.
    pub returned: usize,
}

impl Kept {
    /// The most bytes that the answers to a prompt keep.
    pub fn bytes(self, ask: &Ask, max_new_tokens: usize, vocab_size: usize) -> usize {
        let chooser = &ask.chooser;
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
        // Changed logits are a vocabulary of floats.
        let changed = !chooser.logit_bias.is_empty()
            || chooser.constraint.is_some()
            || !chooser.penalties.are_none();
        let counted = match chooser.penalties.are_none() {
            true => 0,
            false => vocab_size.min(ask.prompt.len().saturating_add(max_new_tokens)),
        };
        let sample = SAMPLE
            + counted * COUNTED
            + tokens.saturating_mul(token)
            + chooser.logit_bias.len() * 16
            + if changed { 4 * vocab_size } else { 0 }
            + if self.echoes {
                4 * ask.prompt.len() * 8
            } else {
                0
            };
        let shared =
            self.returned + ask.prompt.len() * PROMPT_TOKEN + ask.stops.pattern_bytes() * STOP_BYTE;
        shared.saturating_add(ask.samples.saturating_mul(sample))
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
    /// More than one request may keep, or more than is left.
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

/// Bytes of an answer, for which memory is reserved until they are written.
struct Written {
    bytes: Vec<u8>,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// An answer in JSON, for which memory stays reserved until it is written.
pub(crate) fn json(answer: &impl Serialize, reservation: Reservation) -> Response {
    let bytes = match serde_json::to_vec(answer) {
        Ok(bytes) => bytes,
        Err(error) => return ApiError::internal(error.to_string()).into_response(),
    };
    let body = Bytes::from_owner(Written {
        bytes,
        _reservation: reservation,
    });
    const KIND: HeaderValue = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, KIND)], body).into_response()
}
