//! Splits generated text into the parts that every API has: reasoning, text and calls of functions.

use rand::RngExt;
use rand::distr::Alphanumeric;
use serde::Serialize;

use super::answers::AnswerEvent;
use super::delivery::name;
use crate::channels::{ChannelDelta, ChannelParser};
use crate::reasoning::{Reasoning, ReasoningDelta, ReasoningParser};
use crate::tools::{CallFormat, ToolCallParser, ToolDelta};

/// The length of a short call id.
const SHORT_ID: usize = 9;

/// The parts that an answer may have.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerForm {
    /// The tags of its reasoning. `None` if the reasoning is part of the text.
    pub reasoning: Option<Reasoning>,
    /// The format of calls. `None` if the answer may not call functions.
    pub tools: Option<CallFormat>,
}

/// A part of an answer, which continues the one before if both are of the same kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AnswerPart {
    Reasoning(String),
    Text(String),
    /// A call begins.
    Call {
        id: String,
        name: String,
    },
    /// More of the arguments of the last call.
    Arguments(String),
}

/// The parser of one answer during generation.
pub(crate) struct AnswerParts(Parser);

enum Parser {
    Marked(MarkedParser),
    /// Messages in channels.
    Channels {
        parser: ChannelParser,
        short_ids: bool,
    },
}

/// The parser of an answer whose reasoning and calls are between their own markers.
struct MarkedParser {
    reasoning: Option<ReasoningParser>,
    tools: Option<(CallFormat, ToolCallParser)>,
}

impl AnswerParts {
    pub fn new(form: AnswerForm) -> Self {
        let AnswerForm { reasoning, tools } = form;
        let channels = reasoning.and_then(|reasoning| {
            let channels = reasoning.format.channels?;
            Some((channels, reasoning.is_begun))
        });
        Self(match channels {
            Some((channels, is_begun)) => Parser::Channels {
                parser: ChannelParser::new(channels, is_begun, tools.is_some()),
                short_ids: tools.is_some_and(|format| format.short_ids),
            },
            None => Parser::Marked(MarkedParser {
                reasoning: reasoning.map(ReasoningParser::new),
                tools: tools.map(|format| (format.clone(), ToolCallParser::new(format))),
            }),
        })
    }

    /// Returns true if the answer is text only.
    pub fn is_text(&self) -> bool {
        match &self.0 {
            Parser::Marked(parser) => parser.reasoning.is_none() && parser.tools.is_none(),
            Parser::Channels { .. } => false,
        }
    }

    /// Processes the next event. Parts are not empty.
    pub fn push(&mut self, event: &AnswerEvent) -> Vec<AnswerPart> {
        self.parse(&event.text, event.finish.is_some())
    }

    /// Processes the next text of an answer that has not ended.
    pub fn push_text(&mut self, text: &str) -> Vec<AnswerPart> {
        self.parse(text, false)
    }

    fn parse(&mut self, text: &str, is_end: bool) -> Vec<AnswerPart> {
        match &mut self.0 {
            Parser::Marked(parser) => parser.parse(text, is_end),
            Parser::Channels { parser, short_ids } => {
                let mut deltas = parser.push(text);
                if is_end {
                    deltas.extend(parser.finish());
                }
                let deltas = deltas.into_iter();
                let parts = deltas.map(|delta| AnswerPart::of_channel(delta, *short_ids));
                parts.collect()
            }
        }
    }
}

impl MarkedParser {
    fn parse(&mut self, text: &str, is_end: bool) -> Vec<AnswerPart> {
        let mut parts = Vec::new();
        match &mut self.reasoning {
            None => self.text(text, &mut parts),
            Some(parser) => {
                let mut deltas = parser.push(text);
                if is_end {
                    deltas.extend(parser.finish());
                }
                for delta in deltas {
                    match delta {
                        ReasoningDelta::Reasoning(text) => parts.push(AnswerPart::Reasoning(text)),
                        ReasoningDelta::Text(text) => self.text(&text, &mut parts),
                    }
                }
            }
        }
        if let Some((format, parser)) = self.tools.as_mut().filter(|_| is_end) {
            let rest = parser.finish().into_iter();
            parts.extend(rest.map(|delta| AnswerPart::of_call(delta, format.short_ids)));
        }
        parts
    }

    /// Adds the parts of a text after the reasoning.
    fn text(&mut self, text: &str, parts: &mut Vec<AnswerPart>) {
        match &mut self.tools {
            None if text.is_empty() => {}
            None => parts.push(AnswerPart::Text(text.to_owned())),
            Some((format, parser)) => {
                let deltas = parser.push(text).into_iter();
                parts.extend(deltas.map(|delta| AnswerPart::of_call(delta, format.short_ids)));
            }
        }
    }
}

impl AnswerPart {
    fn of_call(delta: ToolDelta, short_ids: bool) -> Self {
        match delta {
            ToolDelta::Text(text) => Self::Text(text),
            ToolDelta::Call { name } => Self::call(name, short_ids),
            ToolDelta::Arguments(text) => Self::Arguments(text),
        }
    }

    fn of_channel(delta: ChannelDelta, short_ids: bool) -> Self {
        match delta {
            ChannelDelta::Reasoning(text) => Self::Reasoning(text),
            ChannelDelta::Text(text) => Self::Text(text),
            ChannelDelta::Call { name } => Self::call(name, short_ids),
            ChannelDelta::Arguments(text) => Self::Arguments(text),
        }
    }

    fn call(name: String, short_ids: bool) -> Self {
        let id = call_id(short_ids);
        Self::Call { id, name }
    }
}

/// A new identifier of a call.
fn call_id(short: bool) -> String {
    if short {
        let drawn = rand::rng().sample_iter(Alphanumeric).take(SHORT_ID);
        return drawn.map(char::from).collect();
    }
    name("call")
}
