//! An answer as a stream of server-sent events.

use axum::response::sse::Event;
use serde::Serialize;

use super::blocks::{AnswerBlock, BlockChange, BlockDelta, Blocks, StopReason};
use super::error::AnthropicError;
use super::message::{Message, Usage};
use super::prompt::renamed;
use crate::api::answer_stream::{AnswerStream, json_event};
use crate::api::answers::AnswerEvent;
use crate::api::delivery;
use crate::api::error::ApiError;

const MESSAGE_START: &str = "message_start";
const CONTENT_BLOCK_START: &str = "content_block_start";
const CONTENT_BLOCK_DELTA: &str = "content_block_delta";
const CONTENT_BLOCK_STOP: &str = "content_block_stop";
const MESSAGE_DELTA: &str = "message_delta";
const MESSAGE_STOP: &str = "message_stop";
const ERROR: &str = "error";

/// The events of a stream: when they are sent, and their types in order.
pub(crate) static STREAM_EVENTS: [(&str, &[&str]); 4] = [
    ("at the start", &[MESSAGE_START]),
    (
        "for each content block",
        &[CONTENT_BLOCK_START, CONTENT_BLOCK_DELTA, CONTENT_BLOCK_STOP],
    ),
    ("at the end", &[MESSAGE_DELTA, MESSAGE_STOP]),
    ("instead, if the answer fails", &[ERROR]),
];

/// Writes the events of an answer.
pub(super) struct Writer {
    pub message: Message,
    pub blocks: Blocks,
}

#[derive(Serialize)]
struct Typed<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Message {
        message: &'a Message,
    },
    Block {
        index: usize,
        content_block: &'a AnswerBlock,
    },
    BlockDelta {
        index: usize,
        delta: &'a BlockDelta,
    },
    BlockStop {
        index: usize,
    },
    End {
        delta: End<'a>,
        usage: Usage,
    },
    Empty {},
}

#[derive(Serialize)]
struct End<'a> {
    stop_reason: Option<StopReason>,
    stop_sequence: Option<&'a str>,
}

impl AnswerStream for Writer {
    type Item = Event;

    fn begin(&mut self, usage: delivery::Usage) -> Vec<Event> {
        self.message.usage = usage.into();
        let message = &self.message;
        vec![event(MESSAGE_START, Content::Message { message })]
    }

    fn next(&mut self, _: usize, event: AnswerEvent) -> Vec<Event> {
        let changes = self.blocks.push(&event);
        changes.iter().map(of_change).collect()
    }

    fn end(&mut self, usage: delivery::Usage) -> Vec<Event> {
        let blocks = std::mem::replace(
            &mut self.blocks,
            Blocks::new(Default::default(), false, Vec::new()),
        );
        self.message.finish(blocks, usage);
        let delta = End {
            stop_reason: self.message.stop_reason,
            stop_sequence: self.message.stop_sequence.as_deref(),
        };
        let usage = self.message.usage;
        vec![
            event(MESSAGE_DELTA, Content::End { delta, usage }),
            event(MESSAGE_STOP, Content::Empty {}),
        ]
    }

    fn failure(self, error: ApiError) -> Event {
        json_event(&AnthropicError::from(renamed(error))).event(ERROR)
    }
}

fn of_change(change: &BlockChange) -> Event {
    match change {
        BlockChange::Start { index, block } => {
            let (index, content_block) = (*index, block);
            let content = Content::Block {
                index,
                content_block,
            };
            event(CONTENT_BLOCK_START, content)
        }
        BlockChange::Delta { index, delta } => {
            let index = *index;
            event(CONTENT_BLOCK_DELTA, Content::BlockDelta { index, delta })
        }
        BlockChange::Stop { index } => {
            event(CONTENT_BLOCK_STOP, Content::BlockStop { index: *index })
        }
    }
}

fn event(kind: &'static str, content: Content<'_>) -> Event {
    json_event(&Typed { kind, content }).event(kind)
}
