//! Streams the answers to a request as server-sent events, or as lines of JSON.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{self, Sender};

use super::answers::{AnswerEvent, Answers};
use super::deadline::Deadline;
use super::delivery::Usage;
use super::error::ApiError;

/// The number of buffered events. A slow client delays only its own answer, not the engine.
const BUFFERED: usize = 16;

/// An element of a streamed response.
pub(crate) trait StreamItem: Send + Sized + 'static {
    /// The response with these elements.
    fn response(items: impl Stream<Item = Result<Self, Infallible>> + Send + 'static) -> Response;
}

impl StreamItem for Event {
    fn response(items: impl Stream<Item = Result<Self, Infallible>> + Send + 'static) -> Response {
        Sse::new(items)
            .keep_alive(KeepAlive::default())
            .into_response()
    }
}

/// A line of JSON.
#[derive(Clone, Debug)]
pub(crate) struct JsonLine(Bytes);

impl JsonLine {
    pub fn new<T: Serialize>(content: &T) -> Self {
        // All types in this crate serialize to JSON.
        let mut line = serde_json::to_vec(content).unwrap_or_default();
        line.push(b'\n');
        Self(line.into())
    }
}

impl StreamItem for JsonLine {
    fn response(items: impl Stream<Item = Result<Self, Infallible>> + Send + 'static) -> Response {
        const KIND: HeaderValue = HeaderValue::from_static("application/x-ndjson");
        let lines = items.map(|line| line.map(|line| line.0));
        ([(header::CONTENT_TYPE, KIND)], Body::from_stream(lines)).into_response()
    }
}

/// Converts a request's answers to the events of one endpoint.
pub(crate) trait AnswerStream: Send + Sized + 'static {
    /// The form of an event.
    type Item: StreamItem;

    /// The events before the first token.
    fn begin(&mut self, usage: Usage) -> Vec<Self::Item>;

    /// The events for the next delta of an answer to the prompt at index `prompt`.
    fn next(&mut self, prompt: usize, event: AnswerEvent) -> Vec<Self::Item>;

    /// The events after all answers are complete.
    fn end(&mut self, usage: Usage) -> Vec<Self::Item>;

    /// The final event of a stream that fails.
    fn failure(self, error: ApiError) -> Self::Item;
}

/// The reason that a stream ends early.
enum StreamEnd {
    /// The client disconnected.
    Disconnected,
    Failed(ApiError),
}

impl From<SendError<()>> for StreamEnd {
    fn from(_: SendError<()>) -> Self {
        Self::Disconnected
    }
}

impl From<ApiError> for StreamEnd {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

/// Events that were written, and possibly numbered, but not sent yet. They are sent even if the deadline
/// passes first.
struct PendingEvents<T> {
    events: VecDeque<T>,
    /// True once the final event of complete answers has been added.
    is_complete: bool,
}

impl<T> PendingEvents<T> {
    async fn send(&mut self, to: &Sender<T>) -> Result<(), SendError<()>> {
        while !self.events.is_empty() {
            let permit = to.reserve().await?;
            if let Some(event) = self.events.pop_front() {
                permit.send(event);
            }
        }
        Ok(())
    }
}

/// Streams the events of `writer`. Generation ends when the client disconnects, and at the deadline even if
/// the client does not read.
pub(crate) fn streamed<W: AnswerStream>(
    deadline: Deadline,
    answers: Answers,
    mut writer: W,
) -> Response {
    let (events, sent) = mpsc::channel(BUFFERED);
    tokio::spawn(async move {
        let mut pending = PendingEvents {
            events: VecDeque::new(),
            is_complete: false,
        };
        let ended = tokio::select! {
            ended = send_answers(answers, &mut writer, &mut pending, &events) => ended,
            () = events.closed() => return,
            () = deadline.passed() => Err(deadline.error().into()),
        };
        // The answers are dropped by now. Sending the remaining events needs only the connection, which has
        // its own write timeout.
        if let Err(StreamEnd::Failed(error)) = ended {
            if !pending.is_complete {
                pending.events.push_back(writer.failure(error));
            }
            let _ = pending.send(&events).await;
        }
    });
    let events = stream::unfold(sent, async |mut sent| {
        let event = sent.recv().await?;
        Some((Ok::<_, Infallible>(event), sent))
    });
    W::Item::response(events)
}

async fn send_answers<W: AnswerStream>(
    mut answers: Answers,
    writer: &mut W,
    pending: &mut PendingEvents<W::Item>,
    to: &Sender<W::Item>,
) -> Result<(), StreamEnd> {
    pending.events.extend(writer.begin(answers.usage()));
    pending.send(to).await?;
    while let Some(event) = answers.next().await {
        let (prompt, event) = event?;
        pending.events.extend(writer.next(prompt, event));
        pending.send(to).await?;
    }
    pending.events.extend(writer.end(answers.usage()));
    pending.is_complete = true;
    pending.send(to).await?;
    Ok(())
}

/// An event with `content` as JSON.
pub(crate) fn json_event<T: Serialize>(content: &T) -> Event {
    match serde_json::to_string(content) {
        Ok(json) => Event::default().data(json),
        // Unreachable: all types in this crate serialize to JSON.
        Err(_) => Event::default(),
    }
}

/// The terminating event of the completions and chat completions APIs.
pub(crate) fn done() -> Event {
    Event::default().data("[DONE]")
}
