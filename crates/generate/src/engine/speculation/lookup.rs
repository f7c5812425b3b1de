//! Drafts from a sequence's tokens, without a second model.

use crate::engine::draft::LONGEST_MATCH;

/// An earlier occurrence of a sequence's newest tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// Number of tokens in common.
    pub len: usize,
    /// The position after the occurrence.
    pub end: usize,
}

impl Match {
    /// The newest of the longest earlier occurrences of the last tokens, which have a length of at most 8.
    pub fn find(tokens: &[u32]) -> Option<Self> {
        let (last, _) = tokens.split_last()?;
        let mut found: Option<Self> = None;
        for end in (1..tokens.len()).rev() {
            if tokens[end - 1] != *last {
                continue;
            }
            let pairs = tokens[..end].iter().rev().zip(tokens.iter().rev());
            let common = pairs.take(LONGEST_MATCH).take_while(|(a, b)| a == b);
            let len = common.count();
            if found.is_none_or(|found| len > found.len) {
                found = Some(Self { len, end });
            }
            if len == LONGEST_MATCH {
                break;
            }
        }
        found
    }

    /// The `count` tokens after the occurrence. The text after it repeats if it is shorter.
    pub fn continuation(self, tokens: &[u32], count: usize) -> Vec<u32> {
        let after = tokens.get(self.end..).unwrap_or_default();
        after.iter().cycle().take(count).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(tokens: &[u32], count: usize) -> Option<(usize, Vec<u32>)> {
        let found = Match::find(tokens)?;
        Some((found.len, found.continuation(tokens, count)))
    }

    #[test]
    fn the_longest_match_is_continued() {
        // The newest `5 6` is a match of one token less than the older `4 5 6`.
        let tokens = [4, 5, 6, 7, 8, 1, 5, 6, 9, 4, 5, 6];
        assert_eq!(draft(&tokens, 2), Some((3, vec![7, 8])));
    }

    #[test]
    fn of_equal_matches_the_newest_is_continued() {
        assert_eq!(draft(&[1, 2, 1, 3, 1], 1), Some((1, vec![3])));
    }

    #[test]
    fn a_repeated_text_continues_to_repeat() {
        assert_eq!(draft(&[1, 2, 3, 2, 3], 5), Some((2, vec![2, 3, 2, 3, 2])));
        assert_eq!(draft(&[7; 20], 3), Some((8, vec![7; 3])));
    }

    #[test]
    fn a_new_token_has_no_match() {
        assert_eq!(draft(&[1, 2, 3], 4), None);
        assert_eq!(draft(&[1], 4), None);
        assert_eq!(draft(&[], 4), None);
    }
}
