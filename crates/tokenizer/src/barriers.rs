//! Barriers: places in a text that no special token's name may be read across.
//!
//! Where a text is put together from markup and from what others have written, a barrier is put inside of every special token's
//! name that the others wrote, and is found again in the whole. A name that a barrier lies in is plain text. So that names
//! cannot be put together from parts either, a text that ends with the beginning of a name gets a barrier there too.

use std::collections::BTreeSet;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

/// The places where special tokens' names occur in texts.
#[derive(Debug)]
pub(crate) struct Names {
    automaton: Option<AhoCorasick>,
    /// The names, sorted.
    sorted: Vec<String>,
    /// The bytes of the longest of them.
    longest: usize,
}

impl Names {
    /// Looks for `names`.
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

    /// `text` with a barrier in every name, overlapping ones too, and in a beginning of one at its end.
    pub fn bar(&self, text: &str, barrier: char) -> String {
        let mut places = BTreeSet::new();
        if let Some(automaton) = &self.automaton {
            let found = automaton.find_overlapping_iter(text);
            places.extend(found.map(|name| name.start() + inside(&text[name.range()])));
        }
        let end = text.trim_end();
        let tails = end.char_indices().rev();
        let tails = tails.take_while(|(start, _)| end.len() - start < self.longest);
        let begun = tails.filter(|(start, _)| self.begins_a_name(&end[*start..]));
        places.extend(begun.map(|(start, first)| start + first.len_utf8()));
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

    /// Returns true if a name is longer than `text` and begins with it.
    fn begins_a_name(&self, text: &str) -> bool {
        let after = self.sorted.partition_point(|name| name.as_str() <= text);
        let next = self.sorted.get(after);
        next.is_some_and(|name| name.starts_with(text))
    }
}

/// The place of a barrier in a name: after its first character, or before it where it is the only one.
fn inside(name: &str) -> usize {
    let first = name.chars().next().map_or(0, char::len_utf8);
    if first == name.len() { 0 } else { first }
}

/// Returns true if one of `barriers`, which ascend, lies inside of the name at `range` of `text`.
pub(crate) fn is_barred(text: &str, range: &Range<usize>, barriers: &[usize]) -> bool {
    let place = range.start + inside(&text[range.clone()]);
    let next = barriers.partition_point(|&barrier| barrier < place);
    barriers
        .get(next)
        .is_some_and(|&barrier| barrier < range.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_their_beginnings_at_the_end_are_barred() {
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
    fn a_barrier_counts_inside_of_a_name_only() {
        let text = "ab<|x|>c#";
        assert!(is_barred(text, &(2..7), &[3]));
        assert!(is_barred(text, &(2..7), &[0, 6, 9]));
        assert!(!is_barred(text, &(2..7), &[2, 7]));
        assert!(is_barred(text, &(8..9), &[8]));
        assert!(!is_barred(text, &(8..9), &[7, 9]));
    }
}
