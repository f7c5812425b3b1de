//! A response as a stream of server-sent events.

use std::sync::Arc;

use axum::response::sse::Event;
use serde::Serialize;

use super::output::{OutputChange, OutputItems};
use super::renamed;
use super::response::{OutputItem, OutputText, ResponseBody, Status};
use crate::api::answer_parts::AnswerForm;
use crate::api::answer_stream::{AnswerStream, json_event};
use crate::api::answers::AnswerEvent;
use crate::api::delivery::Usage;
use crate::api::error::ApiError;
use crate::api::logprobs::LogProb;
use crate::model::ServedModel;

const CREATED: &str = "response.created";
const IN_PROGRESS: &str = "response.in_progress";
const OUTPUT_ITEM_ADDED: &str = "response.output_item.added";
const OUTPUT_ITEM_DONE: &str = "response.output_item.done";
const CONTENT_PART_ADDED: &str = "response.content_part.added";
const OUTPUT_TEXT_DELTA: &str = "response.output_text.delta";
const OUTPUT_TEXT_DONE: &str = "response.output_text.done";
const CONTENT_PART_DONE: &str = "response.content_part.done";
const REASONING_TEXT_DELTA: &str = "response.reasoning_text.delta";
const REASONING_TEXT_DONE: &str = "response.reasoning_text.done";
const FUNCTION_CALL_ARGUMENTS_DELTA: &str = "response.function_call_arguments.delta";
const FUNCTION_CALL_ARGUMENTS_DONE: &str = "response.function_call_arguments.done";
const COMPLETED: &str = "response.completed";
const INCOMPLETE: &str = "response.incomplete";
const FAILED: &str = "response.failed";

/// The events of a stream: when they are sent, and their types in order.
pub(crate) static STREAM_EVENTS: [(&str, &[&str]); 6] = [
    ("at the start", &[CREATED, IN_PROGRESS]),
    ("for each item", &[OUTPUT_ITEM_ADDED, OUTPUT_ITEM_DONE]),
    (
        "within an item that is reasoning",
        &[REASONING_TEXT_DELTA, REASONING_TEXT_DONE],
    ),
    (
        "within an item that is a message",
        &[
            CONTENT_PART_ADDED,
            OUTPUT_TEXT_DELTA,
            OUTPUT_TEXT_DONE,
            CONTENT_PART_DONE,
        ],
    ),
    (
        "within an item that is a function call",
        &[FUNCTION_CALL_ARGUMENTS_DELTA, FUNCTION_CALL_ARGUMENTS_DONE],
    ),
    ("at the end, one of", &[COMPLETED, INCOMPLETE, FAILED]),
];

/// Writes the events of a response, numbered from 0.
pub(super) struct Writer {
    pub response: ResponseBody,
    pub output: OutputItems,
    pub model: Arc<ServedModel>,
    /// True if log-probabilities of the text are requested.
    pub logprobs: bool,
    pub sequence: u64,
}

#[derive(Serialize)]
struct Numbered<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    sequence_number: u64,
    #[serde(flatten)]
    content: Content<'a>,
}

/// The content of an event. `content_index` is always 0, because a message has a single content part.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Response {
        response: &'a ResponseBody,
    },
    Item {
        output_index: usize,
        item: &'a OutputItem,
    },
    Part {
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        part: &'a OutputText,
    },
    ReasoningDelta {
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        delta: &'a str,
    },
    Reasoning {
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        text: &'a str,
    },
    TextDelta {
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        delta: &'a str,
        logprobs: &'a [LogProb],
    },
    Text {
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        text: &'a str,
        logprobs: &'a [LogProb],
    },
    ArgumentsDelta {
        item_id: &'a str,
        output_index: usize,
        delta: &'a str,
    },
    Arguments {
        item_id: &'a str,
        output_index: usize,
        name: &'a str,
        arguments: &'a str,
    },
}

impl Writer {
    /// Processes the next event of the answer.
    pub fn push(&mut self, event: AnswerEvent) -> Vec<OutputChange> {
        let token = event.token.as_ref().filter(|_| self.logprobs);
        let logprob = token.and_then(|token| LogProb::new(&self.model, token));
        self.output.push(&event, logprob)
    }

    fn events(&mut self, changes: Vec<OutputChange>) -> Vec<Event> {
        let Self {
            output, sequence, ..
        } = self;
        let mut events = Events {
            sequence,
            events: Vec::new(),
        };
        for change in changes {
            events.change(output.items(), change);
        }
        events.events
    }

    fn of_response(&mut self, kind: &'static str) -> Event {
        let content = Content::Response {
            response: &self.response,
        };
        event(&mut self.sequence, kind, content)
    }
}

