//! Tokenizers for the caller's own vocabularies: ids that represent words, or only numbers.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::file::FileVocab;
use crate::tokenizer::Vocab;
use crate::{Tokenizer, TokenizerError};

impl Tokenizer {
    /// Creates a tokenizer whose id `i` is the `i`-th word. Words in a text are separated by white space; a
    /// word outside the vocabulary is an error. `end_of_text` is the id that separates documents.
    ///
    /// ```
    /// use emberlm_tokenizer::Tokenizer;
    ///
    /// # fn main() -> Result<(), emberlm_tokenizer::TokenizerError> {
    /// let notes = Tokenizer::from_words(["C", "D", "E", "end"], Some(3))?;
    /// assert_eq!(notes.encode("E D C")?, [2, 1, 0]);
    /// assert_eq!(notes.decode(&[0, 1, 2])?, "C D E");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TokenizerError::Vocabulary`] if there are no words, a word is empty, contains white space or is
    /// repeated, or `end_of_text` is outside the vocabulary. [`TokenizerError::Format`] if the words exceed the
    /// limits of a `tokenizer.json`.
    pub fn from_words(
        words: impl IntoIterator<Item = impl Into<String>>,
        end_of_text: Option<u32>,
    ) -> Result<Self, TokenizerError> {
        let refuse = |reason: String| TokenizerError::Vocabulary { reason };
        let (mut vocab, mut seen) = (Map::new(), HashSet::new());
        for (id, word) in words.into_iter().enumerate() {
            let word: String = word.into();
            if word.is_empty() || word.contains(char::is_whitespace) {
                return Err(refuse(format!(
                    "word {id} is {word:?}: must not be empty or contain spaces"
                )));
            }
            if !seen.insert(word.clone()) {
                return Err(refuse(format!("word {id} is {word:?}, which is repeated")));
            }
            vocab.insert(word, json!(id));
        }
        let count = vocab.len();
        if count == 0 {
            return Err(refuse("it has no words".to_owned()));
        }
        if let Some(id) = end_of_text.filter(|&id| id as usize >= count) {
            return Err(refuse(format!(
                "the end of text {id} is outside of its {count} words"
            )));
        }
        let mut file = FileVocab::new(to_json(vocab, &seen))?;
        file.set_end_of_text(end_of_text);
        Ok(Self::new(Vocab::File(Box::new(file))))
    }

    /// Creates a tokenizer of `vocab_size` ids without text. Each id is written as its number: `12 5 7`.
    ///
    /// # Errors
    /// See [`Tokenizer::from_words`].
    pub fn of_ids(vocab_size: usize, end_of_text: Option<u32>) -> Result<Self, TokenizerError> {
        Self::from_words((0..vocab_size).map(|id| id.to_string()), end_of_text)
    }
}

/// Returns the `tokenizer.json` of a WordLevel vocabulary with white-space splitting.
fn to_json(vocab: Map<String, Value>, words: &HashSet<String>) -> Vec<u8> {
    // The unknown token is not in the vocabulary, so unknown words are errors.
    let mut unknown = "<unk>".to_owned();
    while words.contains(&unknown) {
        unknown.push('_');
    }
    let file = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": null,
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": unknown},
    });
    file.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_as_numbers() {
        let tokenizer = Tokenizer::of_ids(300, Some(299)).unwrap();
        assert_eq!(tokenizer.vocab_size(), 300);
        assert_eq!(tokenizer.end_of_text(), Some(299));
        let ids = [0, 17, 298];
        let text = tokenizer.decode(&ids).unwrap();
        assert_eq!(text, "0 17 298");
        assert_eq!(tokenizer.encode(&text).unwrap(), ids);
        assert!(tokenizer.encode("300").is_err());
        let folder = tempfile::tempdir().unwrap();
        assert!(tokenizer.save(folder.path()).unwrap());
        let opened = Tokenizer::open(&tokenizer.spec(), folder.path()).unwrap();
        assert_eq!(opened.spec(), tokenizer.spec());
    }

    #[test]
    fn invalid_vocabularies_are_rejected() {
        let reason = |words: &[&str], end: Option<u32>| {
            let words = words.iter().copied();
            let error = Tokenizer::from_words(words, end).map(|_| ()).unwrap_err();
            error.to_string()
        };
        for (words, end, expected) in [
            (&[][..], None, "it has no words"),
            (&["a", ""], None, "word 1 is \"\": must not be empty"),
            (&["a b"], None, "or contain spaces"),
            (&["a", "b", "a"], None, "word 2 is \"a\", which is repeated"),
            (
                &["a"],
                Some(1),
                "the end of text 1 is outside of its 1 words",
            ),
        ] {
            let found = reason(words, end);
            assert!(found.contains(expected), "{found}");
        }
        // A word may have the usual name of the unknown token.
        let tokenizer = Tokenizer::from_words(["<unk>", "a"], None).unwrap();
        assert!(tokenizer.encode("b").is_err());
    }
}
