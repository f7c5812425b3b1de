//! Derives the beginning of a conversation and the end of an answer from a template's output.

use std::cmp::Reverse;

use serde_json::json;

use super::{ChatEncoder, Conversation};

/// A placeholder answer of only letters, which no template changes.
const ANSWER: &str = "emberlmanswer";
/// A placeholder question.
const QUESTION: &str = "emberlmquestion";

/// The tokens and strings that end an answer. The answer ends before the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stops {
    /// Token ids, in ascending order.
    pub tokens: Vec<u32>,
    /// Strings.
    pub strings: Vec<String>,
}

/// A special token of a tokenizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecialToken {
    /// The name.
    pub name: String,
    /// The id.
    pub id: u32,
}

impl ChatEncoder {
    /// Returns the special token that the template writes at the beginning of every conversation, such as
    /// `<|begin_of_text|>` or ChatML's `<|im_start|>`. `None` if it begins with other text or the tokenizer
    /// lacks that token.
    pub fn begins_with(&self) -> Option<SpecialToken> {
        let before = self.before_question()?;
        let names = self.ends.iter().filter(|name| !name.is_empty());
        let names = names.filter(|name| before.starts_with(name.as_str()));
        let name = names.max_by_key(|name| name.len())?;
        Some(SpecialToken {
            id: self.tokenizer.special_id(name)?,
            name: name.clone(),
        })
    }

    /// Returns the tokens and strings that end an answer:
    ///
    /// - The first special token that the template writes after an assistant's message, such as `<|im_end|>`,
    ///   `<|eot_id|>` or `</s>`: by its id, or by its name if the tokenizer lacks it.
    /// - If there is none, the first special token before the user's next message.
    /// - If there is none either, the text between the two messages, such as a heading on a separate line.
    /// - In every case, the tokenizer's end of text.
    pub fn stops(&self) -> Stops {
        let mut stops = Stops {
            tokens: self.end_of_text.into_iter().collect(),
            strings: Vec::new(),
        };
        let after = [false, true].map(|continues| self.after_answer(continues));
        let mut written = after.iter().flatten();
        match (written.find_map(|text| self.first_special(text)), &after[1]) {
            (Some(name), _) => match self.tokenizer.token_id(name) {
                Some(id) => stops.tokens.push(id),
                None => stops.strings.push(name.to_owned()),
            },
            (None, Some(between)) => stops.strings.extend(heading(between)),
            (None, None) => {}
        }
        stops.tokens.sort_unstable();
        stops.tokens.dedup();
        stops
    }

    /// Returns the text after an answer: up to the conversation's end, or up to the user's next message. `None`
    /// if the template rejects such a conversation or changes the answer.
    fn after_answer(&self, continues: bool) -> Option<String> {
        let text = self.rendered(continues)?;
        let (_, after) = text.split_once(ANSWER)?;
        Some(match continues {
            true => after.split_once(QUESTION)?.0.to_owned(),
            false => after.to_owned(),
        })
    }

    /// Returns the template's output before the user's first message.
    fn before_question(&self) -> Option<String> {
        let text = self.rendered(false)?;
        let (before, _) = text.split_once(QUESTION)?;
        Some(before.to_owned())
    }

    /// Renders a question and an answer, followed by another question if the conversation `continues`.
    fn rendered(&self, continues: bool) -> Option<String> {
        let mut messages = vec![
            json!({"role": "user", "content": QUESTION}),
            json!({"role": "assistant", "content": ANSWER}),
        ];
        if continues {
            messages.push(messages[0].clone());
        }
        let conversation =
            Conversation::from_json(&json!({"messages": messages}).to_string()).ok()?;
        self.template.render(&conversation, false).ok()
    }

    /// Returns the special token's name that comes first in `text`. Of several at one position, the longest.
    fn first_special(&self, text: &str) -> Option<&str> {
        let names = self.ends.iter().filter(|name| !name.is_empty());
        let found = names.filter_map(|name| Some((text.find(name)?, Reverse(name.len()), name)));
        found.min().map(|(.., name)| name.as_str())
    }
}

/// Returns the separator between an answer and the next message without surrounding white space, which models
/// do not reproduce reliably. A leading line break is kept.
fn heading(between: &str) -> Option<String> {
    let text = between.trim();
    let blank = &between[..between.len() - between.trim_start().len()];
    let line_break = if blank.contains('\n') { "\n" } else { "" };
    (!text.is_empty()).then(|| format!("{line_break}{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_keeps_the_beginning_of_its_line() {
        assert_eq!(heading("\n\n### User:\n"), Some("\n### User:".to_owned()));
        assert_eq!(heading("; user: "), Some("; user:".to_owned()));
        assert_eq!(heading(" \n "), None);
    }
}
