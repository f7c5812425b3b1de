//! The beginning of a conversation and the end of an answer, derived from the template's output.

use std::cmp::Reverse;

use serde_json::json;

use super::{ChatEncoder, Conversation};

/// The placeholder of an answer: only letters, which no template changes.
const ANSWER: &str = "emberlmanswer";
/// Stands for the question after it.
const QUESTION: &str = "emberlmquestion";

/// The endings of an answer: it is over before the first of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stops {
    /// Ids, ascending.
    pub tokens: Vec<u32>,
    /// Texts.
    pub strings: Vec<String>,
}

/// A special token of a tokenizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecialToken {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: u32,
}

impl ChatEncoder {
    /// The special token that the template writes at the beginning of every conversation, such as `<|begin_of_text|>` or
    /// ChatML's `<|im_start|>`. `None` where it begins with other text, or where the tokenizer lacks that token.
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

    /// The tokens that end an answer:
    ///
    /// - the first special token that the template writes after an assistant's message, such as `<|im_end|>`, `<|eot_id|>` or
    ///   `</s>`: by its id, or by its name where the tokenizer has no such token;
    /// - where it writes none there, the first one that it writes before the user's next message;
    /// - where it writes none at all, the text between the two, such as a heading on a separate line;
    /// - in addition, the tokenizer's end of text.
    pub fn stops(&self) -> Stops {
        let mut stops = Stops {
            tokens: self.end_of_text.into_iter().collect(),
            strings: Vec::new(),
        };
        let after = [false, true].map(|goes_on| self.after_answer(goes_on));
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

    /// The text that the template writes after an answer: at a conversation's end, or before the user's next message. None where it
    /// does not take such a conversation or does not show the answer as it is.
    fn after_answer(&self, goes_on: bool) -> Option<String> {
        let text = self.rendered(goes_on)?;
        let (_, after) = text.split_once(ANSWER)?;
        Some(match goes_on {
            true => after.split_once(QUESTION)?.0.to_owned(),
            false => after.to_owned(),
        })
    }

    /// The template's output before the user's first message.
    fn before_question(&self) -> Option<String> {
        let text = self.rendered(false)?;
        let (before, _) = text.split_once(QUESTION)?;
        Some(before.to_owned())
    }

    /// A question and its answer as the template has them, with another question if it continues.
    fn rendered(&self, goes_on: bool) -> Option<String> {
        let mut messages = vec![
            json!({"role": "user", "content": QUESTION}),
            json!({"role": "assistant", "content": ANSWER}),
        ];
        if goes_on {
            messages.push(messages[0].clone());
        }
        let conversation =
            Conversation::from_json(&json!({"messages": messages}).to_string()).ok()?;
        self.template.render(&conversation, false).ok()
    }

    /// The special token's name that comes first in `text`; of several at one place the longest.
    fn first_special(&self, text: &str) -> Option<&str> {
        let names = self.ends.iter().filter(|name| !name.is_empty());
        let found = names.filter_map(|name| Some((text.find(name)?, Reverse(name.len()), name)));
        found.min().map(|(.., name)| name.as_str())
    }
}

/// The separator of an answer and the next message, without the blanks around it: models are not sure of those. A line's
/// beginning stays one.
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
