//! Special tokens by name, and text in which their names stand for them.
//!
//! [`Tokenizer::encode`] never makes a special token. What is here does, for text that the program itself has put together.

use std::fmt;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::normalizer::Range as CrateRange;
use tokenizers::{
    AddedToken, AddedVocabulary, Model, OffsetReferential, OffsetType, PreTokenizedString,
    PreTokenizer, Token,
};

use crate::chat::is_barred;
use crate::file::{FileVocab, refuse};
use crate::pieces::Position;
use crate::tokenizer::Vocab;
use crate::{Tokenizer, TokenizerError, byte, export};

impl Tokenizer {
    /// The special tokens with their ids, by id. What the end of a text is called where it has no name of its own is
    /// `<|endoftext|>`.
    pub fn special_tokens(&self) -> Vec<(String, u32)> {
        match self.vocab() {
            Vocab::Bpe(bpe) => bpe.special_tokens(),
            Vocab::Char(_) => Vec::new(),
            Vocab::Byte => vec![(export::END_OF_TEXT.to_owned(), byte::END_OF_TEXT)],
            Vocab::File(file) => file_specials(file),
        }
    }

    /// The id of the special token `name`.
    pub fn special_id(&self, name: &str) -> Option<u32> {
        let specials = self.special_tokens().into_iter();
        specials
            .filter(|(special, _)| special == name)
            .map(|(_, id)| id)
            .next()
    }

    /// Whether `name` is a special token, or one that was added to a file's vocabulary and is read from text as a whole.
    pub(crate) fn has_token(&self, name: &str) -> bool {
        match self.vocab() {
            Vocab::File(file) => file.token_id(name).is_some(),
            Vocab::Bpe(_) | Vocab::Char(_) | Vocab::Byte => self.special_id(name).is_some(),
        }
    }

    /// The ids of `text`, in which special tokens' names are the tokens: the longest where several begin at a place. For text
    /// that the program itself has put together: nobody else's must be in it.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_with_special(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let placed = MarkupEncoder::new(self).encode(text, &[])?;
        Ok(placed.into_iter().map(|token| token.id).collect())
    }
}

/// The special tokens of a file: those that it says are, and the one that ends a text.
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

/// A token and the bytes of the text that it stands for. Where a character is more than one token, each stands for all of it
/// or for its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedToken {
    pub id: u32,
    pub start: usize,
    pub end: usize,
}

/// Encodes texts in which special tokens' names stand for them.
pub(crate) struct MarkupEncoder {
    tokenizer: Tokenizer,
    finder: Finder,
}

/// How special tokens' names are found.
enum Finder {
    /// By their names alone.
    Names {
        automaton: Option<AhoCorasick>,
        ids: Vec<u32>,
    },
    /// By what a `tokenizer.json` says of each: white space that it takes with it, and so on.
    File(Box<AddedVocabulary>),
}

impl MarkupEncoder {
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let finder = match tokenizer.vocab() {
            Vocab::File(file) => Finder::File(Box::new(with_specials(file))),
            Vocab::Bpe(_) | Vocab::Char(_) | Vocab::Byte => {
                let (names, ids): (Vec<String>, Vec<u32>) =
                    tokenizer.special_tokens().into_iter().unzip();
                let automaton = AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostLongest)
                    .build(names);
                Finder::Names {
                    automaton: automaton.ok(),
                    ids,
                }
            }
        };
        Self {
            tokenizer: tokenizer.clone(),
            finder,
        }
    }

    /// The tokens of `text`. A special token's name that one of `barriers` lies in, which are places in bytes and ascend, is
    /// plain text.
    pub fn encode(
        &self,
        text: &str,
        barriers: &[usize],
    ) -> Result<Vec<PlacedToken>, TokenizerError> {
        match (&self.finder, self.tokenizer.vocab()) {
            (Finder::File(added), Vocab::File(file)) => encode_file(file, added, text, barriers),
            (Finder::Names { automaton, ids }, _) => {
                let mut placed = Vec::new();
                let mut done = 0;
                let found = automaton
                    .iter()
                    .flat_map(|automaton| automaton.find_iter(text));
                for name in found.filter(|found| !is_barred(text, &found.range(), barriers)) {
                    self.push_plain(text, done..name.start(), &mut placed)?;
                    placed.push(PlacedToken {
                        id: ids[name.pattern()],
                        start: name.start(),
                        end: name.end(),
                    });
                    done = name.end();
                }
                self.push_plain(text, done..text.len(), &mut placed)?;
                Ok(placed)
            }
            (Finder::File(_), _) => self.encode_plain(text),
        }
    }

    /// The tokens of `text`, none of them special.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<PlacedToken>, TokenizerError> {
        if let Vocab::File(file) = self.tokenizer.vocab() {
            return encode_file(file, file.inner().get_added_vocabulary(), text, &[]);
        }
        let mut placed = Vec::new();
        self.push_plain(text, 0..text.len(), &mut placed)?;
        Ok(placed)
    }

    /// Appends the tokens of a part of `text`, whose bytes follow each other as the tokens do.
    fn push_plain(
        &self,
        text: &str,
        part: Range<usize>,
        placed: &mut Vec<PlacedToken>,
    ) -> Result<(), TokenizerError> {
        let mut start = part.start;
        let mut bytes = Vec::new();
        for id in self.tokenizer.encode(&text[part])? {
            bytes.clear();
            self.tokenizer
                .push_bytes(id, &mut Position::within(), &mut bytes);
            let end = start + bytes.len();
            placed.push(PlacedToken { id, start, end });
            start = end;
        }
        Ok(())
    }
}

