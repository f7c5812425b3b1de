//! The tokenizer: one type over the closed set of vocabularies.

use std::sync::{Arc, OnceLock};

use crate::bpe::Bpe;
use crate::char::CharVocab;
use crate::file::FileVocab;
use crate::pieces::Position;
use crate::{DecodeStream, TokenizerError, TokenizerKind, byte};

/// Turns text into token ids and back; cheap to clone and to share between threads.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    vocab: Vocab,
    hash: OnceLock<String>,
}

/// The parts of a tokenizer.
#[derive(Debug)]
pub(crate) enum Vocab {
    Bpe(Bpe),
    Char(CharVocab),
    Byte,
    File(Box<FileVocab>),
}

impl Tokenizer {
    /// The built-in tokenizer of a name.
    ///
    /// A byte-pair vocabulary is read on the first call in a process, which takes some tenths of a second.
    ///
    /// # Errors
    /// [`TokenizerError::NeedsAlphabet`] for [`TokenizerKind::Char`], [`TokenizerError::NeedsFile`] for
    /// [`TokenizerKind::File`].
    pub fn builtin(kind: TokenizerKind) -> Result<Self, TokenizerError> {
        Ok(Self::new(match (kind, Bpe::new(kind)) {
            (TokenizerKind::Char, _) => return Err(TokenizerError::NeedsAlphabet),
            (TokenizerKind::Byte, _) => Vocab::Byte,
            (_, Some(bpe)) => Vocab::Bpe(bpe),
            (_, None) => return Err(TokenizerError::NeedsFile),
        }))
    }

    /// The character tokenizer of `chars`, given in any order and with any repetition; a character's id is its rank by
    /// code point, as in nanoGPT.
    ///
    /// # Errors
    /// [`TokenizerError::EmptyAlphabet`] where there is no character.
    pub fn char_from_alphabet(
        chars: impl IntoIterator<Item = char>,
    ) -> Result<Self, TokenizerError> {
        Ok(Self::new(Vocab::Char(CharVocab::new(chars)?)))
    }

    pub(crate) fn new(vocab: Vocab) -> Self {
        let hash = OnceLock::new();
        let inner = Arc::new(Inner { vocab, hash });
        Self { inner }
    }

    /// This tokenizer's parts.
    pub(crate) fn vocab(&self) -> &Vocab {
        &self.inner.vocab
    }

    /// Which tokenizer this is.
    pub fn kind(&self) -> TokenizerKind {
        match &self.inner.vocab {
            Vocab::Bpe(bpe) => bpe.kind(),
            Vocab::Char(_) => TokenizerKind::Char,
            Vocab::Byte => TokenizerKind::Byte,
            Vocab::File(_) => TokenizerKind::File,
        }
    }

    /// The number of ids, special and unassigned ones included: every id is below this.
    pub fn vocab_size(&self) -> usize {
        match &self.inner.vocab {
            Vocab::Bpe(bpe) => bpe.vocab_size(),
            Vocab::Char(chars) => chars.len(),
            Vocab::Byte => byte::VOCAB_SIZE,
            Vocab::File(file) => file.vocab_size(),
        }
    }

    /// The id that separates documents; none for [`TokenizerKind::Char`], and for a file that has none.
    pub fn end_of_text(&self) -> Option<u32> {
        match &self.inner.vocab {
            Vocab::Bpe(bpe) => Some(bpe.end_of_text()),
            Vocab::Char(_) => None,
            Vocab::Byte => Some(byte::END_OF_TEXT),
            Vocab::File(file) => file.end_of_text(),
        }
    }

    /// The id that stands for text that the vocabulary lacks: only a file's may have one.
    pub fn unknown(&self) -> Option<u32> {
        match &self.inner.vocab {
            Vocab::File(file) => file.unknown(),
            Vocab::Bpe(_) | Vocab::Char(_) | Vocab::Byte => None,
        }
    }

