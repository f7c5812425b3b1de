//! Statistics of texts and their tokens.
//!
//! Words are separated by white space. A word's script is that of its first character with a specific script;
//! words of only digits and signs are `Common`. A token belongs to the word that contains its first byte that
//! is not white space.

use std::collections::BTreeMap;

use unicode_script::{Script, UnicodeScript};

use crate::decoder::Position;
use crate::tokenizer::Vocab;
use crate::{Tokenizer, TokenizerError};

/// Statistics of a text and of its tokens by several tokenizers. Texts can be added in parts.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// The number of UTF-8 bytes.
    pub bytes: u64,
    /// The number of characters (code points).
    pub chars: u64,
    /// The number of words.
    pub words: u64,
    /// Counts of words and their characters, by the words' script.
    pub scripts: BTreeMap<&'static str, Share>,
    /// Token counts of each tokenizer, in the order given to [`Statistics::new`].
    pub tokens: Vec<TokenCounts>,
}

/// The words of one script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The number of characters in words of the script.
    pub chars: u64,
    /// The number of words.
    pub words: u64,
}

/// Token counts of one tokenizer.
#[derive(Clone, Debug)]
pub struct TokenCounts {
    /// The number of occurrences of each id.
    pub counts: Vec<u64>,
    /// Token counts by the script of the words. `None` if decoding does not reproduce the text, so that the
    /// positions of tokens are unknown.
    pub scripts: Option<BTreeMap<&'static str, u64>>,
}

impl Statistics {
    /// Creates empty statistics.
    pub fn new(tokenizers: &[Tokenizer]) -> Self {
        let nothing = |tokenizer: &Tokenizer| TokenCounts {
            counts: vec![0; tokenizer.vocab_size()],
            scripts: Some(BTreeMap::new()),
        };
        Self {
            bytes: 0,
            chars: 0,
            words: 0,
            scripts: BTreeMap::new(),
            tokens: tokenizers.iter().map(nothing).collect(),
        }
    }

    /// Adds a text, or a part of one that is cut between words.
    ///
    /// # Errors
    /// See [`Tokenizer::encode`].
    pub fn add(&mut self, tokenizers: &[Tokenizer], text: &str) -> Result<(), TokenizerError> {
        self.bytes += text.len() as u64;
        self.chars += text.chars().count() as u64;
        let words = words(text);
        self.words += words.len() as u64;
        for word in &words {
            let share = self.scripts.entry(word.script).or_default();
            share.chars += text[word.start..word.end].chars().count() as u64;
            share.words += 1;
        }
        for (tokenizer, counts) in tokenizers.iter().zip(&mut self.tokens) {
            counts.add(tokenizer, text, &words)?;
        }
        Ok(())
    }

    /// Adds the statistics of another text by the same tokenizers.
    pub fn merge(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.chars += other.chars;
        self.words += other.words;
        for (script, share) in other.scripts {
            let mine = self.scripts.entry(script).or_default();
            mine.chars += share.chars;
            mine.words += share.words;
        }
        for (mine, theirs) in self.tokens.iter_mut().zip(other.tokens) {
            for (mine, theirs) in mine.counts.iter_mut().zip(theirs.counts) {
                *mine += theirs;
            }
            mine.scripts = match (mine.scripts.take(), theirs.scripts) {
                (Some(mut mine), Some(theirs)) => {
                    for (script, tokens) in theirs {
                        *mine.entry(script).or_default() += tokens;
                    }
                    Some(mine)
                }
                _ => None,
            };
        }
    }
}

impl TokenCounts {
    fn add(
        &mut self,
        tokenizer: &Tokenizer,
        text: &str,
        words: &[Word],
    ) -> Result<(), TokenizerError> {
        let ids = tokenizer.encode(text)?;
        for &id in &ids {
            if let Some(count) = self.counts.get_mut(id as usize) {
                *count += 1;
            }
        }
        let Some(scripts) = &mut self.scripts else {
            return Ok(());
        };
        let mut position = Position::default();
        let mut bytes = Vec::with_capacity(text.len());
        let mut words = words.iter().peekable();
        for &id in &ids {
            let start = bytes.len();
            tokenizer.push_bytes(id, &mut position, &mut bytes);
            while words.next_if(|word| word.end <= start).is_some() {}
            // A token of only white space belongs to no word.
            if let Some(word) = words.peek().filter(|word| word.start < bytes.len()) {
                *scripts.entry(word.script).or_default() += 1;
            }
        }
        if bytes != text.as_bytes() {
            self.scripts = None;
        }
        Ok(())
    }

    /// The number of tokens.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The number of distinct ids that occur.
    pub fn used(&self) -> usize {
        self.counts.iter().filter(|count| **count > 0).count()
    }

