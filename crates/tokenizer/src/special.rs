//! Special tokens by name.

use crate::file::FileVocab;
use crate::tokenizer::Vocab;
use crate::{Tokenizer, byte, export};

impl Tokenizer {
    /// Returns the special tokens and their ids, sorted by id. An unnamed end-of-text token is called
    /// `<|endoftext|>`.
    pub fn special_tokens(&self) -> Vec<(String, u32)> {
        match self.vocab() {
            Vocab::Bpe(bpe) => bpe.special_tokens().to_vec(),
            Vocab::Char(_) => Vec::new(),
            Vocab::Byte => vec![(export::END_OF_TEXT.to_owned(), byte::END_OF_TEXT)],
            Vocab::File(file) => file_specials(file),
        }
    }

    /// Returns the id of the special token `name`.
    pub fn special_id(&self, name: &str) -> Option<u32> {
        let mut specials = self.special_tokens().into_iter();
        let found = specials.find(|(special, _)| special == name);
        found.map(|(_, id)| id)
    }

    /// Returns the id of `name` if it is a special token or any token of a file's vocabulary.
    pub(crate) fn token_id(&self, name: &str) -> Option<u32> {
        match self.vocab() {
            Vocab::File(file) => file.token_id(name),
            Vocab::Bpe(_) | Vocab::Char(_) | Vocab::Byte => self.special_id(name),
        }
    }
}

/// Returns the special tokens of a file: those marked as special, and the end-of-text token.
fn file_specials(file: &FileVocab) -> Vec<(String, u32)> {
    let added = file
        .inner()
        .get_added_vocabulary()
        .get_added_tokens_decoder();
    let special = added
        .iter()
        .filter(|(_, token)| token.special)
        .map(|(&id, _)| id);
    let mut ids: Vec<u32> = special.chain(file.special()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter()
        .filter_map(|id| Some((file.token(id)?, id)))
        .collect()
}
