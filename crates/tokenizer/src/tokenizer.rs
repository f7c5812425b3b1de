//! The [`Tokenizer`] type, which wraps every kind of vocabulary.

use std::sync::{Arc, OnceLock};

use crate::bpe::Bpe;
use crate::char::CharVocab;
use crate::decoder::Position;
use crate::file::FileVocab;
use crate::{TokenizerError, TokenizerKind, byte};

/// Converts text to token ids and back. Cheap to clone and to share between threads.
///
/// ```
/// use emberlm_tokenizer::{Tokenizer, TokenizerKind};
///
/// let tokenizer = Tokenizer::builtin(TokenizerKind::Byte)?;
/// assert_eq!(tokenizer.encode("hi")?, [104, 105]);
/// assert_eq!(tokenizer.decode(&[104, 105])?, "hi");
/// # Ok::<(), emberlm_tokenizer::TokenizerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    vocab: Vocab,
    hash: OnceLock<String>,
}

/// The vocabulary of a tokenizer.
#[derive(Debug)]
pub(crate) enum Vocab {
    Bpe(Bpe),
    Char(CharVocab),
    Byte,
    File(Box<FileVocab>),
}

impl Tokenizer {
    /// Returns a built-in tokenizer.
    ///
    /// A byte-pair vocabulary is loaded on the first call in a process, which takes some tenths of a second.
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

    /// Creates the character tokenizer of `chars`, which may be unsorted and contain duplicates. Ids follow the
    /// order of code points, as in nanoGPT.
    ///
    /// # Errors
    /// [`TokenizerError::EmptyAlphabet`] if there are no characters.
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

    /// The vocabulary.
    pub(crate) fn vocab(&self) -> &Vocab {
        &self.inner.vocab
    }

    /// The kind of tokenizer.
    pub fn kind(&self) -> TokenizerKind {
        match &self.inner.vocab {
            Vocab::Bpe(bpe) => bpe.kind(),
            Vocab::Char(_) => TokenizerKind::Char,
            Vocab::Byte => TokenizerKind::Byte,
            Vocab::File(_) => TokenizerKind::File,
        }
    }

    /// The number of ids, including special and unassigned ones. Every id is smaller.
    pub fn vocab_size(&self) -> usize {
        match &self.inner.vocab {
            Vocab::Bpe(bpe) => bpe.vocab_size(),
            Vocab::Char(chars) => chars.len(),
            Vocab::Byte => byte::VOCAB_SIZE,
            Vocab::File(file) => file.vocab_size(),
        }
    }

    /// The id that separates documents. `None` for [`TokenizerKind::Char`] and for files without such a token.
    pub fn end_of_text(&self) -> Option<u32> {
        match &self.inner.vocab {
            Vocab::Bpe(bpe) => Some(bpe.end_of_text()),
            Vocab::Char(_) => None,
            Vocab::Byte => Some(byte::END_OF_TEXT),
            Vocab::File(file) => file.end_of_text(),
        }
    }

    /// The id for text outside the vocabulary. Only tokenizers from files can have one.
    pub fn unknown(&self) -> Option<u32> {
        match &self.inner.vocab {
            Vocab::File(file) => file.unknown(),
            Vocab::Bpe(_) | Vocab::Char(_) | Vocab::Byte => None,
        }
    }

    /// Encodes `text`. Special tokens are never recognized in text: `<|endoftext|>` is thirteen plain
    /// characters. Byte-pair vocabularies encode an unbroken run of more than 256 KiB (white space, letters,
    /// NUL bytes) in chunks of that length, whereas tiktoken merges across them.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownCharacter`] for a character outside a character tokenizer's alphabet.
    /// [`TokenizerError::Encode`] if the vocabulary of a file cannot represent the text. Byte-pair vocabularies
    /// encode any text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        match &self.inner.vocab {
            Vocab::Bpe(bpe) => Ok(bpe.encode(text)),
            Vocab::Char(chars) => chars.encode(text),
            Vocab::Byte => Ok(byte::encode(text)),
            Vocab::File(file) => file.encode(text),
        }
    }

    /// Decodes `ids` at the beginning of a text. The bytes may end within a character. Special tokens decode to
    /// their names, except that the end of text of [`TokenizerKind::Byte`] decodes to nothing.
    ///
    /// # Errors
    /// [`TokenizerError::IdOutOfRange`] or [`TokenizerError::IdUnassigned`] for the first invalid id.
    pub fn decode_bytes(&self, ids: &[u32]) -> Result<Vec<u8>, TokenizerError> {
        self.decode_at(ids, &mut Position::default())
    }

    /// Decodes `ids` at `position` and advances it.
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

    /// Decodes `ids` to text. Bytes that are not valid UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// See [`Tokenizer::decode_bytes`].
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        let bytes = self.decode_bytes(ids)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Appends the bytes of `id`. Returns false if there is no such id.
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

    /// The vocabulary's hash. Computed once per process for a byte-pair vocabulary, otherwise once per
    /// tokenizer.
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

    /// Serializes the bytes of every id in order, each preceded by its length.
    fn table(&self) -> Vec<u8> {
        let mut table = Vec::new();
        let mut bytes = Vec::new();
        for id in 0..self.vocab_size() as u32 {
            bytes.clear();
            // Unassigned ids are hashed as an impossible length.
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
