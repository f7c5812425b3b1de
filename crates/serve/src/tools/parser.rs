//! Splits an answer into text and function calls during generation.

use super::format::{ArgumentsForm, WrittenId};
use super::tagged_parser::{Progress, TaggedArguments};
use super::types::CallFormat;
use crate::answer_delta::AnswerDelta;
use crate::markers::begun_marker;

/// Parses an answer, or a prefix of one, that follows the grammar of [`tool_grammar`](super::tool_grammar).
///
/// The arguments of a truncated answer are the beginning of a JSON object. An answer that violates the grammar ends where it
/// does so: the rest is dropped.
#[derive(Clone, Debug)]
pub(crate) struct ToolCallParser {
    format: CallFormat,
    state: State,
    /// Unparsed text.
    pending: String,
    /// True once part of the answer was parsed.
    begun: bool,
}

#[derive(Clone, Debug)]
enum State {
    /// Text before the opening marker.
    Text,
    /// The markup between the marker and the first call.
    First,
    /// The beginning of a call, up to its arguments.
    Name,
    /// Arguments that are a JSON object.
    Object(Nesting),
    /// Parameters between tags.
    Tagged(TaggedArguments),
    /// The end of a call.
    Close,
    /// The markup after a call.
    Next,
}

/// The nesting at a position in a JSON value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nesting {
    depth: usize,
    in_text: bool,
    escaped: bool,
}

impl ToolCallParser {
    /// Creates a parser at the beginning of an answer.
    pub fn new(format: impl Into<CallFormat>) -> Self {
        Self {
            format: format.into(),
            state: State::Text,
            pending: String::new(),
            begun: false,
        }
    }

    /// Parses the next text of the answer. Text that could be the beginning of a call is held back.
    pub fn push(&mut self, text: &str) -> Vec<AnswerDelta> {
        self.pending += text;
        let mut deltas = Vec::new();
        while self.step(&mut deltas) {}
        deltas
    }

    /// Ends the answer. Held-back text becomes part of it. A call with an incomplete name is dropped.
    pub fn finish(&mut self) -> Vec<AnswerDelta> {
        let rest = std::mem::take(&mut self.pending);
        match matches!(self.state, State::Text) && !rest.is_empty() {
            true => vec![AnswerDelta::Text(rest)],
            false => Vec::new(),
        }
    }

    /// Parses one element of the pending text. Returns false if more text is needed.
    fn step(&mut self, deltas: &mut Vec<AnswerDelta>) -> bool {
        match &mut self.state {
            State::Text => self.text(deltas),
            State::First => self.markup(self.format.first, State::Name),
            State::Name => self.name(deltas),
            State::Object(nesting) => {
                let end = nesting.end(&self.pending);
                let rest = self.pending.split_off(end.unwrap_or(self.pending.len()));
                let arguments = std::mem::replace(&mut self.pending, rest);
                add_arguments(deltas, arguments);
                if end.is_some() {
                    self.state = State::Close;
                }
                end.is_some()
            }
            State::Tagged(_) => self.tagged(deltas),
            State::Close => self.markup(self.format.after_arguments, State::Next),
            // Only the final markup follows the last call.
            State::Next => match self.format.next {
                Some(next) => self.markup(next, State::Name),
                None => false,
            },
        }
    }

    fn tagged(&mut self, deltas: &mut Vec<AnswerDelta>) -> bool {
        let (State::Tagged(arguments), ArgumentsForm::Tagged(tags)) =
            (&mut self.state, &self.format.arguments)
        else {
            return false;
        };
        let mut json = String::new();
        let progress = arguments.step(&self.format, tags, &mut self.pending, &mut json);
        add_arguments(deltas, json);
        match progress {
            Progress::Parsed => true,
            Progress::Waiting => false,
            Progress::Complete => {
                self.state = State::Close;
                true
            }
        }
    }

    /// Consumes `markup` at the beginning of the pending text. Returns false if it is incomplete.
    fn markup(&mut self, markup: &str, next: State) -> bool {
        let found = self.pending.starts_with(markup);
        if found {
            self.pending.drain(..markup.len());
            self.state = next;
        }
        found
    }

    fn text(&mut self, deltas: &mut Vec<AnswerDelta>) -> bool {
        let open = self.format.open;
        let (end, found) = if open.is_empty() {
            // In this format, a call is the whole answer.
            let found = !self.begun && self.pending.starts_with('{');
            (if found { 0 } else { self.pending.len() }, found)
        } else {
            match self.pending.find(open) {
                Some(at) => (at, true),
                None => (
                    self.pending.len() - begun_marker(&self.pending, open),
                    false,
                ),
            }
        };
        // Whitespace before a call belongs to its markup.
        let end = self.pending[..end].trim_end().len();
        if end > 0 {
            self.begun = true;
            let text: String = self.pending.drain(..end).collect();
            deltas.push(AnswerDelta::Text(text));
        }
        if found {
            let marker = self.pending.find(open).unwrap_or(0) + open.len();
            self.pending.drain(..marker);
            self.begun = true;
            self.state = State::First;
        }
        found
    }

    fn name(&mut self, deltas: &mut Vec<AnswerDelta>) -> bool {
        let Some((name, rest)) = self.beginning() else {
            return false;
        };
        let (name, rest) = (name.to_owned(), rest.to_owned());
        self.state = match self.format.arguments {
            ArgumentsForm::Object => State::Object(Nesting::default()),
            ArgumentsForm::Tagged(_) => State::Tagged(TaggedArguments::new(name.clone())),
        };
        deltas.push(AnswerDelta::Call { name });
        self.pending = rest;
        true
    }