    /// The number of unknown tokens.
    pub fn unknown(&self, tokenizer: &Tokenizer) -> u64 {
        let id = match tokenizer.vocab() {
            Vocab::File(file) => file.unknown(),
            Vocab::Bpe(_) | Vocab::Char(_) | Vocab::Byte => None,
        };
        id.and_then(|id| self.counts.get(id as usize).copied())
            .unwrap_or(0)
    }

    /// Returns up to `count` of the tokens that occur, as text, the longest in bytes first. Ties are ordered by
    /// id.
    pub fn longest(&self, tokenizer: &Tokenizer, count: usize) -> Vec<String> {
        let used = (0..).zip(&self.counts).filter(|(_, count)| **count > 0);
        let text = |(id, _)| {
            let mut bytes = Vec::new();
            tokenizer.push_bytes(id, &mut Position::within(), &mut bytes);
            bytes
        };
        let mut tokens: Vec<Vec<u8>> = used.map(text).collect();
        tokens.sort_by_key(|bytes| std::cmp::Reverse(bytes.len()));
        tokens.truncate(count);
        tokens
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect()
    }
}

/// A word's byte range in a text, and the name of its script.
struct Word {
    start: usize,
    end: usize,
    script: &'static str,
}

fn words(text: &str) -> Vec<Word> {
    let word = |word: &str| {
        // `word` is a slice of `text`.
        let start = word.as_ptr() as usize - text.as_ptr() as usize;
        let own = |script: &Script| {
            !matches!(script, Script::Common | Script::Inherited | Script::Unknown)
        };
        let script = word.chars().map(|c| c.script()).find(own);
        Word {
            start,
            end: start + word.len(),
            script: script.unwrap_or(Script::Common).full_name(),
        }
    };
    text.split_whitespace().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerKind;

    fn statistics(tokenizers: &[Tokenizer], text: &str) -> Statistics {
        let mut statistics = Statistics::new(tokenizers);
        statistics.add(tokenizers, text).unwrap();
        statistics
    }

    /// Counted by hand. With one token per byte, a word has as many tokens as bytes.
    #[test]
    fn words_belong_to_the_script_of_their_first_letter() {
        let tokenizers = [Tokenizer::builtin(TokenizerKind::Byte).unwrap()];
        let text = "The (naïve) мир,\n漢字 — 12 ";
        let statistics = statistics(&tokenizers, text);
        assert_eq!(
            (statistics.bytes, statistics.chars, statistics.words),
            (35, 25, 6)
        );
        let share = |chars, words| Share { chars, words };
        let expected = [
            ("Common", share(3, 2)),
            ("Cyrillic", share(4, 1)),
            ("Han", share(2, 1)),
            ("Latin", share(10, 2)),
        ];
        assert_eq!(statistics.scripts, BTreeMap::from(expected));
        let tokens = [("Common", 5), ("Cyrillic", 7), ("Han", 6), ("Latin", 11)];
        let [counts] = statistics.tokens.as_slice() else {
            panic!()
        };
        assert_eq!(counts.scripts, Some(BTreeMap::from(tokens)));
        assert_eq!((counts.total(), counts.unknown(&tokenizers[0])), (35, 0));
    }

    /// tiktoken's ids for gpt2: ` the` 262, `\n` 198, `Hello` 15496, ` world` 995.
    #[test]
    fn tokens_count_for_the_word_that_they_begin() {
        let tokenizers = [Tokenizer::builtin(TokenizerKind::Gpt2).unwrap()];
        let statistics = statistics(&tokenizers, "Hello world the\n");
        let counts = &statistics.tokens[0];
        assert_eq!(counts.scripts, Some(BTreeMap::from([("Latin", 3)])));
        assert_eq!(
            (counts.total(), counts.used(), counts.counts[995]),
            (4, 4, 1)
        );
        assert_eq!(counts.longest(&tokenizers[0], 2), [" world", "Hello"]);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let kinds = [TokenizerKind::Gpt2, TokenizerKind::O200k];
        let tokenizers = kinds.map(|kind| Tokenizer::builtin(kind).unwrap());
        let mut sum = statistics(&tokenizers, "One two");
        sum.merge(statistics(&tokenizers, " three мир"));
        let whole = statistics(&tokenizers, "One two three мир");
        assert_eq!(sum.scripts, whole.scripts);
        assert_eq!(sum.tokens[1].scripts, whole.tokens[1].scripts);
        assert_eq!(sum.tokens[0].counts, whole.tokens[0].counts);
    }

    #[test]
    fn lossy_tokenizers_have_no_counts_by_script() {
        let json = include_bytes!("../tests/fixtures/files/wordpiece.json");
        let tokenizers = [Tokenizer::from_json(json).unwrap()];
        let statistics = statistics(&tokenizers, "The 漢 License");
        let counts = &statistics.tokens[0];
        assert_eq!(counts.scripts, None);
        assert!(counts.unknown(&tokenizers[0]) <= 1);
    }
}