/// What a file has added to its model's vocabulary, special tokens to be found in text.
fn with_specials(file: &FileVocab) -> AddedVocabulary {
    let inner = file.inner();
    let mut added = inner.get_added_vocabulary().clone();
    added.set_encode_special_tokens(false);
    // Which token ends a text may be said beside the file.
    let known = added.get_added_tokens_decoder();
    let unknown = file.special().filter(|id| !known.contains_key(id));
    let more: Vec<AddedToken> = unknown
        .filter_map(|id| file.token(id))
        .map(|name| AddedToken::from(name, true))
        .collect();
    if !more.is_empty() {
        added.add_special_tokens(&more, inner.get_model(), inner.get_normalizer());
    }
    added
}

/// The tokens of `text`, step by step as the crate takes them, so that offsets and what depends on the beginning of a text
/// are the crate's.
fn encode_file(
    file: &FileVocab,
    added: &AddedVocabulary,
    text: &str,
    barriers: &[usize],
) -> Result<Vec<PlacedToken>, TokenizerError> {
    let inner = file.inner();
    let mut parts = added.extract_and_normalize(inner.get_normalizer(), text);
    let found = parts
        .get_splits(OffsetReferential::Original, OffsetType::Byte)
        .into_iter();
    let found = found
        .filter_map(|(_, (start, end), tokens)| Some((start..end, tokens.as_ref()?.first()?.id)));
    let found: Vec<(Range<usize>, u32)> = found.collect();
    let is_whole = |(range, id): &(Range<usize>, u32)| {
        !file_special(file, *id) || !is_barred(text, range, barriers)
    };
    if !found.iter().all(is_whole) {
        parts =
            split_at(file, text, found.into_iter().filter(is_whole).collect()).map_err(refuse)?;
    }
    if let Some(pre_tokenizer) = inner.get_pre_tokenizer() {
        pre_tokenizer.pre_tokenize(&mut parts).map_err(refuse)?;
    }
    let tokenize = |piece: &str| -> tokenizers::Result<Vec<Token>> {
        let mut plain = Vec::new();
        for token in inner.get_model().tokenize(piece)? {
            match file.is_special(token.id) {
                true => {
                    let spelled = file.spell(token.id)?.into_iter();
                    plain.extend(spelled.map(|id| Token::new(id, String::new(), token.offsets)));
                }
                false => plain.push(token),
            }
        }
        Ok(plain)
    };
    parts
        .tokenize(|piece| tokenize(piece.get()))
        .map_err(refuse)?;
    let encoding = parts
        .into_encoding(None, 0, OffsetType::Byte)
        .map_err(refuse)?;
    let ids = encoding.get_ids().iter();
    let placed = ids.zip(encoding.get_offsets());
    Ok(placed
        .map(|(&id, &(start, end))| PlacedToken { id, start, end })
        .collect())
}

/// Whether an added token is special, the unknown one too.
fn file_special(file: &FileVocab, id: u32) -> bool {
    file.is_special(id) || Some(id) == file.unknown()
}

/// `text` with the added tokens at `found` and nothing else split off, and the rest normalized.
fn split_at(
    file: &FileVocab,
    text: &str,
    found: Vec<(Range<usize>, u32)>,
) -> tokenizers::Result<PreTokenizedString> {
    let mut parts = PreTokenizedString::from(text);
    parts.split(|_, whole| {
        let mut pieces = Vec::new();
        let mut done = 0;
        let mut push = |range: Range<usize>, id: Option<u32>| {
            if let Some(piece) = whole.slice(CrateRange::Original(range)) {
                let len = piece.get().len();
                let token = id.map(|id| vec![Token::new(id, piece.get().to_owned(), (0, len))]);
                pieces.push((piece, token));
            }
        };
        for (range, id) in found.iter().cloned() {
            if range.start >= done {
                push(done..range.start, None);
                done = range.end;
                push(range, Some(id));
            }
        }
        push(done..text.len(), None);
        Ok(pieces)
    })?;
    if let Some(normalizer) = file.inner().get_normalizer() {
        parts.normalize(|piece| tokenizers::Normalizer::normalize(normalizer, piece))?;
    }
    Ok(parts)
}

impl fmt::Debug for MarkupEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MarkupEncoder")
            .field("tokenizer", &self.tokenizer)
            .finish_non_exhaustive()
    }
}
