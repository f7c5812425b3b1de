//! One token per distinct character, as in nanoGPT's character-level examples.

use crate::TokenizerError;

/// A character vocabulary. Ids follow the order of code points.
#[derive(Debug)]
pub(crate) struct CharVocab {
    /// Sorted and deduplicated, for binary search.
    chars: Vec<char>,
}

impl CharVocab {
    /// Creates the vocabulary of `chars`, which may be unsorted and contain duplicates.
    pub(crate) fn new(chars: impl IntoIterator<Item = char>) -> Result<Self, TokenizerError> {
        let mut chars: Vec<char> = chars.into_iter().collect();
        chars.sort_unstable();
        chars.dedup();
        if chars.is_empty() {
            return Err(TokenizerError::EmptyAlphabet);
        }
        Ok(Self { chars })
    }

    /// The number of characters, and therefore of ids.
    pub(crate) fn len(&self) -> usize {
        self.chars.len()
    }

    /// Returns the characters in the order of their ids.
    pub(crate) fn alphabet(&self) -> String {
        self.chars.iter().collect()
    }

    /// Encodes `text`, one id per character.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let id = |(position, character)| match self.chars.binary_search(&character) {
            Ok(rank) => Ok(rank as u32),
            Err(_) => Err(TokenizerError::UnknownCharacter {
                character,
                position,
                vocab_size: self.len(),
            }),
        };
        text.chars().enumerate().map(id).collect()
    }

    /// Appends the UTF-8 bytes of `id`. Returns false if there is no such id.
    pub(crate) fn push_bytes(&self, id: u32, out: &mut Vec<u8>) -> bool {
        let Some(character) = self.chars.get(id as usize) else {
            return false;
        };
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        true
    }
}
