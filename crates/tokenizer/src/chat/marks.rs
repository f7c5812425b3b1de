//! Characters that show in a rendered text what came from where.
//!
//! A template is given contents in which a barrier stands inside of each special token's name (`barriers`), and it puts marks
//! around what the assistant has written. All are private-use characters that occur in neither the record nor the template,
//! so that taking them out again gives the very text that would have been rendered without them, and nothing that a record
//! says can be taken for them.

use std::collections::BTreeSet;
use std::ops::Range;

use minijinja::Value;
use minijinja::value::ValueKind;

use super::ChatError;

/// The characters that are used for one record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// Before what the assistant has written.
    pub begin: char,
    /// After it.
    pub end: char,
    /// Inside of a special token's name that a record holds.
    pub barrier: char,
}

/// A rendered text without its marks.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Unmarked {
    /// The text.
    pub text: String,
    /// The text between the marks of the assistant, in bytes.
    pub spans: Vec<Range<usize>>,
    /// The places of barriers, in bytes, ascending.
    pub barriers: Vec<usize>,
}

impl Marks {
    /// Marks that are not among `used`.
    pub fn avoiding(used: &BTreeSet<char>) -> Result<Self, ChatError> {
        let mut free = ('\u{F0000}'..='\u{FFFFD}').filter(|mark| !used.contains(mark));
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

    /// Takes the marks out of `text`; none where they do not come in pairs.
    pub fn take_out(&self, text: &str) -> Option<Unmarked> {
        let mut unmarked = Unmarked::default();
        let mut open = Vec::new();
        for character in text.chars() {
            let at = unmarked.text.len();
            if character == self.begin {
                open.push(at);
            } else if character == self.end {
                let start = open.pop()?;
                // What lies within another is a part of that one.
                if open.is_empty() {
                    unmarked.spans.push(start..at);
                }
            } else if character == self.barrier {
                unmarked.barriers.push(at);
            } else {
                unmarked.text.push(character);
            }
        }
        open.is_empty().then_some(unmarked)
    }
}

/// Adds the private-use characters that marks are chosen from and that occur in `text`.
pub(crate) fn note_used(text: &str, used: &mut BTreeSet<char>) {
    used.extend(
        text.chars()
            .filter(|c| ('\u{F0000}'..='\u{FFFFD}').contains(c)),
    );
}

/// Returns true if `text` is a word, as the fields' names and roles are that templates know.
pub(crate) fn is_word(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// `value` with `change` done to every text in it, and to keys that are not words.
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
    fn marks_are_taken_out_and_remembered() {
        let Marks {
            begin,
            end,
            barrier,
        } = marks();
        let text = format!("é{begin}a{begin}b{end}c{end}{begin}{end}<{barrier}|x|>");
        let unmarked = marks().take_out(&text).unwrap();
        assert_eq!(unmarked.text, "éabc<|x|>");
        assert_eq!(unmarked.spans, [2..5, 5..5]);
        assert_eq!(unmarked.barriers, [6]);
        assert_eq!(marks().take_out(&format!("{begin}a")), None);
        assert_eq!(marks().take_out(&format!("a{end}")), None);
    }

    #[test]
    fn marks_are_none_of_the_characters_in_use() {
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
