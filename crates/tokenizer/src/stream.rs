//! Text as it becomes complete, token by token.

use crate::pieces::Position;
use crate::{Tokenizer, TokenizerError};

/// Decodes one token at a time, holding back the bytes of a character whose end has not come yet.
///
/// The pieces of text put together are what [`Tokenizer::decode`] makes of all the ids at once.
#[derive(Clone, Debug)]
pub struct DecodeStream {
    tokenizer: Tokenizer,
    /// The beginning of a character: at most three bytes between two calls.
    pending: Vec<u8>,
    /// The place of the next token: some tokenizers leave out the blank that begins a text.
    position: Position,
}

impl DecodeStream {
    pub(crate) fn new(tokenizer: Tokenizer) -> Self {
        Self {
            tokenizer,
            pending: Vec::new(),
            position: Position::default(),
        }
    }

    /// Takes tokens whose text is known, such as a prompt's, so that the following tokens continue it.
    ///
    /// # Errors
    /// Fails if an id is out of range or unassigned; the stream is then as it was before.
    pub fn skip(&mut self, ids: &[u32]) -> Result<(), TokenizerError> {
        let mut position = self.position;
        self.tokenizer.decode_at(ids, &mut position)?;
        self.position = position;
        Ok(())
    }

    /// Takes the next token and returns the text that is complete now, which may be none.
    ///
    /// Bytes that cannot belong to any character become U+FFFD.
    ///
    /// # Errors
    /// Fails if `id` is out of range or unassigned; the stream is then as it was before.
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

    /// Ends the stream and returns what is left: U+FFFD for a character that was never finished, or nothing.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// The number of bytes at the end of `bytes` that begin a character without ending it.
fn unfinished_len(bytes: &[u8]) -> usize {
    // A character has at most four bytes, so at most the last three can be the beginning of one.
    (1..=bytes.len().min(3))
        .rev()
        .find(|&len| is_unfinished(&bytes[bytes.len() - len..]))
        .unwrap_or(0)
}

/// Returns true if `bytes` are the beginning of one character and nothing else.
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
    fn a_character_of_several_tokens_appears_when_its_last_one_comes() {
        let mut stream = byte_stream();
        let pieces: Vec<String> = "aé🔥"
            .bytes()
            .map(|byte| stream.push(byte.into()).unwrap())
            .collect();
        assert_eq!(pieces, ["a", "", "é", "", "", "", "🔥"]);
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn an_unfinished_character_is_a_replacement_at_the_end() {
        let mut stream = byte_stream();
        assert_eq!(stream.push(0xF0).unwrap(), "");
        assert_eq!(stream.push(0x9F).unwrap(), "");
        assert_eq!(stream.finish(), "\u{FFFD}");
    }

    #[test]
    fn a_wrong_id_leaves_the_stream_as_it_was() {
        let mut stream = byte_stream();
        assert_eq!(stream.push(0xC3).unwrap(), "");
        assert!(stream.push(257).is_err());
        assert_eq!(stream.push(0xA9).unwrap(), "é");
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_whole(ids in prop::collection::vec(0u32..257, 0..64)) {
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