impl AnswerStream for Writer {
    type Item = Event;

    fn begin(&mut self, _: Usage) -> Vec<Event> {
        let mut events: Vec<Event> = [CREATED, IN_PROGRESS]
            .map(|kind| self.of_response(kind))
            .into();
        let changes = self.output.begin();
        events.extend(self.events(changes));
        events
    }

    fn next(&mut self, _: usize, event: AnswerEvent) -> Vec<Event> {
        let changes = self.push(event);
        self.events(changes)
    }

    fn end(&mut self, usage: Usage) -> Vec<Event> {
        let output = std::mem::replace(&mut self.output, OutputItems::new(AnswerForm::default()));
        self.response.finish(output, usage);
        let kind = match self.response.status {
            Status::Incomplete => INCOMPLETE,
            _ => COMPLETED,
        };
        vec![self.of_response(kind)]
    }

    fn failure(mut self, error: ApiError) -> Event {
        self.response.fail(renamed(error).body());
        self.of_response(FAILED)
    }
}

/// Collects the events for changes of the output.
struct Events<'a> {
    sequence: &'a mut u64,
    events: Vec<Event>,
}

impl Events<'_> {
    fn change(&mut self, items: &[OutputItem], change: OutputChange) {
        let (OutputChange::Added { index }
        | OutputChange::Reasoning { index, .. }
        | OutputChange::Text { index, .. }
        | OutputChange::Arguments { index, .. }
        | OutputChange::Done { index }) = change;
        let Some(item) = items.get(index) else {
            return;
        };
        match change {
            OutputChange::Added { .. } => {
                // The initial content of the item follows in separate events.
                self.item(OUTPUT_ITEM_ADDED, index, &item.begun());
                if let OutputItem::Message(message) = item {
                    let part = OutputText::new();
                    self.part(CONTENT_PART_ADDED, index, &message.id, &part);
                }
            }
            OutputChange::Reasoning { delta, .. } => self.send(
                REASONING_TEXT_DELTA,
                Content::ReasoningDelta {
                    item_id: item.id(),
                    output_index: index,
                    content_index: 0,
                    delta: &delta,
                },
            ),
            OutputChange::Text {
                delta, logprobs, ..
            } => self.send(
                OUTPUT_TEXT_DELTA,
                Content::TextDelta {
                    item_id: item.id(),
                    output_index: index,
                    content_index: 0,
                    delta: &delta,
                    logprobs: &logprobs,
                },
            ),
            OutputChange::Arguments { delta, .. } => self.send(
                FUNCTION_CALL_ARGUMENTS_DELTA,
                Content::ArgumentsDelta {
                    item_id: item.id(),
                    output_index: index,
                    delta: &delta,
                },
            ),
            OutputChange::Done { .. } => self.done(index, item),
        }
    }

    fn done(&mut self, index: usize, item: &OutputItem) {
        match item {
            OutputItem::Reasoning(reasoning) => {
                for part in &reasoning.content {
                    let text = Content::Reasoning {
                        item_id: &reasoning.id,
                        output_index: index,
                        content_index: 0,
                        text: &part.text,
                    };
                    self.send(REASONING_TEXT_DONE, text);
                }
            }
            OutputItem::Message(message) => {
                for part in &message.content {
                    let text = Content::Text {
                        item_id: &message.id,
                        output_index: index,
                        content_index: 0,
                        text: &part.text,
                        logprobs: &part.logprobs,
                    };
                    self.send(OUTPUT_TEXT_DONE, text);
                    self.part(CONTENT_PART_DONE, index, &message.id, part);
                }
            }
            OutputItem::FunctionCall(call) => self.send(
                FUNCTION_CALL_ARGUMENTS_DONE,
                Content::Arguments {
                    item_id: &call.id,
                    output_index: index,
                    name: &call.name,
                    arguments: &call.arguments,
                },
            ),
        }
        self.item(OUTPUT_ITEM_DONE, index, item);
    }

    fn item(&mut self, kind: &'static str, output_index: usize, item: &OutputItem) {
        self.send(kind, Content::Item { output_index, item });
    }

    fn part(&mut self, kind: &'static str, output_index: usize, id: &str, part: &OutputText) {
        let content = Content::Part {
            item_id: id,
            output_index,
            content_index: 0,
            part,
        };
        self.send(kind, content);
    }

    fn send(&mut self, kind: &'static str, content: Content<'_>) {
        self.events.push(event(self.sequence, kind, content));
    }
}

fn event(sequence: &mut u64, kind: &'static str, content: Content<'_>) -> Event {
    let numbered = Numbered {
        kind,
        sequence_number: *sequence,
        content,
    };
    *sequence += 1;
    json_event(&numbered).event(kind)
}
