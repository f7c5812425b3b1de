//! Recovers the merges of a byte-pair vocabulary from its ranks.
//!
//! tiktoken merges any two neighbours that form a token, the lowest such token first. A `tokenizer.json`
//! instead lists the pairs that may be merged. Within the bytes of a token, and as long as nothing is merged
//! across their ends, the order of merges does not depend on the context. A token is therefore always formed
//! from the same two parts: those left of its bytes just before the last merge. A token that its bytes never
//! merge into has no merge. It occurs only if a whole piece equals the token (`ignore_merges`).

use std::collections::HashMap;

/// Returns the two parts of each token, in the order of `tokens`, which must be sorted by rank.
pub(crate) fn recover<'a>(tokens: &[&'a [u8]]) -> Vec<(&'a [u8], &'a [u8])> {
    let ranks: HashMap<&[u8], usize> = tokens
        .iter()
        .enumerate()
        .map(|(rank, token)| (*token, rank))
        .collect();
    tokens
        .iter()
        .filter_map(|token| parts(token, &ranks))
        .collect()
}

fn parts<'a>(token: &'a [u8], ranks: &HashMap<&[u8], usize>) -> Option<(&'a [u8], &'a [u8])> {
    // The start of each part, and the end of the last one.
    let mut bounds: Vec<usize> = (0..=token.len()).collect();
    while bounds.len() > 3 {
        let pairs = bounds.windows(3).enumerate();
        let ranked = pairs.filter_map(|(at, pair)| {
            let rank = ranks.get(&token[pair[0]..pair[2]])?;
            Some((rank, at))
        });
        let (_, at) = ranked.min()?;
        bounds.remove(at + 1);
    }
    match bounds.as_slice() {
        [_, middle, _] => Some(token.split_at(*middle)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_split_into_the_parts_left_by_lower_ranks() {
        let tokens = ["a", "b", "c", "ab", "bc", "abc", "abab", "xyz"];
        let tokens = tokens.map(str::as_bytes);
        let expected: [(&[u8], &[u8]); 4] =
            [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"ab", b"ab")];
        assert_eq!(recover(&tokens), expected);
    }
}