    /// The function's name at the beginning of the pending text, and the text from its arguments on. `None` if more text is
    /// needed.
    fn beginning(&self) -> Option<(&str, &str)> {
        let mut rest = &*self.pending;
        if let Some(WrittenId::NumberBeforeName(mark)) = self.format.id {
            rest = word(rest)?.1.strip_prefix(mark)?;
        }
        let (name, mut rest) = word(rest)?;
        if let Some(WrittenId::ShortAfterName(mark)) = self.format.id {
            rest = word(rest.strip_prefix(mark)?)?.1;
        }
        let rest = rest.strip_prefix(self.format.before_arguments)?;
        Some((name, rest))
    }
}

/// The name or identifier at the beginning of `text`, and the rest. `None` if it may continue.
fn word(text: &str) -> Option<(&str, &str)> {
    let is_within = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let end = text.find(|c| !is_within(c)).filter(|end| *end > 0)?;
    text.split_at_checked(end)
}

fn add_arguments(deltas: &mut Vec<AnswerDelta>, arguments: String) {
    if !arguments.is_empty() {
        deltas.push(AnswerDelta::Arguments(arguments));
    }
}

impl Nesting {
    /// True outside of strings, objects and lists.
    pub fn is_outside(&self) -> bool {
        self.depth == 0 && !self.in_text
    }

    /// True within a string.
    pub fn is_in_text(&self) -> bool {
        self.in_text
    }

    /// Passes a byte. Returns true if it ends an object or a list that is in no other.
    pub fn pass(&mut self, byte: u8) -> bool {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_text => self.escaped = true,
            b'"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }

    /// The length up to the end of the current object in `text`. `None` if it does not end there.
    fn end(&mut self, text: &str) -> Option<usize> {
        let end = text.bytes().position(|byte| self.pass(byte));
        end.map(|end| end + 1)
    }
}

#[cfg(test)]
mod tests {
    use crate::tools::ToolFormat;
    use crate::tools::tests::parsed;

    fn format(open: &str) -> &'static ToolFormat {
        let template = match open {
            "" => "tools tool_calls \"parameters\": ".to_owned(),
            open => format!("tools {open}"),
        };
        ToolFormat::of_template(&template).unwrap()
    }

    #[track_caller]
    fn check(open: &str, answer: &str, text: &str, calls: &[(&str, &str)]) {
        let calls: Vec<_> = calls
            .iter()
            .map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned()))
            .collect();
        for size in 1..=answer.chars().count().max(1) {
            assert_eq!(
                parsed(&format(open).into(), answer, size),
                (text.to_owned(), calls.clone()),
                "in parts of {size}"
            );
        }
    }

    const MARKED: &str = "<tool_call>";

    #[test]
    fn marked_calls_are_separated_from_text() {
        check(MARKED, "Just text. <tool_", "Just text. <tool_", &[]);
        check(MARKED, "  spaces \n ", "  spaces \n ", &[]);
        check(MARKED, "a < b <t>  c", "a < b <t>  c", &[]);
        let call = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1, {\"b\": 2}]}}\n</tool_call>";
        let arguments = "{\"a\": [1, {\"b\": 2}]}";
        check(MARKED, call, "", &[("add", arguments)]);
        check(
            MARKED,
            &format!("I add: é\n\n{call}\n{call}"),
            "I add: é",
            &[("add", arguments), ("add", arguments)],
        );
    }

    #[test]
    fn markup_inside_strings_does_not_end_a_call() {
        let arguments = r#"{"a": "}\"]\\", "b": "<tool_call> </tool_call> \n}"}"#;
        let call =
            format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {arguments}}}\n</tool_call>");
        check(MARKED, &call, "", &[("f", arguments)]);
    }

    #[test]
    fn a_bare_call_is_the_whole_answer() {
        let call = "{\"name\": \"add\", \"parameters\": {\"a\": {}}}";
        check("", call, "", &[("add", "{\"a\": {}}")]);
        let text = format!("See {call}");
        check("", &text, &text, &[]);
    }

    #[test]
    fn mistral_calls_are_parsed() {
        let list = "[TOOL_CALLS] [";
        let one = r#"[TOOL_CALLS] [{"name": "add", "arguments": {"a": "]"}}]"#;
        check(list, one, "", &[("add", "{\"a\": \"]\"}")]);
        let two = r#"I add. [TOOL_CALLS] [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"b": [1]}}]"#;
        check(list, two, "I add.", &[("f", "{}"), ("g", "{\"b\": [1]}")]);
        check(list, "[TOOL_CALLS", "[TOOL_CALLS", &[]);
        let marked = "[TOOL_CALLS][ARGS]";
        let two = r#"é[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g-2[ARGS]{"a": "[ARGS]"}"#;
        check(
            marked,
            two,
            "é",
            &[("f", "{}"), ("g-2", "{\"a\": \"[ARGS]\"}")],
        );
        let with_id = "[TOOL_CALLS][CALL_ID][ARGS]";
        let call = r#"[TOOL_CALLS]f[CALL_ID]abc123XYZ[ARGS]{"a": 1}"#;
        check(with_id, call, "", &[("f", "{\"a\": 1}")]);
    }

    #[test]
    fn a_truncated_call_keeps_its_arguments() {
        let begun = "x <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"b";
        check(MARKED, begun, "x", &[("add", "{\"a\": \"b")]);
        check(MARKED, "x <tool_call>\n{\"name\": \"ad", "x", &[]);
        let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
        check(MARKED, &format!("{call}\n<tool_ca"), "", &[("f", "{}")]);
    }
}
