//! A response as server-sent events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::response::sse::Event;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc::error::SendError;

use super::renamed;
use super::response::{OutputMessage, OutputText, ResponseBody, Status, id};
use crate::api::answers::{Answers, FinishReason};
use crate::api::delivery::{Pieces, piece};
use crate::api::error::ApiError;

/// Writes the events of a response, which are numbered from 0.
pub(super) struct Writer {
    response: ResponseBody,
    message_id: String,
    sequence: Arc<AtomicU64>,
}

#[derive(Serialize)]
struct Numbered<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    sequence_number: u64,
    #[serde(flatten)]
    content: Content<'a>,
}

/// The content of an event. A response has one message with one part, so that all indices are 0.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Response {
        response: &'a ResponseBody,
    },
    Item {
        output_index: usize,
        item: &'a OutputMessage,
    },
    Part {
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        part: &'a OutputText,
    },
    Delta {
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        delta: &'a str,
        logprobs: Vec<Value>,
    },
    Text {
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        text: &'a str,
        logprobs: Vec<Value>,
    },
}

fn event(sequence: &AtomicU64, kind: &'static str, content: Content<'_>) -> Event {
    let sequence_number = sequence.fetch_add(1, Ordering::Relaxed);
    let numbered = Numbered {
        kind,
        sequence_number,
        content,
    };
    piece(&numbered).event(kind)
}

impl Writer {
    pub fn new(response: ResponseBody) -> Self {
        Self {
            response,
            message_id: id("msg"),
            sequence: Arc::default(),
        }
    }

    /// The event with which the stream ends if it fails by this error.
    pub fn failure(&self, error: ApiError) -> impl FnOnce() -> Event + Send + use<> {
        let (mut response, sequence) = (self.response.clone(), Arc::clone(&self.sequence));
        move || {
            response.fail(error.body());
            let response = &response;
            event(&sequence, "response.failed", Content::Response { response })
        }
    }

    /// Sends the response as it is generated.
    ///
    /// # Errors
    /// The client has left.
    pub async fn stream(
        mut self,
        mut answers: Answers,
        pieces: &Pieces,
    ) -> Result<(), SendError<Event>> {
        for kind in ["response.created", "response.in_progress"] {
            pieces.send(self.of_response(kind)).await?;
        }
        let begun = OutputMessage::new(self.message_id.clone(), Status::InProgress, Vec::new());
        pieces
            .send(self.of_item("response.output_item.added", &begun))
            .await?;
        let part = OutputText::new(String::new());
        pieces
            .send(self.of_part("response.content_part.added", &part))
            .await?;
        let (mut text, mut finish): (String, Option<FinishReason>) = (String::new(), None);
        while let Some(event) = answers.next().await {
            let event = match event {
                Ok((_, event)) => event,
                Err(error) => return pieces.send(self.failure(renamed(error))()).await,
            };
            finish = event.finish.or(finish);
            if !event.text.is_empty() {
                pieces.send(self.delta(&event.text)).await?;
                text += &event.text;
            }
        }
        pieces.send(self.text(&text)).await?;
        self.response
            .finish(self.message_id.clone(), text, finish, answers.usage());
        for item in &self.response.output {
            for part in &item.content {
                pieces
                    .send(self.of_part("response.content_part.done", part))
                    .await?;
            }
            pieces
                .send(self.of_item("response.output_item.done", item))
                .await?;
        }
        let kind = match self.response.status {
            Status::Incomplete => "response.incomplete",
            _ => "response.completed",
        };
        pieces.send(self.of_response(kind)).await
    }

    fn of_response(&self, kind: &'static str) -> Event {
        let response = &self.response;
        event(&self.sequence, kind, Content::Response { response })
    }

    fn of_item(&self, kind: &'static str, item: &OutputMessage) -> Event {
        let content = Content::Item {
            output_index: 0,
            item,
        };
        event(&self.sequence, kind, content)
    }

    fn of_part(&self, kind: &'static str, part: &OutputText) -> Event {
        let content = Content::Part {
            item_id: &self.message_id,
            output_index: 0,
            content_index: 0,
            part,
        };
        event(&self.sequence, kind, content)
    }

    fn delta(&self, delta: &str) -> Event {
        let content = Content::Delta {
            item_id: &self.message_id,
            output_index: 0,
            content_index: 0,
            delta,
            logprobs: Vec::new(),
        };
        event(&self.sequence, "response.output_text.delta", content)
    }

    fn text(&self, text: &str) -> Event {
        let content = Content::Text {
            item_id: &self.message_id,
            output_index: 0,
            content_index: 0,
            text,
            logprobs: Vec::new(),
        };
        event(&self.sequence, "response.output_text.done", content)
    }
}
