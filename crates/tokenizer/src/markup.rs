//! Encodes text in which special tokens' names are the tokens.
//!
//! [`Tokenizer::encode`] never produces special tokens. The functions here do, for text that the program itself
//! has assembled.

use std::fmt;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::normalizer::Range as CrateRange;
use tokenizers::{
    AddedToken, AddedVocabulary, Model, OffsetReferential, OffsetType, PreTokenizedString,
    PreTokenizer, Token,
};

use crate::barriers::is_barred;
use crate::decoder::Position;
use crate::file::{FileVocab, encode_error};
use crate::tokenizer::Vocab;
use crate::{Tokenizer, TokenizerError};

impl Tokenizer {
    /// Encodes `text` and recognizes special tokens by name; of several names at a position, the longest. Only
    /// for text assembled by the program itself, without untrusted parts.
    ///
    /// # Errors
    /// See [`Tokenizer::encode`].
    pub fn encode_with_special(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let placed = MarkupEncoder::new(self).encode(text, &[])?;
        Ok(placed.into_iter().map(|token| token.id).collect())
    }
}

/// A token and its byte range in the text. If a character consists of several tokens, each has the range of the
/// character or of its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedToken {
    pub id: u32,
    pub start: usize,
    pub end: usize,
}

/// Encodes texts and recognizes special tokens by name.
pub(crate) struct MarkupEncoder {
    tokenizer: Tokenizer,
    finder: Finder,
}

/// The matcher of special tokens' names.
enum Finder {
    /// Finds exact names.
    Names {
        automaton: Option<AhoCorasick>,
        ids: Vec<u32>,
    },
    /// Follows the options of a `tokenizer.json`, such as surrounding white space that belongs to a token.
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

    /// Encodes `text`. A special token's name that contains one of `barriers` is plain text. `barriers` are
    /// ascending byte offsets.
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

    /// Encodes `text` without special tokens.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<PlacedToken>, TokenizerError> {
        if let Vocab::File(file) = self.tokenizer.vocab() {
            return encode_file(file, file.inner().get_added_vocabulary(), text, &[]);
        }
        let mut placed = Vec::new();
        self.push_plain(text, 0..text.len(), &mut placed)?;
        Ok(placed)
    }

    /// Appends the tokens of a part of `text`. Their byte ranges are consecutive.
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

/// Returns the added tokens of a file, configured to recognize special ones in text.
fn with_specials(file: &FileVocab) -> AddedVocabulary {
    let inner = file.inner();
    let mut added = inner.get_added_vocabulary().clone();
    added.set_encode_special_tokens(false);
    // The end-of-text token may be configured outside the file.
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

/// Encodes `text` by the same steps as the crate, so that offsets and the handling of the text's beginning are
/// the same.
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
        // A normalizer can produce a name from other text.
        let found = text.get(range.clone()).unwrap_or_default();
        let is_named = || file.token(*id).is_some_and(|name| found.contains(&name));
        !is_special(file, *id) || (is_named() && !is_barred(text, range, barriers))
    };
    if !found.iter().all(is_markup) {
        parts = split_at(file, text, found.into_iter().filter(is_markup).collect())
            .map_err(encode_error)?;
    }
    if let Some(pre_tokenizer) = inner.get_pre_tokenizer() {
        pre_tokenizer
            .pre_tokenize(&mut parts)
            .map_err(encode_error)?;
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
        .map_err(encode_error)?;
    let encoding = parts
        .into_encoding(None, 0, OffsetType::Byte)
        .map_err(encode_error)?;
    let ids = encoding.get_ids().iter();
    let placed = ids.zip(encoding.get_offsets());
    Ok(placed
        .map(|(&id, &(start, end))| PlacedToken { id, start, end })
        .collect())
}

/// Returns true if an added token is special, including the unknown token.
fn is_special(file: &FileVocab, id: u32) -> bool {
    file.is_special(id) || Some(id) == file.unknown()
}

/// Splits off the added tokens at `found` and normalizes the rest of `text`.
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

    /// The full-width `＜s＞` is normalized to `<s>`, and the library looks for this token after normalization.
    #[test]
    fn normalized_text_does_not_become_a_special_token() {
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
    fn tokens_have_their_byte_ranges() {
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
