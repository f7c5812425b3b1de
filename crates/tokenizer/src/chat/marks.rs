//! Mark characters that identify the origin of the parts of a rendered text.
//!
//! Contents are passed to a template with a barrier inside each special token's name (`barriers`), and the
//! template puts marks around the assistant's answers. All marks are private-use characters that occur in
//! neither the record nor the template. Removing them therefore gives exactly the text that would have been
//! rendered without them, and no content of a record can be mistaken for a mark.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use minijinja::Value;
use minijinja::value::ValueKind;

use super::ChatError;

/// The characters that can be marks.
const CANDIDATES: RangeInclusive<char> = '\u{F0000}'..='\u{FFFFD}';

/// The first byte of each of them in UTF-8. Few texts have one, and a byte is found faster than a character.
const FIRST_BYTE: u8 = 0xF3;

/// The mark characters of one record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// Precedes an assistant's answer.
    pub begin: char,
    /// Follows an assistant's answer.
    pub end: char,
    /// Within a special token's name in a record.
    pub barrier: char,
}

/// A rendered text without its marks.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Unmarked {
    /// The text.
    pub text: String,
    /// The byte ranges of the assistant's answers.
    pub spans: Vec<Range<usize>>,
    /// The byte offsets of barriers, in ascending order.
    pub barriers: Vec<usize>,
}

impl Marks {
    /// Chooses marks that are not in `used`.
    pub fn avoiding(used: &BTreeSet<char>) -> Result<Self, ChatError> {
        let mut free = CANDIDATES.filter(|mark| !used.contains(mark));
        match (free.next(), free.next(), free.next()) {
            (Some(begin), Some(end), Some(barrier)) => Ok(Self {
                begin,
                end,
                barrier,
            }),
            _ => Err(ChatError::record(
                "messages",
                "use up the private-use characters from U+F0000 to U+FFFFD, of which three must be left",
            )),
        }
    }

    /// Removes the marks from `text`. Returns `None` if they are not paired.
    pub fn remove_from(&self, text: &str) -> Option<Unmarked> {
        let mut unmarked = Unmarked::default();
        let mut open = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.bytes().position(|byte| byte == FIRST_BYTE) {
            unmarked.text.push_str(&rest[..at]);
            let character = rest[at..].chars().next()?;
            rest = &rest[at + character.len_utf8()..];
            let at = unmarked.text.len();
            if character == self.begin {
                open.push(at);
            } else if character == self.end {
                let start = open.pop()?;
                // Nested spans are part of the outer one.
                if open.is_empty() {
                    unmarked.spans.push(start..at);
                }
            } else if character == self.barrier {
                unmarked.barriers.push(at);
            } else {
                unmarked.text.push(character);
            }
        }
        unmarked.text.push_str(rest);
        open.is_empty().then_some(unmarked)
    }
}

/// Adds the private-use characters in `text` that could be chosen as marks.
pub(crate) fn note_used(text: &str, used: &mut BTreeSet<char>) {
    if text.as_bytes().contains(&FIRST_BYTE) {
        used.extend(text.chars().filter(|c| CANDIDATES.contains(c)));
    }
}

/// Returns true if `text` is a word, like the field names and roles that templates compare.
pub(crate) fn is_word(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// Applies `change` to every string in `value`, and to keys that are not words.
pub(crate) fn map_texts(value: &Value, change: &mut dyn FnMut(&str) -> String) -> Value {
    if let Some(text) = value.as_str() {
        return Value::from(change(text));
    }
    match value.kind() {
        ValueKind::Seq => {
            let items = value.try_iter().into_iter().flatten();
            items.map(|item| map_texts(&item, change)).collect()
        }
        ValueKind::Map => {
            let keys = value.try_iter().into_iter().flatten();
            let pairs = keys.map(|key| {
                let item = value.get_item(&key).unwrap_or_default();
                let named = key.as_str().is_some_and(is_word);
                let key = if named { key } else { map_texts(&key, change) };
                (key, map_texts(&item, change))
            });
            Value::from_pairs(pairs.collect::<Vec<_>>())
        }
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks() -> Marks {
        Marks::avoiding(&BTreeSet::new()).unwrap()
    }

    #[test]
    fn marks_are_removed_and_their_positions_returned() {
        let Marks {
            begin,
            end,
            barrier,
        } = marks();
        let text = format!("é{begin}a{begin}b{end}c{end}{begin}{end}<{barrier}|x|>");
        let unmarked = marks().remove_from(&text).unwrap();
        assert_eq!(unmarked.text, "éabc<|x|>");
        assert_eq!(unmarked.spans, [2..5, 5..5]);
        assert_eq!(unmarked.barriers, [6]);
        assert_eq!(marks().remove_from(&format!("{begin}a")), None);
        assert_eq!(marks().remove_from(&format!("a{end}")), None);
    }

    /// U+C0000 begins with the same byte as a mark.
    #[test]
    fn other_characters_stay() {
        let text = "\u{C0000}a\u{FFFFF}\u{F0005}";
        let unmarked = marks().remove_from(text).unwrap();
        assert_eq!(unmarked.text, text);
        let mut used = BTreeSet::new();
        note_used(text, &mut used);
        assert_eq!(used, BTreeSet::from(['\u{F0005}']));
    }

    #[test]
    fn marks_avoid_used_characters() {
        let mut used = BTreeSet::new();
        note_used("a\u{F0000}b\u{F0002}\u{E000}", &mut used);
        let marks = Marks::avoiding(&used).unwrap();
        assert_eq!(
            [marks.begin, marks.end, marks.barrier],
            ['\u{F0001}', '\u{F0003}', '\u{F0004}']
        );
        let all = ('\u{F0000}'..='\u{FFFFD}').collect();
        assert!(Marks::avoiding(&all).is_err());
    }
}
