//! The answers of a request as server-sent events, sent while they are generated.

use std::collections::VecDeque;
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

impl From<SendError<()>> for Broken {
    fn from(_: SendError<()>) -> Self {
        Self::Left
    }
}

impl From<ApiError> for Broken {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

/// Events that have been written, and may be numbered, but not sent yet. They are sent even if the deadline passes first.
#[derive(Default)]
struct Written {
    events: VecDeque<Event>,
    /// True once the last event of whole answers is among them.
    is_whole: bool,
}

impl Written {
    async fn send(&mut self, to: &Sender<Event>) -> Result<(), SendError<()>> {
        while !self.events.is_empty() {
            let place = to.reserve().await?;
            if let Some(event) = self.events.pop_front() {
                place.send(event);
            }
        }
        Ok(())
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
        let mut written = Written::default();
        let ended = tokio::select! {
            ended = send_answers(answers, &mut writer, &mut written, &events) => ended,
            () = events.closed() => return,
            () = deadline.passed() => Err(deadline.error().into()),
        };
        // The answers are dropped by now. The events need only the connection, whose writes have a separate limit.
        if let Err(Broken::Failed(error)) = ended {
            if !written.is_whole {
                written.events.push_back(writer.failure(error));
            }
            let _ = written.send(&events).await;
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
    written: &mut Written,
    to: &Sender<Event>,
) -> Result<(), Broken> {
    written.events.extend(writer.begin(answers.usage()));
    written.send(to).await?;
    while let Some(event) = answers.next().await {
        let (prompt, event) = event?;
        written.events.extend(writer.next(prompt, event));
        written.send(to).await?;
    }
    written.events.extend(writer.end(answers.usage()));
    written.is_whole = true;
    written.send(to).await?;
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
