//! The parts of answers that every API has: reasoning, text and calls of functions with their identifiers.

use rand::RngExt;
use rand::distr::Alphanumeric;
use serde::Serialize;

use super::answers::AnswerEvent;
use super::delivery::name;
use crate::answer_delta::AnswerDelta;
use crate::answer_parser::AnswerParser;
use crate::reasoning::Reasoning;
use crate::tools::CallFormat;

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
    parser: AnswerParser,
    short_ids: bool,
}

impl AnswerParts {
    pub fn new(form: AnswerForm) -> Self {
        let AnswerForm { reasoning, tools } = form;
        Self {
            short_ids: tools.as_ref().is_some_and(|format| format.short_ids),
            parser: AnswerParser::new(reasoning, tools),
        }
    }

    /// Returns true if the answer is text only.
    pub fn is_text(&self) -> bool {
        self.parser.is_text()
    }

    /// Processes the next event. Parts are not empty.
    pub fn push(&mut self, event: &AnswerEvent) -> Vec<AnswerPart> {
        let mut deltas = self.parser.push(&event.text);
        if event.finish.is_some() {
            deltas.extend(self.parser.finish());
        }
        self.parts(deltas)
    }

    /// Processes the next text of an answer that has not ended.
    pub fn push_text(&mut self, text: &str) -> Vec<AnswerPart> {
        let deltas = self.parser.push(text);
        self.parts(deltas)
    }

    fn parts(&self, deltas: Vec<AnswerDelta>) -> Vec<AnswerPart> {
        let deltas = deltas.into_iter();
        let parts = deltas.map(|delta| AnswerPart::new(delta, self.short_ids));
        parts.collect()
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
