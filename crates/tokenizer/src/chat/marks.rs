//! Characters that show in a rendered text what came from where.
//!
//! A template is given contents in which a *barrier* stands inside of each special token's name, and it puts marks
//! around what the assistant has written. All are private-use characters that occur in neither the record nor the template,
//! so that taking them out again gives the very text that would have been rendered without them, and nothing that a record
//! says can be taken for them. A special token's name that a barrier lies in came from a record and is plain text.
//!
//! So that names cannot be put together from parts either, a content that ends with the beginning of a name gets a barrier
//! there too.

use std::collections::BTreeSet;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
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
    /// What stands between the marks of the assistant, in bytes.
    pub spans: Vec<Range<usize>>,
    /// Where barriers were, in bytes, ascending.
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
                if open.is_empty() && start < at {
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

/// Where special tokens' names occur in texts.
#[derive(Debug)]
pub(crate) struct Names {
    names: Vec<String>,
    automaton: Option<AhoCorasick>,
}

impl Names {
    /// Looks for `names`.
    pub fn new(names: Vec<String>) -> Self {
        let builder = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&names);
        Self {
            automaton: builder.ok(),
            names,
        }
    }

    /// `text` with a barrier in every name, overlapping ones too, and in a beginning of one at its end.
    pub fn bar(&self, text: &str, barrier: char) -> String {
        let mut places = BTreeSet::new();
        if let Some(automaton) = &self.automaton {
            places.extend(automaton.find_overlapping_iter(text).map(|found| {
                let name = &text[found.range()];
                found.start() + inside(name)
            }));
        }
        let end = text.trim_end();
        for name in &self.names {
            let cuts = name.char_indices().skip(1).map(|(at, _)| at);
            let cuts = cuts.filter(|&cut| end.ends_with(&name[..cut]));
            places.extend(cuts.map(|cut| end.len() - cut + inside(name)));
        }
        let mut barred = String::with_capacity(text.len() + 4 * places.len());
        let mut done = 0;
        for place in places {
            barred.push_str(&text[done..place]);
            barred.push(barrier);
            done = place;
        }
        barred.push_str(&text[done..]);
        barred
    }
}

/// Where a barrier stands in a name: after its first character, or before it where it is the only one.
fn inside(name: &str) -> usize {
    let first = name.chars().next().map_or(0, char::len_utf8);
    if first == name.len() { 0 } else { first }
}

/// Whether one of `barriers`, which ascend, lies inside of the name at `range` of `text`.
pub(crate) fn is_barred(text: &str, range: &Range<usize>, barriers: &[usize]) -> bool {
    let place = range.start + inside(&text[range.clone()]);
    let next = barriers.partition_point(|&barrier| barrier < place);
    barriers
        .get(next)
        .is_some_and(|&barrier| barrier < range.end)
}

/// Whether `text` is a word, as the fields' names and roles are that templates know.
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
        assert_eq!(unmarked.spans, [2..5]);
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

    #[test]
    fn names_and_their_beginnings_at_the_end_are_barred() {
        let names = Names::new(
            ["<|end|>", "<|endless|>", "#", "d|><"]
                .map(str::to_owned)
                .to_vec(),
        );
        let bar = |text| names.bar(text, '!');
        assert_eq!(bar("a <|end|> b"), "a <!|end|> b");
        assert_eq!(bar("<|end|><|endless|>"), "<!|end!|><!|endless|>");
        assert_eq!(bar("x#y"), "x!#y");
        assert_eq!(bar("<|endl \n"), "<!|endl \n");
        assert_eq!(bar("a <<"), "a <<!");
        assert_eq!(Names::new(vec!["aab".to_owned()]).bar("aa", '!'), "a!a!");
        assert_eq!(bar("<|end |>"), "<|end |>");
        assert_eq!(Names::new(Vec::new()).bar("<|end|>", '!'), "<|end|>");
    }

    #[test]
    fn a_barrier_counts_inside_of_a_name_only() {
        let text = "ab<|x|>c#";
        assert!(is_barred(text, &(2..7), &[3]));
        assert!(is_barred(text, &(2..7), &[0, 6, 9]));
        assert!(!is_barred(text, &(2..7), &[2, 7]));
        assert!(is_barred(text, &(8..9), &[8]));
        assert!(!is_barred(text, &(8..9), &[7, 9]));
    }
}
