//! Reasoning: the text between tags in which a model thinks before its answer.
//!
//! A template whose text has the closing tag is that of a model that reasons. Some templates end the prompt with the opening
//! tag; other models write it. In answers of channels, reasoning is a kind of message.

use std::slice;

use crate::answer_delta::AnswerDelta;
use crate::channels::{ChannelFormat, HARMONY};
use crate::markers::begun_marker;

/// The most tokens at the end of a prompt that show if reasoning has begun: an opening tag or marker, with white space.
const TAG_TOKENS: usize = 32;

/// The tags around reasoning.
#[derive(Debug, PartialEq, Eq)]
pub struct ReasoningFormat {
    /// The models with these tags.
    pub models: &'static str,
    /// The opening tag.
    pub open: &'static str,
    /// The closing tag.
    pub close: &'static str,
    /// The format of answers that consist of messages in channels.
    pub(crate) channels: Option<&'static ChannelFormat>,
}

/// All formats. A template has the first one that matches.
pub(crate) static FORMATS: [ReasoningFormat; 5] = [
    ReasoningFormat {
        models: "DeepSeek R1, Qwen 3, SmolLM3, GLM 4.5, Phi 4 reasoning",
        open: "<think>",
        close: "</think>",
        channels: None,
    },
    ReasoningFormat {
        models: "Magistral",
        open: "[THINK]",
        close: "[/THINK]",
        channels: None,
    },
    ReasoningFormat {
        models: "Command A reasoning",
        open: "<|START_THINKING|>",
        close: "<|END_THINKING|>",
        channels: None,
    },
    ReasoningFormat {
        models: "Seed OSS",
        open: "<seed:think>",
        close: "</seed:think>",
        channels: None,
    },
    ReasoningFormat {
        models: "gpt-oss",
        open: HARMONY.call_preface[0],
        close: HARMONY.call_preface[1],
        channels: Some(&HARMONY),
    },
];

impl ReasoningFormat {
    /// The format of a chat template. `None` if its model does not reason.
    pub(crate) fn of_template(source: &str) -> Option<&'static Self> {
        let mut formats = FORMATS.iter();
        formats.find(|format| match format.channels {
            Some(channels) => channels.is_of_template(source),
            None => source.contains(format.close),
        })
    }

    /// Returns true if reasoning can begin an answer after a prompt that ends with `tail`, without an opening tag in the answer.
    fn is_begun_by(&self, tail: &[u8]) -> bool {
        match self.channels {
            Some(channels) => channels.begins_with_header(tail),
            None => tail.trim_ascii_end().ends_with(self.open.as_bytes()),
        }
    }

    /// Returns true if `token` is a tag, which is part of an answer's text even if it is a special token.
    pub(crate) fn is_tag(&self, token: &str) -> bool {
        let is_marker = |channels: &ChannelFormat| channels.is_marker(token);
        token == self.open || token == self.close || self.channels.is_some_and(is_marker)
    }
}

/// The reasoning of the answer to a prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reasoning {
    pub format: &'static ReasoningFormat,
    /// True if the prompt ends with the opening tag, or in the header of a message in a channel.
    pub is_begun: bool,
}

impl Reasoning {
    /// The reasoning of the answer to a prompt that ends with `tail`.
    fn new(format: &'static ReasoningFormat, tail: &[u8]) -> Self {
        let is_begun = format.is_begun_by(tail);
        Self { format, is_begun }
    }

    /// The reasoning of the answer to `prompt`, whose tokens have these `bytes`. `None` if the model of this chat template does
    /// not reason.
    pub fn of_prompt(
        template: &str,
        prompt: &[u32],
        bytes: impl Fn(u32) -> Vec<u8>,
    ) -> Option<Self> {
        let format = ReasoningFormat::of_template(template)?;
        let tail = &prompt[prompt.len().saturating_sub(TAG_TOKENS)..];
        let tail: Vec<u8> = tail.iter().flat_map(|&id| bytes(id)).collect();
        Some(Self::new(format, &tail))
    }

