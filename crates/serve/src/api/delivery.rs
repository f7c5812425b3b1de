//! How answers are brought: how many, and whether as they are made.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use rand::RngExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use super::body::Object;
use super::deadline::Deadline;
use super::error::ApiError;
use crate::model::ServedModel;

/// The fields that every request for text may have beside [`super::settings::Settings`].
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Delivery {
    /// The model's name.
    pub model: String,
    /// Answers to each prompt.
    #[schemars(range(min = 1, max = u32::MAX))]
    n: Option<u32>,
    /// Whether the answer comes as it is made, as server-sent events.
    stream: Option<bool>,
    /// What a stream tells beside the text; without a stream it has no effect.
    stream_options: Option<Object<StreamOptions>>,
    /// Has no effect.
    #[allow(dead_code)]
    user: Option<String>,
    /// Has no effect.
    #[allow(dead_code)]
    metadata: Option<BTreeMap<String, Value>>,
    /// Has no effect: nothing is stored.
    #[allow(dead_code)]
    store: Option<bool>,
}

/// What a stream tells beside the text.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StreamOptions {
    /// How many tokens there were, in a piece of its own at the end.
    include_usage: Option<bool>,
    /// Has no effect: no piece is padded.
    #[allow(dead_code)]
    include_obfuscation: Option<bool>,
}

impl Delivery {
    pub fn streams(&self) -> bool {
        self.stream == Some(true)
    }

    /// Whether a stream ends with the numbers of tokens.
    pub fn tells_usage(&self) -> bool {
        self.stream_options
            .is_some_and(|options| options.0.include_usage == Some(true))
    }

    /// How many answers there are to each prompt.
    ///
    /// # Errors
    /// None, or more than may run and wait at the same time.
    pub fn samples(&self, model: &ServedModel) -> Result<usize, ApiError> {
        let (samples, most) = (self.n.unwrap_or(1) as usize, model.worker.limit());
        match (1..=most).contains(&samples) {
            true => Ok(samples),
            false => {
                let rule = format!("must be between 1 and {most}, as many as may run and wait");
                Err(ApiError::field("n", rule))
            }
        }
    }
}

/// How many tokens there were.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Usage {
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
    pub total_tokens: usize,
    pub prompt_tokens_details: PromptTokens,
}

#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct PromptTokens {
    /// Those that a cache held, which were not read again.
    pub cached_tokens: usize,
}

impl Usage {
    /// One more prompt with its answers.
    pub fn add(&mut self, prompt: usize, completion: usize, cached: usize) {
        self.prompt_tokens += prompt;
        self.completion_tokens += completion;
        self.total_tokens += prompt + completion;
        self.prompt_tokens_details.cached_tokens += cached;
    }
}

/// A piece of a stream, as JSON.
pub(crate) fn piece<T: Serialize>(piece: &T) -> Event {
    match serde_json::to_string(piece) {
        Ok(json) => Event::default().data(json),
        // No answer of ours is beyond JSON.
        Err(_) => Event::default(),
    }
}

/// Where a stream's pieces go.
pub(crate) type Pieces = mpsc::Sender<Event>;

/// A stream's answer: what `write` sends. It is dropped, and so is what it asked for, once the client has left, and at the
/// deadline whether the client reads or not: `late` makes the last piece then.
pub(crate) fn streamed<W>(
    deadline: Deadline,
    late: impl FnOnce() -> Event + Send + 'static,
    write: impl FnOnce(Pieces) -> W,
) -> Response
where
    W: Future<Output = ()> + Send + 'static,
{
    // A client that reads slowly holds its answer back, not the engine.
    let (pieces, sent) = mpsc::channel(16);
    let writing = write(pieces.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = writing => return,
            () = pieces.closed() => return,
            () = deadline.passed() => {}
        }
        // What was written is dropped by now: this holds nothing but the connection, whose writes have a limit of their own.
        let _ = pieces.send(late()).await;
    });
    let events = stream::unfold(sent, async |mut sent| {
        let event = sent.recv().await?;
        Some((Ok::<_, Infallible>(event), sent))
    });
    Sse::new(events)
        .keep_alive(KeepAlive::default())
        .into_response()
}

/// A name for an answer, such as `cmpl-…`.
pub(crate) fn name(kind: &str) -> String {
    format!("{kind}-{:032x}", rand::rng().random::<u128>())
}

/// A seed for a request that has none.
pub(crate) fn seed() -> u64 {
    rand::rng().random()
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