    /// The ids of `text`. Special tokens are never read from text: `<|endoftext|>` in it is thirteen plain characters.
    /// A byte-pair vocabulary encodes an unbroken run of more than 256 KiB (blanks, letters, NUL bytes) in parts of that
    /// length, where tiktoken merges across them.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownCharacter`] for a character outside a character tokenizer's alphabet;
    /// [`TokenizerError::Encode`] where a file's vocabulary lacks what it needs. A byte-pair vocabulary takes any text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        match &self.inner.vocab {
            Vocab::Bpe(bpe) => Ok(bpe.encode(text)),
            Vocab::Char(chars) => chars.encode(text),
            Vocab::Byte => Ok(byte::encode(text)),
            Vocab::File(file) => file.encode(text),
        }
    }

    /// The bytes that `ids` stand for from the beginning of a text on, which need not be whole characters. Special tokens
    /// stand for their names, but [`TokenizerKind::Byte`]'s end of text for nothing.
    ///
    /// # Errors
    /// [`TokenizerError::IdOutOfRange`] or [`TokenizerError::IdUnassigned`], naming the first such id.
    pub fn decode_bytes(&self, ids: &[u32]) -> Result<Vec<u8>, TokenizerError> {
        self.decode_at(ids, &mut Position::default())
    }

    /// The bytes that `ids` stand for where they come at `position`, which is moved on.
    pub(crate) fn decode_at(
        &self,
        ids: &[u32],
        position: &mut Position,
    ) -> Result<Vec<u8>, TokenizerError> {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            if !self.push_bytes(id, position, &mut bytes) {
                return Err(self.no_such_id(id));
            }
        }
        Ok(bytes)
    }

    /// The text that `ids` stand for, with U+FFFD in place of bytes that are not UTF-8.
    ///
    /// # Errors
    /// As [`Tokenizer::decode_bytes`].
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        let bytes = self.decode_bytes(ids)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// A decoder that takes one token at a time, for text that is shown as it is made.
    pub fn stream(&self) -> DecodeStream {
        DecodeStream::new(self.clone())
    }

    /// Appends the bytes of `id`; false where there is no such id.
    pub(crate) fn push_bytes(&self, id: u32, position: &mut Position, out: &mut Vec<u8>) -> bool {
        match &self.inner.vocab {
            Vocab::Bpe(bpe) => bpe.push_bytes(id, out),
            Vocab::Char(chars) => chars.push_bytes(id, out),
            Vocab::Byte => byte::push_bytes(id, out),
            Vocab::File(file) => file.push_bytes(id, position, out),
        }
    }

    fn no_such_id(&self, id: u32) -> TokenizerError {
        let (kind, vocab_size) = (self.kind(), self.vocab_size());
        if (id as usize) < vocab_size {
            TokenizerError::IdUnassigned { id, kind }
        } else {
            TokenizerError::IdOutOfRange {
                id,
                kind,
                vocab_size,
            }
        }
    }

    /// The vocabulary's hash, worked out once: per process for a byte-pair vocabulary, else per tokenizer.
    pub(crate) fn hash(&self) -> String {
        let cache = match &self.inner.vocab {
            Vocab::Bpe(bpe) => bpe.hash_cache(),
            Vocab::Char(_) | Vocab::Byte | Vocab::File(_) => &self.inner.hash,
        };
        cache.get_or_init(|| self.hash_vocabulary()).clone()
    }

    fn hash_vocabulary(&self) -> String {
        let mut table = match &self.inner.vocab {
            Vocab::File(file) => file.json().to_vec(),
            _ => self.table(),
        };
        let end_of_text = self.end_of_text().unwrap_or(u32::MAX);
        table.extend_from_slice(&end_of_text.to_le_bytes());
        blake3::hash(&table).to_hex().to_string()
    }

    /// Every id's bytes in the order of the ids, each after its length.
    fn table(&self) -> Vec<u8> {
        let mut table = Vec::new();
        let mut bytes = Vec::new();
        for id in 0..self.vocab_size() as u32 {
            bytes.clear();
            // An unassigned id hashes as a length that no token has.
            let len = match self.push_bytes(id, &mut Position::default(), &mut bytes) {
                true => bytes.len() as u32,
                false => u32::MAX,
            };
            table.extend_from_slice(&len.to_le_bytes());
            table.extend_from_slice(&bytes);
        }
        table
    }
}