    /// The texts after the first of which a constraint begins. Empty if it begins with the first token. In a format with
    /// channels, a constraint of calls has the headers of messages.
    pub fn before_constraint(&self, has_calls: bool) -> &'static [&'static str] {
        match self.format.channels {
            _ if !self.is_begun => &[],
            Some(_) if has_calls => &[],
            Some(channels) => channels.answer_headers,
            None => slice::from_ref(&self.format.close),
        }
    }
}

/// Splits an answer into reasoning and the text after it during generation. The tags and the line breaks next to them belong
/// to neither, as templates write them.
#[derive(Clone, Debug)]
pub(crate) struct ReasoningParser {
    format: &'static ReasoningFormat,
    state: State,
    /// Text that may belong to a tag, or to the line breaks before the closing one.
    pending: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The beginning, until it is known if the answer begins with the opening tag.
    Start,
    /// After the opening tag.
    Opened,
    Reasoning,
    /// After the closing tag.
    Closed,
    Text,
}

impl ReasoningParser {
    pub fn new(reasoning: Reasoning) -> Self {
        let state = match reasoning.is_begun {
            true => State::Opened,
            false => State::Start,
        };
        Self {
            format: reasoning.format,
            state,
            pending: String::new(),
        }
    }

    /// Parses the next text of the answer. Text that may belong to a tag is held back.
    pub fn push(&mut self, text: &str) -> Vec<AnswerDelta> {
        self.pending += text;
        let mut deltas = Vec::new();
        while self.step(&mut deltas) {}
        deltas
    }

    /// Ends the answer and returns the text that was held back. Reasoning without a closing tag stays reasoning: the answer
    /// was too long.
    pub fn finish(&mut self) -> Vec<AnswerDelta> {
        let rest = std::mem::take(&mut self.pending);
        match self.state {
            _ if rest.is_empty() => Vec::new(),
            State::Start | State::Text => vec![AnswerDelta::Text(rest)],
            State::Reasoning => vec![AnswerDelta::Reasoning(rest)],
            State::Opened | State::Closed => Vec::new(),
        }
    }

    /// Parses one element of the pending text. Returns false if more text is needed.
    fn step(&mut self, deltas: &mut Vec<AnswerDelta>) -> bool {
        match self.state {
            State::Start => {
                let begun = self.pending.trim_start();
                let next = if let Some(rest) = begun.strip_prefix(self.format.open) {
                    self.pending = rest.to_owned();
                    State::Opened
                } else if self.format.open.starts_with(begun) {
                    return false;
                } else {
                    State::Text
                };
                self.state = next;
                true
            }
            State::Opened => self.skip_line_breaks(State::Reasoning),
            State::Reasoning => self.reasoning(deltas),
            State::Closed => self.skip_line_breaks(State::Text),
            State::Text => {
                let text = std::mem::take(&mut self.pending);
                if !text.is_empty() {
                    deltas.push(AnswerDelta::Text(text));
                }
                false
            }
        }
    }

    fn skip_line_breaks(&mut self, next: State) -> bool {
        let breaks = self.pending.len() - self.pending.trim_start_matches(LINE_BREAKS).len();
        self.pending.drain(..breaks);
        let is_over = !self.pending.is_empty();
        if is_over {
            self.state = next;
        }
        is_over
    }

    fn reasoning(&mut self, deltas: &mut Vec<AnswerDelta>) -> bool {
        let close = self.format.close;
        let found = self.pending.find(close);
        let end = found.unwrap_or_else(|| self.pending.len() - begun_marker(&self.pending, close));
        let end = self.pending[..end].trim_end_matches(LINE_BREAKS).len();
        let rest = self.pending.split_off(end);
        let reasoning = std::mem::replace(&mut self.pending, rest);
        if !reasoning.is_empty() {
            deltas.push(AnswerDelta::Reasoning(reasoning));
        }
        if found.is_some() {
            let tag = self.pending.trim_start_matches(LINE_BREAKS);
            self.pending = tag.strip_prefix(close).unwrap_or(tag).to_owned();
            self.state = State::Closed;
        }
        found.is_some()
    }
}

const LINE_BREAKS: [char; 2] = ['\n', '\r'];

#[cfg(test)]
mod tests {
    use super::*;

