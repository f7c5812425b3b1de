//! Splits an answer of messages in channels into reasoning, text and calls during generation.

use super::ChannelFormat;
use super::header::{Header, HeaderRead};
use crate::answer_delta::AnswerDelta;
use crate::markers::begun_marker;

/// The text between two messages of the same kind.
const SEPARATOR: &str = "\n\n";

/// Parses an answer, or a prefix of one. Headers are part of no delta.
///
/// A malformed header is text. An answer ends before a message of another role: the rest is dropped. Calls of an answer that
/// may not call functions, and messages to other recipients, are reasoning.
#[derive(Clone, Debug)]
pub(crate) struct ChannelParser {
    format: &'static ChannelFormat,
    /// True if the answer may call functions.
    may_call: bool,
    state: State,
    /// Unparsed text.
    pending: String,
    has_reasoning: bool,
    has_text: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Header,
    /// The text of a message, of which nothing was parsed yet.
    Begun(Kind),
    /// The text of a message.
    Message(Kind),
    /// After the answer's last message.
    Ended,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Text,
    Arguments,
}

impl ChannelParser {
    /// Creates a parser at the beginning of an answer, which begins with a header or continues a text.
    pub fn new(format: &'static ChannelFormat, begins_with_header: bool, may_call: bool) -> Self {
        Self {
            format,
            may_call,
            state: match begins_with_header {
                true => State::Header,
                false => State::Begun(Kind::Text),
            },
            pending: String::new(),
            has_reasoning: false,
            has_text: false,
        }
    }

    /// Parses the next text of the answer. Headers, and text that may belong to a marker, are held back.
    pub fn push(&mut self, text: &str) -> Vec<AnswerDelta> {
        self.pending += text;
        let mut deltas = Vec::new();
        while self.step(&mut deltas) {}
        deltas
    }

    /// Ends the answer and returns the text that was held back. An incomplete header is dropped.
    pub fn finish(&mut self) -> Vec<AnswerDelta> {
        let rest = std::mem::take(&mut self.pending);
        let mut deltas = Vec::new();
        if let State::Begun(_) | State::Message(_) = self.state {
            self.add(rest, &mut deltas);
        }
        deltas
    }

    /// Parses one element of the pending text. Returns false if more text is needed.
    fn step(&mut self, deltas: &mut Vec<AnswerDelta>) -> bool {
        match self.state {
            State::Header => self.header(deltas),
            State::Begun(_) | State::Message(_) => self.message(deltas),
            State::Ended => {
                self.pending.clear();
                false
            }
        }
    }

    fn header(&mut self, deltas: &mut Vec<AnswerDelta>) -> bool {
        let read = HeaderRead::new(self.format, &self.pending);
        let (state, length) = match read {
            HeaderRead::Incomplete => return false,
            HeaderRead::Complete(header, length) => {
                let state = self.after(header);
                if let (State::Begun(Kind::Arguments), Some(name)) = (state, self.function(header))
                {
                    let name = name.to_owned();
                    deltas.push(AnswerDelta::Call { name });
                }
                (state, length)
            }
            HeaderRead::Malformed => (State::Begun(Kind::Text), 0),
        };
        self.state = state;
        self.pending.drain(..length);
        // The marker of a malformed header begins no other one.
        let mut markers = [self.format.start, self.format.channel].into_iter();
        if let Some(marker) = markers.find(|marker| length == 0 && self.pending.starts_with(marker))
        {
            let marker = self.pending.drain(..marker.len()).collect();
            self.add(marker, deltas);
        }
        true
    }

    /// The state after a header.
    fn after(&self, header: Header<'_>) -> State {
        let is_reasoning = |channel| self.format.reasoning.contains(&channel);
        State::Begun(match header {
            Header {
                role: Some(role), ..
            } if role != self.format.role => return State::Ended,
            header if self.function(header).is_some() => Kind::Arguments,
            Header {
                recipient: Some(_), ..
            } => Kind::Reasoning,
            Header {
                channel: Some(channel),
                ..
            } if is_reasoning(channel) => Kind::Reasoning,
            _ => Kind::Text,
        })
    }

    /// The function that a message calls.
    fn function<'a>(&self, header: Header<'a>) -> Option<&'a str> {
        let recipient = header.recipient.filter(|_| self.may_call)?;
        let name = recipient.strip_prefix(self.format.functions);
        name.filter(|name| !name.is_empty())
    }

    fn message(&mut self, deltas: &mut Vec<AnswerDelta>) -> bool {
        let ChannelFormat { start, channel, .. } = *self.format;
        let ends = self.format.ends.iter().map(|end| (*end, end.len()));
        // Of a header that follows without an end, nothing belongs to the message's end.
        let boundaries = ends.chain([(start, 0), (channel, 0)]);
        let found = boundaries.filter_map(|(marker, length)| {
            let at = self.pending.find(marker)?;
            Some((at, length))
        });
        let found = found.min();
        let end = found.map_or_else(|| self.pending.len() - self.held_back(), |(at, _)| at);
        let text = self.pending.drain(..end).collect();
        self.add(text, deltas);
        if let Some((_, length)) = found {
            self.pending.drain(..length);
            self.state = State::Header;
        }
        found.is_some()
    }

    /// The length of the end of the pending text that may begin a marker.
    fn held_back(&self) -> usize {
        let markers = [self.format.start, self.format.channel];
        let markers = markers.iter().chain(self.format.ends);
        let begun = markers.map(|marker| begun_marker(&self.pending, marker));
        begun.max().unwrap_or(0)
    }

    /// Adds text of the current message.
    fn add(&mut self, text: String, deltas: &mut Vec<AnswerDelta>) {
        let (State::Begun(kind) | State::Message(kind)) = self.state else {
            return;
        };
        if text.is_empty() {
            return;
        }
        let is_first = self.state == State::Begun(kind);
        self.state = State::Message(kind);
        let separated = |text: String, has_earlier: &mut bool| {
            let separator = if is_first && *has_earlier {
                SEPARATOR
            } else {
                ""
            };
            *has_earlier = true;
            [separator, &text].concat()
        };
        deltas.push(match kind {
            Kind::Reasoning => AnswerDelta::Reasoning(separated(text, &mut self.has_reasoning)),
            Kind::Text => AnswerDelta::Text(separated(text, &mut self.has_text)),
            Kind::Arguments => AnswerDelta::Arguments(text),
        });
    }
}
