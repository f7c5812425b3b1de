//! Finds the best suggestion for a mistyped name.

/// Returns the candidate with the fewest edits from `name`, ignoring case, if they are at most a third of its
/// characters (at least one edit is allowed). An edit inserts, deletes or replaces a character, or swaps two
/// neighbours. Ties go to the first candidate.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (name.chars().count() / 3).max(1);
    let rated = candidates.into_iter().map(|candidate| {
        let edits = edits(&name.to_lowercase(), &candidate.to_lowercase());
        (edits, candidate)
    });
    let close = rated.filter(|(edits, _)| *edits <= allowed);
    close
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Returns the optimal string alignment distance of two strings.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // Each row has the distances from one prefix of `a` to all prefixes of `b`.
    let mut before = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                let swapped: &Vec<usize> = &before;
                least = least.min(swapped[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_single_edits() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("talks", "talks", 0),
            ("talk", "talks", 1),
            ("gtp2", "gpt2", 1),
            ("kitten", "sitting", 3),
            ("ab", "ba", 1),
            ("düne", "dune", 1),
        ] {
            assert_eq!(edits(a, b), expected, "{a} {b}");
            assert_eq!(edits(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn only_similar_names_are_suggested() {
        let names = ["gpt2", "cl100k", "byte"];
        assert_eq!(nearest("gtp2", names), Some("gpt2"));
        assert_eq!(nearest("GPT2", names), Some("gpt2"));
        assert_eq!(nearest("bytes", names), Some("byte"));
        assert_eq!(nearest("word", names), None);
        assert_eq!(nearest("", names), None);
    }
}
