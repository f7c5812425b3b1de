//! Shows an answer while it is generated: its reasoning apart from the text, and calls of functions.

use emberlm_serve::{AnswerDelta, AnswerParser};

use super::answer_content::{AnswerContent, call_heading};
use crate::console;

/// The form in which reasoning is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningStyle {
    /// Dimmed, in a terminal with styles.
    Dimmed,
    /// Between two lines of text, in other terminals.
    Marked,
    /// Left out: a file or a program receives the text only.
    Hidden,
}

/// Text to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    Plain(String),
    Dimmed(String),
}

/// A kind of text that is shown in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Reasoning,
    Text,
    Call,
}

/// Splits an answer into segments to print, and collects its content.
pub struct AnswerDisplay {
    parser: AnswerParser,
    style: ReasoningStyle,
    /// The block of the last segment.
    block: Option<Block>,
    content: AnswerContent,
}

impl ReasoningStyle {
    /// The form for stdout.
    pub fn of_stdout() -> Self {
        match console::stdout_is_terminal() {
            true if console::stdout_is_styled() => Self::Dimmed,
            true => Self::Marked,
            false => Self::Hidden,
        }
    }
}

impl AnswerDisplay {
    pub fn new(parser: AnswerParser, style: ReasoningStyle) -> Self {
        Self {
            parser,
            style,
            block: None,
            content: AnswerContent::default(),
        }
    }

    /// Processes the next text of the answer.
    pub fn push(&mut self, text: &str) -> Vec<Segment> {
        let deltas = self.parser.push(text);
        self.segments(&deltas)
    }

    /// Ends the answer.
    pub fn finish(mut self) -> (Vec<Segment>, AnswerContent) {
        let deltas = self.parser.finish();
        (self.segments(&deltas), self.content)
    }

    fn segments(&mut self, deltas: &[AnswerDelta]) -> Vec<Segment> {
        let mut segments = Vec::new();
        for delta in deltas {
            self.content.add(delta);
            self.show(delta, &mut segments);
        }
        segments
    }

    fn show(&mut self, delta: &AnswerDelta, segments: &mut Vec<Segment>) {
        let heading;
        let (block, mut text) = match delta {
            AnswerDelta::Reasoning(_) if self.style == ReasoningStyle::Hidden => return,
            AnswerDelta::Reasoning(text) => (Block::Reasoning, &**text),
            AnswerDelta::Text(text) => (Block::Text, &**text),
            AnswerDelta::Call { name } => {
                heading = call_heading(name);
                (Block::Call, &*heading)
            }
            AnswerDelta::Arguments(text) => (Block::Call, &**text),
        };
        let begins = self.block != Some(block) || matches!(delta, AnswerDelta::Call { .. });
        if begins {
            if self.block.is_some() {
                // The separator has the line breaks.
                text = text.trim_start_matches(['\n', '\r']);
            }
            if text.is_empty() {
                return;
            }
            let separator = self.separator(block);
            if !separator.is_empty() {
                segments.push(Segment::Plain(separator));
            }
            self.block = Some(block);
        }
        let is_dimmed = block == Block::Reasoning && self.style == ReasoningStyle::Dimmed;
        let segment = if is_dimmed {
            Segment::Dimmed
        } else {
            Segment::Plain
        };
        segments.push(segment(text.to_owned()));
    }

    /// The text between the current block and the next one.
    fn separator(&self, next: Block) -> String {
        let is_marked = self.style == ReasoningStyle::Marked;
        let end = match self.block {
            None => "",
            Some(Block::Reasoning) if is_marked => "\n…done thinking.\n\n",
            Some(_) => "\n\n",
        };
        let begin = match next {
            Block::Reasoning if is_marked => "Thinking…\n",
            _ => "",
        };
        [end, begin].concat()
    }
}

#[cfg(test)]
mod tests {
    use emberlm_tokenizer::chat::ChatTemplate;
    use emberlm_tokenizer::{Tokenizer, TokenizerKind};

    use super::*;

    const CHANNELS: &str = "<|start|>assistant<|channel|>analysis<|message|>";
    const TAGS: &str = "</think>";

    /// The text that is printed for an answer which arrives in single characters. Dimmed text is between parentheses.
    fn shown(template: &str, answer: &str, style: ReasoningStyle) -> String {
        let template = ChatTemplate::parse("template", template).unwrap();
        let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        let prompt: Vec<u32> = b"<|start|>assistant".iter().map(|&id| id.into()).collect();
        let parser = AnswerParser::for_prompt(&template, &tokenizer, &prompt);
        let mut display = AnswerDisplay::new(parser, style);
        let mut segments = Vec::new();
        for piece in answer.split_inclusive(|_| true) {
            segments.extend(display.push(piece));
        }
        segments.extend(display.finish().0);
        let texts = segments.into_iter().map(|segment| match segment {
            Segment::Plain(text) => text,
            Segment::Dimmed(text) => format!("({text})"),
        });
        texts.collect::<String>().replace(")(", "")
    }

    #[track_caller]
    fn check(template: &str, answer: &str, expected: [&str; 3]) {
        let styles = [
            ReasoningStyle::Dimmed,
            ReasoningStyle::Marked,
            ReasoningStyle::Hidden,
        ];
        assert_eq!(styles.map(|style| shown(template, answer, style)), expected);
    }

    #[test]
    fn reasoning_is_apart_from_the_text() {
        check(
            TAGS,
            "<think>\na\nb\n</think>\n\nyes",
            [
                "(a\nb)\n\nyes",
                "Thinking…\na\nb\n…done thinking.\n\nyes",
                "yes",
            ],
        );
        check(
            CHANNELS,
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>yes<|return|>",
            ["(a)\n\nyes", "Thinking…\na\n…done thinking.\n\nyes", "yes"],
        );
    }

    #[test]
    fn reasoning_may_follow_a_text() {
        check(
            CHANNELS,
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>\
             <|start|>assistant<|channel|>analysis<|message|>c<|end|><|start|>assistant<|channel|>final<|message|>d",
            [
                "(a)\n\nb\n\n(c)\n\nd",
                "Thinking…\na\n…done thinking.\n\nb\n\nThinking…\nc\n…done thinking.\n\nd",
                "b\n\nd",
            ],
        );
    }

    #[test]
    fn calls_are_shown_with_their_function() {
        check(
            CHANNELS,
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f \
             <|constrain|>json<|message|>{\"b\": 1}<|call|><|start|>assistant to=functions.g<|message|>{}",
            [
                "(a)\n\nCall of f: {\"b\": 1}\n\nCall of g: {}",
                "Thinking…\na\n…done thinking.\n\nCall of f: {\"b\": 1}\n\nCall of g: {}",
                "Call of f: {\"b\": 1}\n\nCall of g: {}",
            ],
        );
    }

    #[test]
    fn other_answers_are_shown_as_they_are() {
        for answer in ["\n\na\n", "a <think>b</think>", ""] {
            check(TAGS, answer, [answer; 3]);
        }
        let template = "{{ messages }}";
        let answer = "<think>a</think><|channel|>final<|message|>b";
        check(template, answer, [answer; 3]);
        // An answer that is cut off.
        check(TAGS, "<think>a", ["(a)", "Thinking…\na", ""]);
    }
}