    /// The reasoning and the text of an answer that arrives in parts of `size` bytes.
    fn split(answer: &str, is_begun: bool, size: usize) -> (String, String) {
        let format = ReasoningFormat::of_template("{{ '</think>' }}").unwrap();
        let mut parser = ReasoningParser::new(Reasoning { format, is_begun });
        let parts = answer
            .as_bytes()
            .chunks(size)
            .map(|part| std::str::from_utf8(part).unwrap());
        let mut deltas: Vec<AnswerDelta> = parts.flat_map(|part| parser.push(part)).collect();
        deltas.extend(parser.finish());
        let (mut reasoning, mut text) = (String::new(), String::new());
        for delta in deltas {
            match delta {
                AnswerDelta::Reasoning(part) => reasoning += &part,
                AnswerDelta::Text(part) => text += &part,
                call => panic!("{call:?}"),
            }
        }
        (reasoning, text)
    }

    #[test]
    fn reasoning_is_the_text_between_the_tags() {
        for (answer, is_begun, reasoning, text) in [
            (
                "<think>\na\n\nb\n</think>\n\nyes\n",
                false,
                "a\n\nb",
                "yes\n",
            ),
            ("\n<think>a</think>yes", false, "a", "yes"),
            ("a\n</think>\n\nyes", true, "a", "yes"),
            ("<think>\n\n</think>\n\nyes", false, "", "yes"),
            ("\n</think>\n\n", true, "", ""),
            // An answer without reasoning, and tags within a text.
            ("yes <think>a</think>", false, "", "yes <think>a</think>"),
            (" <thin", false, "", " <thin"),
            ("", false, "", ""),
            // Reasoning that is cut off, or has the beginnings of tags.
            ("<think>a </thin", false, "a </thin", ""),
            (
                "<think>a </think </think>b</think>",
                false,
                "a </think ",
                "b</think>",
            ),
            ("<think>a\n", false, "a\n", ""),
        ] {
            for size in 1..=answer.len().max(1) {
                let expected = (reasoning.to_owned(), text.to_owned());
                assert_eq!(
                    split(answer, is_begun, size),
                    expected,
                    "{answer:?} by {size}"
                );
            }
        }
    }

    #[test]
    fn templates_have_the_tags_that_they_contain() {
        let open = |source| ReasoningFormat::of_template(source).map(|format| format.open);
        assert_eq!(open("{{ content.split('</think>')[-1] }}"), Some("<think>"));
        assert_eq!(open("[THINK]{{ t }}[/THINK]"), Some("[THINK]"));
        assert_eq!(open("{{ messages }} <think>"), None);
        // Other templates have `<|end|>`, too.
        assert_eq!(open("<|assistant|>{{ t }}<|end|>"), None);
        let channels = "<|start|>assistant<|channel|>analysis<|message|>{{ t }}<|end|>";
        assert_eq!(open(channels), Some(HARMONY.call_preface[0]));
    }

    #[test]
    fn tags_and_markers_are_part_of_the_text() {
        let channels = "<|start|>assistant<|channel|>analysis<|message|>";
        for (source, token, is_tag) in [
            ("</think>", "<think>", true),
            ("</think>", "<|channel|>", false),
            (channels, "<|channel|>", true),
            (channels, "<|start|>", true),
            (channels, "<|end|>", true),
            (channels, "<|endoftext|>", false),
        ] {
            let format = ReasoningFormat::of_template(source).unwrap();
            assert_eq!(format.is_tag(token), is_tag, "{source}: {token}");
        }
    }

    #[test]
    fn constraints_begin_after_reasoning() {
        let tags = ReasoningFormat::of_template("</think>").unwrap();
        let channels = "<|start|>assistant<|channel|>analysis<|message|>";
        let channels = ReasoningFormat::of_template(channels).unwrap();
        let answer = HARMONY.answer_headers;
        for (format, tail, calls, before) in [
            (tags, "<think>\n", false, &["</think>"][..]),
            (tags, "<think>", true, &["</think>"]),
            (tags, "assistant", true, &[]),
            (channels, "<|start|>assistant", false, answer),
            (channels, "<|start|>assistant", true, &[]),
            (channels, "<|channel|>final<|message|>So", false, &[]),
        ] {
            let reasoning = Reasoning::new(format, tail.as_bytes());
            assert_eq!(reasoning.before_constraint(calls), before, "{tail}");
        }
    }
}
