//! Token frequencies.

use emberlm_tokenizer::Tokenizer;
use rayon::prelude::*;
use serde::Serialize;

/// A token and its frequency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenCount {
    /// The token id.
    pub id: u32,
    /// Its frequency.
    pub count: u64,
    /// The token's text in quotes, or its bytes if they are not UTF-8. Invisible characters are escaped.
    pub text: String,
}

/// Counts ids with one table per thread.
pub(super) struct Frequencies {
    tables: Vec<Vec<u64>>,
}

impl Frequencies {
    pub(super) fn new(vocab_size: usize) -> Self {
        let tables = vec![vec![0; vocab_size]; rayon::current_num_threads()];
        Self { tables }
    }

    /// Counts `ids`, all below the vocabulary size.
    pub(super) fn add(&mut self, ids: &[u32]) {
        let share = ids.len().div_ceil(self.tables.len()).max(1);
        let shares = ids.par_chunks(share).zip(&mut self.tables);
        shares.for_each(|(ids, table)| ids.iter().for_each(|&id| table[id as usize] += 1));
    }

    /// The number of occurrences of each id so far.
    pub(super) fn counts(&self) -> Vec<u64> {
        let ids = 0..self.tables.first().map_or(0, Vec::len);
        ids.map(|id| self.tables.iter().map(|table| table[id]).sum())
            .collect()
    }
}

/// The `most` most frequent ids, without those that never occur. Among ids of equal frequency the lower one comes
/// first.
pub(super) fn most_frequent(counts: &[u64], most: usize, tokenizer: &Tokenizer) -> Vec<TokenCount> {
    let mut ids: Vec<u32> = (0..counts.len() as u32)
        .filter(|&id| counts[id as usize] > 0)
        .collect();
    ids.sort_by_key(|&id| (std::cmp::Reverse(counts[id as usize]), id));
    ids.truncate(most);
    let token = |id: u32| TokenCount {
        id,
        count: counts[id as usize],
        text: spelled(id, tokenizer),
    };
    ids.into_iter().map(token).collect()
}

/// The token's text in quotes, or its bytes if they are not UTF-8.
fn spelled(id: u32, tokenizer: &Tokenizer) -> String {
    // Decode the token after itself, because some tokenizers drop the space at the beginning of a text.
    let bytes = |ids: &[u32]| tokenizer.decode_bytes(ids).unwrap_or_default();
    let (once, twice) = (bytes(&[id]), bytes(&[id, id]));
    let own = twice.get(once.len()..).unwrap_or_default();
    match str::from_utf8(own) {
        Ok("") if Some(id) == tokenizer.end_of_text() => "(end of text)".to_owned(),
        Ok(text) => format!("{text:?}"),
        Err(_) => format!("b\"{}\"", own.escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use emberlm_tokenizer::TokenizerKind;

    use super::*;

    #[test]
    fn every_id_is_counted_once() {
        let mut frequencies = Frequencies::new(5);
        frequencies.add(&[0, 3, 3, 1, 3]);
        frequencies.add(&[]);
        frequencies.add(&[1]);
        assert_eq!(frequencies.counts(), [1, 2, 0, 3, 0]);
    }

    #[test]
    fn token_spelling_escapes_invisible_characters() {
        let gpt2 = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
        // From Python's tiktoken: 262 is " the", 198 a line break, 50256 the end-of-text token, and 447 the bytes e2
        // 80.
        let found = [262, 198, 50256, 447].map(|id| spelled(id, &gpt2));
        assert_eq!(
            found,
            [
                "\" the\"",
                "\"\\n\"",
                "\"<|endoftext|>\"",
                "b\"\\xe2\\x80\""
            ]
        );
        let byte = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        assert_eq!(
            [27, 256].map(|id| spelled(id, &byte)),
            ["\"\\u{1b}\"", "(end of text)"]
        );
    }

    #[test]
    fn most_frequent_tokens_come_first_without_unused_ones() {
        let byte = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        let mut counts = vec![0; 257];
        (counts[97], counts[98], counts[99]) = (2, 7, 2);
        let ids = |most| {
            most_frequent(&counts, most, &byte)
                .iter()
                .map(|t| t.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(20), [98, 97, 99]);
        assert_eq!(ids(2), [98, 97]);
    }
}
