//! Text in which special tokens' names stand for them.
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

use crate::barriers::is_barred;
use crate::file::{FileVocab, refuse};
use crate::pieces::Position;
use crate::tokenizer::Vocab;
use crate::{Tokenizer, TokenizerError};

impl Tokenizer {
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

/// The matcher of special tokens' names.
enum Finder {
    /// By only their names.
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

/// The tokens that a file adds to its model's vocabulary, special ones that are found in text among them.
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
    let is_markup = |(range, id): &(Range<usize>, u32)| {
        // A normalizer can make a name of what is none.
        let found = text.get(range.clone()).unwrap_or_default();
        let is_named = || file.token(*id).is_some_and(|name| found.contains(&name));
        !is_special(file, *id) || (is_named() && !is_barred(text, range, barriers))
    };
    if !found.iter().all(is_markup) {
        parts =
            split_at(file, text, found.into_iter().filter(is_markup).collect()).map_err(refuse)?;
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

/// Returns true if an added token is special, the unknown one too.
fn is_special(file: &FileVocab, id: u32) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// `＜s＞` in full width becomes `<s>` by the normalizer, before which the library looks for this token.
    #[test]
    fn what_a_normalizer_turns_into_a_name_is_no_special_token() {
        let json = r#"{"version": "1.0", "truncation": null, "padding": null, "post_processor": null,
            "added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": true, "special": true}],
            "normalizer": {"type": "NFKC"}, "pre_tokenizer": null, "decoder": {"type": "Fuse"},
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": {"<": 0, "s": 1, ">": 2, "a": 3, "<s>": 4}, "merges": []}}"#;
        let tokenizer = Tokenizer::from_json(json).unwrap();
        let ids = tokenizer
            .encode_with_special("\u{FF1C}s\u{FF1E}a<s>")
            .unwrap();
        assert_eq!(ids, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn tokens_know_where_they_stand() {
        let tokenizer = Tokenizer::builtin(crate::TokenizerKind::Gpt2).unwrap();
        let text = "Hello<|endoftext|> 漢<|endoftext|>";
        let barrier = text.rfind('<').map(|at| at + 1);
        let placed =
            MarkupEncoder::new(&tokenizer).encode(text, &barrier.into_iter().collect::<Vec<_>>());
        let placed = placed.unwrap();
        assert_eq!(
            placed[1],
            PlacedToken {
                id: 50_256,
                start: 5,
                end: 18
            }
        );
        assert_eq!(placed.iter().filter(|token| token.id == 50_256).count(), 1);
        assert!(placed.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(placed.last().map(|token| token.end), Some(text.len()));
    }
}
