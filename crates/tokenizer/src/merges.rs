//! The merges of a byte-pair vocabulary, from its ranks.
//!
//! tiktoken merges whatever two neighbours make a token together, the lowest such token first; a `tokenizer.json` lists
//! which two may be merged. Within the bytes of a token, and as long as nothing is merged across their ends, the order of
//! merges does not depend on what is around them. So the two neighbours that form a token are always the same: the two
//! that remain of its bytes just before the last merge. A token that its bytes never merge to has no merge at
//! all, and is only ever made of a piece that is the token as a whole (`ignore_merges`).

use std::collections::HashMap;

/// Each token's two parts, in the order of the tokens, which are given by rank.
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
    // Where each part begins, and where the last one ends.
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
    fn a_token_is_made_of_what_lower_ranks_leave_of_it() {
        let tokens = ["a", "b", "c", "ab", "bc", "abc", "abab", "xyz"];
        let tokens = tokens.map(str::as_bytes);
        let expected: [(&[u8], &[u8]); 4] =
            [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"ab", b"ab")];
        assert_eq!(recover(&tokens), expected);
    }
}
