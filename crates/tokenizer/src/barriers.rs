//! Barriers: marks in a text that keep untrusted parts from being read as special tokens.
//!
//! A rendered text combines trusted markup with untrusted content. A barrier character is inserted into every
//! special token's name in the untrusted content. A name that contains a barrier in the final text is plain
//! text. A barrier is also inserted where untrusted content ends with a prefix of a name, so that no name can
//! be assembled across parts.

use std::collections::BTreeSet;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

/// Finds special tokens' names in texts.
#[derive(Debug)]
pub(crate) struct Names {
    automaton: Option<AhoCorasick>,
    /// The names, sorted.
    sorted: Vec<String>,
    /// The length of the longest name in bytes.
    longest: usize,
}

impl Names {
    /// Creates a finder of `names`.
    pub fn new(names: &[String]) -> Self {
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(names);
        let mut sorted = names.to_vec();
        sorted.sort_unstable();
        Self {
            automaton: automaton.ok(),
            sorted,
            longest: names.iter().map(String::len).max().unwrap_or(0),
        }
    }

    /// Returns `text` with a barrier in every name, including overlapping ones, and in a prefix of a name at
    /// its end.
    pub fn bar(&self, text: &str, barrier: char) -> String {
        let mut positions = BTreeSet::new();
        if let Some(automaton) = &self.automaton {
            let found = automaton.find_overlapping_iter(text);
            positions.extend(found.map(|name| name.start() + barrier_offset(&text[name.range()])));
        }
        let end = text.trim_end();
        let tails = end.char_indices().rev();
        let tails = tails.take_while(|(start, _)| end.len() - start < self.longest);
        let begun = tails.filter(|(start, _)| self.begins_a_name(&end[*start..]));
        positions.extend(begun.map(|(start, first)| start + first.len_utf8()));
        let mut barred = String::with_capacity(text.len() + 4 * positions.len());
        let mut done = 0;
        for position in positions {
            barred.push_str(&text[done..position]);
            barred.push(barrier);
            done = position;
        }
        barred.push_str(&text[done..]);
        barred
    }

    /// Returns true if `text` is a proper prefix of a name.
    fn begins_a_name(&self, text: &str) -> bool {
        let after = self.sorted.partition_point(|name| name.as_str() <= text);
        let next = self.sorted.get(after);
        next.is_some_and(|name| name.starts_with(text))
    }
}

/// Returns the barrier's offset in a name: after the first character, or before it if it is the only one.
fn barrier_offset(name: &str) -> usize {
    let first = name.chars().next().map_or(0, char::len_utf8);
    if first == name.len() { 0 } else { first }
}

/// Returns true if one of `barriers`, which must be ascending, is within the name at `range` of `text`.
pub(crate) fn is_barred(text: &str, range: &Range<usize>, barriers: &[usize]) -> bool {
    let position = range.start + barrier_offset(&text[range.clone()]);
    let next = barriers.partition_point(|&barrier| barrier < position);
    barriers
        .get(next)
        .is_some_and(|&barrier| barrier < range.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_trailing_prefixes_are_barred() {
        let names = Names::new(&["<|end|>", "<|endless|>", "#", "d|><"].map(str::to_owned));
        let bar = |text| names.bar(text, '!');
        assert_eq!(bar("a <|end|> b"), "a <!|end|> b");
        assert_eq!(bar("<|end|><|endless|>"), "<!|end!|><!|endless|>");
        assert_eq!(bar("x#y"), "x!#y");
        assert_eq!(bar("<|endl \n"), "<!|endl \n");
        assert_eq!(bar("a <<"), "a <<!");
        assert_eq!(Names::new(&["aab".to_owned()]).bar("aa", '!'), "a!a!");
        assert_eq!(bar("<|end |>"), "<|end |>");
        assert_eq!(Names::new(&[]).bar("<|end|>", '!'), "<|end|>");
    }

    #[test]
    fn a_barrier_counts_only_within_a_name() {
        let text = "ab<|x|>c#";
        assert!(is_barred(text, &(2..7), &[3]));
        assert!(is_barred(text, &(2..7), &[0, 6, 9]));
        assert!(!is_barred(text, &(2..7), &[2, 7]));
        assert!(is_barred(text, &(8..9), &[8]));
        assert!(!is_barred(text, &(8..9), &[7, 9]));
    }
}
