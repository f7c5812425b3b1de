//! The answers of a request as server-sent events, sent while they are generated.

use std::convert::Infallible;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{self, Sender};

use super::answers::{AnswerEvent, Answers};
use super::deadline::Deadline;
use super::delivery::Usage;
use super::error::ApiError;

/// Events that wait to be sent. A client that reads slowly holds its answer back, not the engine.
const WAITING: usize = 16;

/// Writes the events of a request's answers in the form of one endpoint.
pub(crate) trait AnswerStream: Send + Sized + 'static {
    /// The events before the first token.
    fn begin(&mut self, usage: Usage) -> Vec<Event>;

    /// The events of the next part of an answer to prompt number `prompt`.
    fn next(&mut self, prompt: usize, event: AnswerEvent) -> Vec<Event>;

    /// The events after all answers have ended.
    fn end(&mut self, usage: Usage) -> Vec<Event>;

    /// The last event of a stream that ends by an error.
    fn failure(self, error: ApiError) -> Event;
}

/// The reason for which a stream ends early.
enum Broken {
    /// The client has left.
    Left,
    Failed(ApiError),
}

impl From<SendError<Event>> for Broken {
    fn from(_: SendError<Event>) -> Self {
        Self::Left
    }
}

impl From<ApiError> for Broken {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

/// Answers with the events of `writer`. Generation ends once the client has left, and at the deadline whether the client reads
/// or not.
pub(crate) fn streamed(
    deadline: Deadline,
    answers: Answers,
    mut writer: impl AnswerStream,
) -> Response {
    let (events, sent) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = send_answers(answers, &mut writer, &events) => ended,
            () = events.closed() => return,
            () = deadline.passed() => Err(deadline.error().into()),
        };
        // The answers are dropped by now. The event needs only the connection, whose writes have a limit of their own.
        if let Err(Broken::Failed(error)) = ended {
            let last = writer.failure(error);
            let _ = events.send(last).await;
        }
    });
    let events = stream::unfold(sent, async |mut sent| {
        let event = sent.recv().await?;
        Some((Ok::<_, Infallible>(event), sent))
    });
    Sse::new(events)
        .keep_alive(KeepAlive::default())
        .into_response()
}

async fn send_answers(
    mut answers: Answers,
    writer: &mut impl AnswerStream,
    events: &Sender<Event>,
) -> Result<(), Broken> {
    send(events, writer.begin(answers.usage())).await?;
    while let Some(event) = answers.next().await {
        let (prompt, event) = event?;
        send(events, writer.next(prompt, event)).await?;
    }
    send(events, writer.end(answers.usage())).await?;
    Ok(())
}

async fn send(events: &Sender<Event>, all: Vec<Event>) -> Result<(), SendError<Event>> {
    for event in all {
        events.send(event).await?;
    }
    Ok(())
}

/// An event with this content as JSON.
pub(crate) fn json_event<T: Serialize>(content: &T) -> Event {
    match serde_json::to_string(content) {
        Ok(json) => Event::default().data(json),
        // All types of this crate can be written as JSON.
        Err(_) => Event::default(),
    }
}

/// The event after the last one of an answer, in OpenAI's first two APIs.
pub(crate) fn done() -> Event {
    Event::default().data("[DONE]")
}
