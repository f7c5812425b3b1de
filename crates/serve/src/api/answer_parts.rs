//! Splits generated text into the parts that every API has: reasoning, text and calls of functions.

use rand::RngExt;
use rand::distr::Alphanumeric;
use serde::Serialize;

use super::answers::AnswerEvent;
use super::delivery::name;
use crate::answer_delta::AnswerDelta;
use crate::channels::ChannelParser;
use crate::reasoning::{Reasoning, ReasoningParser};
use crate::tools::{CallFormat, ToolCallParser};

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
pub(crate) struct AnswerParts {
    parser: Parser,
    short_ids: bool,
}

enum Parser {
    /// Reasoning and calls between their own markers.
    Marked {
        reasoning: Option<ReasoningParser>,
        tools: Option<ToolCallParser>,
    },
    /// Messages in channels.
    Channels(ChannelParser),
}

impl AnswerParts {
    pub fn new(form: AnswerForm) -> Self {
        let AnswerForm { reasoning, tools } = form;
        let channels = reasoning.and_then(|reasoning| {
            let channels = reasoning.format.channels?;
            Some((channels, reasoning.is_begun))
        });
        Self {
            short_ids: tools.as_ref().is_some_and(|format| format.short_ids),
            parser: match channels {
                Some((channels, is_begun)) => {
                    Parser::Channels(ChannelParser::new(channels, is_begun, tools.is_some()))
                }
                None => Parser::Marked {
                    reasoning: reasoning.map(ReasoningParser::new),
                    tools: tools.map(ToolCallParser::new),
                },
            },
        }
    }

    /// Returns true if the answer is text only.
    pub fn is_text(&self) -> bool {
        matches!(
            self.parser,
            Parser::Marked {
                reasoning: None,
                tools: None
            }
        )
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
        let deltas = self.parser.parse(text, is_end).into_iter();
        let parts = deltas.map(|delta| AnswerPart::new(delta, self.short_ids));
        parts.collect()
    }
}

impl Parser {
    fn parse(&mut self, text: &str, is_end: bool) -> Vec<AnswerDelta> {
        let (reasoning, tools) = match self {
            Self::Marked { reasoning, tools } => (reasoning, tools),
            Self::Channels(parser) => {
                let mut deltas = parser.push(text);
                if is_end {
                    deltas.extend(parser.finish());
                }
                return deltas;
            }
        };
        let split = match reasoning {
            None if text.is_empty() => Vec::new(),
            None => vec![AnswerDelta::Text(text.to_owned())],
            Some(parser) => {
                let mut deltas = parser.push(text);
                if is_end {
                    deltas.extend(parser.finish());
                }
                deltas
            }
        };
        let Some(tools) = tools else {
            return split;
        };
        let mut deltas = Vec::new();
        for delta in split {
            match delta {
                AnswerDelta::Text(text) => deltas.extend(tools.push(&text)),
                other => deltas.push(other),
            }
        }
        if is_end {
            deltas.extend(tools.finish());
        }
        deltas
    }
}

impl AnswerPart {
    fn new(delta: AnswerDelta, short_ids: bool) -> Self {
        match delta {
            AnswerDelta::Reasoning(text) => Self::Reasoning(text),
            AnswerDelta::Text(text) => Self::Text(text),
            AnswerDelta::Call { name } => Self::Call {
                id: call_id(short_ids),
                name,
            },
            AnswerDelta::Arguments(text) => Self::Arguments(text),
        }
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
