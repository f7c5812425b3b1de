//! A pass over a shard that computes everything that can be derived without a manifest.

use std::path::Path;

use emberlm_tokenizer::{TokenBytes, Tokenizer};
use rayon::prelude::*;

use crate::shard::{FileHashes, ShardStream};
use crate::{DataError, ShardLayout};

/// The number of tokens that a thread processes at a time.
const CHUNK: usize = 1 << 16;

/// The properties of a vocabulary used in a survey.
pub(crate) struct Vocabulary {
    /// The vocabulary size, an exclusive upper bound of the ids.
    pub(crate) size: usize,
    /// The token that separates documents.
    pub(crate) end_of_text: Option<u32>,
    bytes: Option<TokenBytes>,
}

/// The results of a pass over a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Survey {
    /// The number of tokens in the shard.
    pub(crate) tokens: u64,
    /// The number of end-of-text tokens among them.
    pub(crate) ends_of_text: u64,
    /// The number of text bytes that the tokens represent, if known for every token.
    pub(crate) bytes: Option<u64>,
    /// The largest id. `None` if there are no tokens.
    pub(crate) largest: Option<u32>,
    /// The ids outside the vocabulary, if there are any.
    pub(crate) outside: Option<Outside>,
    /// The hashes of the whole file and its blocks.
    pub(crate) hashes: FileHashes,
}

/// Ids outside the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outside {
    /// The number of such tokens.
    pub(crate) count: u64,
    /// The position of the first one in the shard, from 0.
    pub(crate) position: u64,
    /// The id of the first one.
    pub(crate) id: u32,
}

impl Vocabulary {
    /// The vocabulary of `tokenizer`.
    pub(crate) fn of(tokenizer: &Tokenizer) -> Self {
        Self {
            size: tokenizer.vocab_size(),
            end_of_text: tokenizer.end_of_text(),
            bytes: tokenizer.token_bytes(),
        }
    }

    /// Reads the shard `path` sequentially, on all threads. `previous` is the last token of the previous shard, and
    /// is updated. `progress` receives the number of bytes read since the last call.
    pub(crate) fn survey(
        &self,
        path: &Path,
        layout: ShardLayout,
        previous: &mut Option<u32>,
        progress: &dyn Fn(u64),
    ) -> Result<Survey, DataError> {
        let mut stream = ShardStream::open(path, layout)?;
        let width = stream.width().bytes();
        let mut sums = Sums::default();
        let mut position = 0;
        loop {
            let ids = stream.next()?;
            let Some(&last) = ids.last() else { break };
            // Without a previous token, a text begins here.
            let before = previous.or(self.end_of_text).unwrap_or(0);
            let chunks = ids.par_chunks(CHUNK).enumerate().map(|(i, chunk)| {
                let first = i * CHUNK;
                let before = if i == 0 { before } else { ids[first - 1] };
                self.sum(chunk, position + first as u64, before)
            });
            sums = sums.then(chunks.reduce(Sums::default, Sums::then));
            *previous = Some(last);
            position += ids.len() as u64;
            progress(ids.len() as u64 * width);
        }
        Ok(Survey {
            tokens: stream.len(),
            ends_of_text: sums.ends_of_text,
            bytes: sums.bytes,
            largest: sums.largest,
            outside: sums.outside,
            hashes: stream.hashes(),
        })
    }

    /// Sums over the tokens from `position`, which follow the token `before`.
    fn sum(&self, ids: &[u32], position: u64, mut before: u32) -> Sums {
        let mut sums = Sums::default();
        if self.bytes.is_none() {
            sums.bytes = None;
        }
        for (&id, position) in ids.iter().zip(position..) {
            if id as usize >= self.size {
                let first = Outside {
                    count: 0,
                    position,
                    id,
                };
                sums.outside.get_or_insert(first).count += 1;
            }
            sums.ends_of_text += u64::from(Some(id) == self.end_of_text);
            sums.largest = sums.largest.max(Some(id));
            if let (Some(sum), Some(table)) = (sums.bytes, &self.bytes) {
                sums.bytes = table.after(before, id).map(|bytes| sum + u64::from(bytes));
            }
            before = id;
        }
        sums
    }
}

/// Sums over tokens.
struct Sums {
    ends_of_text: u64,
    bytes: Option<u64>,
    largest: Option<u32>,
    outside: Option<Outside>,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            ends_of_text: 0,
            bytes: Some(0),
            largest: None,
            outside: None,
        }
    }
}

impl Sums {
    /// Combines the sums with those of the tokens that follow.
    fn then(self, after: Self) -> Self {
        let outside = match (self.outside, after.outside) {
            (Some(first), Some(more)) => Some(Outside {
                count: first.count + more.count,
                ..first
            }),
            (first, more) => first.or(more),
        };
        Self {
            ends_of_text: self.ends_of_text + after.ends_of_text,
            bytes: self.bytes.zip(after.bytes).map(|(a, b)| a + b),
            largest: self.largest.max(after.largest),
            outside,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ShardWriter, TokenWidth};

    /// More tokens than one block, divided between several threads.
    #[test]
    fn result_is_independent_of_blocks_and_threads() {
        const TOKENS: usize = 2_200_000;
        let tokenizer = Tokenizer::char_from_alphabet("aé漢".chars()).unwrap();
        let mut ids: Vec<u32> = (0..TOKENS as u32).map(|i| i % 3).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shard.bin");
        let survey = |ids: &[u32]| {
            let mut writer = ShardWriter::create(&path, TokenWidth::U16).unwrap();
            writer.write(ids).unwrap();
            writer.finish().unwrap();
            let mut previous = None;
            let found = Vocabulary::of(&tokenizer)
                .survey(&path, ShardLayout::LlmC, &mut previous, &|_| {})
                .unwrap();
            assert_eq!(previous, ids.last().copied());
            assert_eq!(found.tokens, ids.len() as u64);
            let file = std::fs::read(&path).unwrap();
            assert_eq!(
                found.hashes.blake3,
                blake3::hash(&file).to_hex().to_string()
            );
            found
        };
        let found = survey(&ids);
        // Characters of one, two and three bytes, repeated. The last character has one byte.
        assert_eq!(found.bytes, Some((TOKENS as u64 / 3) * 6 + 1));
        assert_eq!((found.outside, found.largest), (None, Some(2)));
        for at in [2_199_999, 2_100_000, 70_000] {
            ids[at] = 3 + at as u32 % 7;
        }
        let found = survey(&ids);
        let first = Outside {
            count: 3,
            position: 70_000,
            id: 3,
        };
        assert_eq!((found.outside, found.bytes), (Some(first), None));
    }
}
