//! A document read in blocks that can be tokenized separately, so that memory does not grow with the file's length
//! and all threads can work on one file.

use std::io::Read;

use emberlm_tokenizer::{Cut, Tokenizer};

use super::Input;
use super::source::Source;
use crate::DataError;

/// A block of a text.
pub(super) struct Block {
    /// The text.
    pub(super) text: String,
    /// See [`super::DocumentChunk::cut_inexactly`].
    pub(super) cut_inexactly: bool,
}

/// The blocks of a text. Concatenated they are the whole text.
pub(super) struct TextBlocks<'a> {
    input: &'a Input,
    source: Source,
    /// Decides where the text may be cut. Without one, it is cut between any two characters.
    tokenizer: Option<&'a Tokenizer>,
    block_bytes: usize,
    /// Text that was read but not returned yet.
    text: String,
    /// The beginning of a character whose remaining bytes were not read yet.
    partial: Vec<u8>,
    /// The number of bytes decoded so far.
    decoded: u64,
    at_end: bool,
}

impl<'a> TextBlocks<'a> {
    /// Opens `input`. Blocks are cut where `tokenizer` produces the same tokens for the parts.
    pub(super) fn open(
        input: &'a Input,
        tokenizer: Option<&'a Tokenizer>,
        block_bytes: usize,
    ) -> Result<Self, DataError> {
        Ok(Self {
            input,
            source: Source::open(input)?,
            tokenizer,
            block_bytes,
            text: String::new(),
            partial: Vec::new(),
            decoded: 0,
            at_end: false,
        })
    }

    /// The number of bytes read from the file.
    pub(super) fn bytes_read(&self) -> u64 {
        self.source.bytes_read()
    }

    /// Returns the next block, or `None` at the end.
    pub(super) fn next_block(&mut self) -> Result<Option<Block>, DataError> {
        let longest = self.tokenizer.map_or(usize::MAX, Tokenizer::longest_part);
        let mut wanted = self.block_bytes;
        loop {
            self.fill(wanted)?;
            if self.at_end && self.text.len() <= longest {
                return Ok(self.take(self.text.len(), false));
            }
            if let Some(at) = self.last_cut() {
                return Ok(self.take(at, false));
            }
            if let Some(tokenizer) = self.tokenizer
                && (self.at_end || self.text.len() >= 2 * longest)
            {
                let Cut { at, exact } = tokenizer.cut(&self.text);
                return Ok(self.take(at, !exact));
            }
            // No place to cut: double the text, so that the search does not restart for every few bytes.
            wanted = (self.text.len() * 2).min(2 * longest);
        }
    }

    /// Removes and returns the text before `at`, if there is any.
    fn take(&mut self, at: usize, cut_inexactly: bool) -> Option<Block> {
        let rest = self.text.split_off(at);
        let text = std::mem::replace(&mut self.text, rest);
        (!text.is_empty()).then_some(Block {
            text,
            cut_inexactly,
        })
    }

    fn last_cut(&self) -> Option<usize> {
        match self.tokenizer {
            Some(tokenizer) => tokenizer.last_cut(&self.text),
            None => Some(self.text.len()),
        }
    }

    /// Reads until there are at least `wanted` bytes of text or the file ends.
    fn fill(&mut self, wanted: usize) -> Result<(), DataError> {
        while !self.at_end && self.text.len() < wanted {
            let missing = (wanted - self.text.len()) as u64;
            let before = self.partial.len();
            (&mut self.source)
                .take(missing)
                .read_to_end(&mut self.partial)
                .map_err(|error| self.source.failure(error))?;
            self.at_end = self.partial.len() == before;
            self.decode()?;
        }
        Ok(())
    }

    /// Moves complete characters from `partial` to `text`.
    fn decode(&mut self) -> Result<(), DataError> {
        let valid = match std::str::from_utf8(&self.partial) {
            Ok(text) => {
                self.text.push_str(text);
                text.len()
            }
            Err(error) if error.error_len().is_some() || self.at_end => {
                return Err(DataError::InvalidUtf8 {
                    path: self.input.name.clone(),
                    offset: self.decoded + error.valid_up_to() as u64,
                });
            }
            Err(error) => {
                let valid = error.valid_up_to();
                self.text
                    .push_str(&String::from_utf8_lossy(&self.partial[..valid]));
                valid
            }
        };
        self.partial.drain(..valid);
        self.decoded += valid as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use emberlm_tokenizer::TokenizerKind;
    use proptest::prelude::*;

    use super::*;
    use crate::Format;

    fn blocks(
        bytes: &[u8],
        tokenizer: Option<&Tokenizer>,
        block_bytes: usize,
    ) -> Result<Vec<String>, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(&path, bytes).unwrap();
        let input = Input {
            path,
            name: "text".into(),
            bytes: bytes.len() as u64,
            format: Format::Text,
        };
        let mut reader = TextBlocks::open(&input, tokenizer, block_bytes)?;
        let mut blocks = Vec::new();
        while let Some(block) = reader.next_block()? {
            blocks.push(block.text);
        }
        Ok(blocks)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn blocks_preserve_text_and_tokens(
            words in prop::collection::vec("[a-zA-Zé漢🔥.' \n]{1,8}", 0..60), block_bytes in 1usize..40,
        ) {
            let text = words.join("\n");
            let gpt2 = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
            let made = blocks(text.as_bytes(), Some(&gpt2), block_bytes).unwrap();
            prop_assert_eq!(made.concat(), text.clone());
            let ids: Vec<u32> = made.iter().flat_map(|block| gpt2.encode(block).unwrap()).collect();
            prop_assert_eq!(ids, gpt2.encode(&text).unwrap());
        }
    }

    #[test]
    fn long_text_is_read_in_many_blocks() {
        let text = "A line of some words.\n".repeat(1000);
        let gpt2 = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
        let made = blocks(text.as_bytes(), Some(&gpt2), 500).unwrap();
        assert!(
            made.len() >= 40 && made.iter().all(|block| block.len() <= 600),
            "{}",
            made.len()
        );
    }

    #[test]
    fn invalid_utf8_error_states_the_offset() {
        let offset = |bytes: &[u8], block_bytes| match blocks(bytes, None, block_bytes) {
            Err(DataError::InvalidUtf8 { offset, .. }) => offset,
            other => panic!("{other:?}"),
        };
        for block_bytes in [1, 2, 3, 5, 100] {
            assert_eq!(
                offset(&["aé漢".as_bytes(), b"\xFFb"].concat(), block_bytes),
                6
            );
            // A character truncated by the end of the file.
            assert_eq!(offset(b"ab\xE6\xBC", block_bytes), 2);
        }
    }
}
