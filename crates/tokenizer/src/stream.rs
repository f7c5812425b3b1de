//! Incremental decoding, token by token.

use crate::decoder::Position;
use crate::{Tokenizer, TokenizerError};

/// Decodes one token at a time and holds back the bytes of an incomplete character.
///
/// The concatenated output equals [`Tokenizer::decode`] of all ids.
#[derive(Clone, Debug)]
pub struct DecodeStream {
    tokenizer: Tokenizer,
    /// The bytes of an incomplete character: at most three between calls.
    pending: Vec<u8>,
    /// The position of the next token. Some tokenizers drop the space that begins a text.
    position: Position,
}

impl Tokenizer {
    /// Returns an incremental decoder, for text that is displayed during generation.
    pub fn stream(&self) -> DecodeStream {
        DecodeStream::new(self.clone())
    }
}

impl DecodeStream {
    fn new(tokenizer: Tokenizer) -> Self {
        Self {
            tokenizer,
            pending: Vec::new(),
            position: Position::default(),
        }
    }

    /// Skips tokens whose text is known, such as a prompt's, so that the following tokens continue it.
    ///
    /// # Errors
    /// An id is out of range or unassigned. The stream does not change.
    pub fn skip(&mut self, ids: &[u32]) -> Result<(), TokenizerError> {
        let mut position = self.position;
        self.tokenizer.decode_at(ids, &mut position)?;
        self.position = position;
        Ok(())
    }

    /// Like [`DecodeStream::skip`], without the ids that are out of range or unassigned.
    pub(crate) fn skip_known(&mut self, ids: &[u32]) {
        let mut text = Vec::new();
        for &id in ids {
            text.clear();
            self.tokenizer.push_bytes(id, &mut self.position, &mut text);
        }
    }

    /// Decodes the next token and returns the text that is now complete, which may be empty.
    ///
    /// Bytes that are not valid UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// `id` is out of range or unassigned. The stream does not change.
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        let mut position = self.position;
        let bytes = self.tokenizer.decode_at(&[id], &mut position)?;
        self.position = position;
        self.pending.extend(bytes);
        let complete = self.pending.len() - unfinished_len(&self.pending);
        let text = String::from_utf8_lossy(&self.pending[..complete]).into_owned();
        self.pending.drain(..complete);
        Ok(text)
    }

    /// Ends the stream. Returns U+FFFD for an incomplete character, otherwise an empty string.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// Returns the number of trailing bytes that begin a character without completing it.
fn unfinished_len(bytes: &[u8]) -> usize {
    // A character has at most four bytes, so an incomplete one has at most three.
    (1..=bytes.len().min(3))
        .rev()
        .find(|&len| is_unfinished(&bytes[bytes.len() - len..]))
        .unwrap_or(0)
}

/// Returns true if `bytes` are exactly a proper prefix of one character.
fn is_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::TokenizerKind;

    fn byte_stream() -> DecodeStream {
        Tokenizer::builtin(TokenizerKind::Byte).unwrap().stream()
    }

    #[test]
    fn a_character_appears_with_its_last_token() {
        let mut stream = byte_stream();
        let pieces: Vec<String> = "aé🔥"
            .bytes()
            .map(|byte| stream.push(byte.into()).unwrap())
            .collect();
        assert_eq!(pieces, ["a", "", "é", "", "", "", "🔥"]);
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn an_incomplete_character_ends_as_a_replacement() {
        let mut stream = byte_stream();
        assert_eq!(stream.push(0xF0).unwrap(), "");
        assert_eq!(stream.push(0x9F).unwrap(), "");
        assert_eq!(stream.finish(), "\u{FFFD}");
    }

    #[test]
    fn an_invalid_id_does_not_change_the_stream() {
        let mut stream = byte_stream();
        assert_eq!(stream.push(0xC3).unwrap(), "");
        assert!(stream.push(257).is_err());
        assert_eq!(stream.push(0xA9).unwrap(), "é");
    }

    proptest! {
        #[test]
        fn the_output_equals_the_decoded_text(ids in prop::collection::vec(0u32..257, 0..64)) {
            let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
            let mut stream = tokenizer.stream();
            let mut text = String::new();
            for &id in &ids {
                text += &stream.push(id).unwrap();
            }
            text += &stream.finish();
            prop_assert_eq!(text, tokenizer.decode(&ids).unwrap());
        }
    }
}
