//! The number of bytes of text per id, for metrics such as bits per byte.

use crate::Tokenizer;
use crate::decoder::Position;
use crate::tokenizer::Vocab;

/// The number of bytes of text of every id of a vocabulary. Special tokens have none.
///
/// The numbers are exact if decoding inverts encoding byte by byte: for byte-pair, character and byte
/// vocabularies, and for a `tokenizer.json` whose decoder preserves spaces (byte-level, byte fallback,
/// Metaspace). A space that such a tokenizer adds before a text and removes again does not count after an
/// end-of-text token, where a text begins.
#[derive(Clone, Debug)]
pub struct TokenBytes {
    /// Bytes by id, following other tokens. `None` if unknown, as for the unknown token.
    within: Vec<Option<u32>>,
    /// Bytes by id at the beginning of a text, if they differ.
    first: Option<Vec<Option<u32>>>,
    end_of_text: Option<u32>,
}

impl TokenBytes {
    /// Returns the number of bytes of `id` when it follows `previous`. `None` if unknown.
    pub fn after(&self, previous: u32, id: u32) -> Option<u32> {
        let table = match &self.first {
            Some(first) if Some(previous) == self.end_of_text => first,
            _ => &self.within,
        };
        table.get(id as usize).copied().flatten()
    }
}

impl Tokenizer {
    /// Returns the number of bytes of text of each id. `None` for a `tokenizer.json` that does not preserve
    /// spaces (WordPiece, WordLevel), whose ids do not determine the length of the text.
    pub fn token_bytes(&self) -> Option<TokenBytes> {
        let (special, unknown, differs) = match self.vocab() {
            Vocab::Bpe(bpe) => {
                let special = bpe.special_tokens().iter().map(|(_, id)| *id);
                (special.collect(), None, false)
            }
            Vocab::Char(_) | Vocab::Byte => (Vec::new(), None, false),
            Vocab::File(file) => {
                let decoder = file.decoder();
                if !decoder.keeps_spaces() {
                    return None;
                }
                let special = file.special().collect();
                (special, file.unknown(), decoder.depends_on_beginning())
            }
        };
        let mut within = self.lengths(Position::within());
        let mut first = differs.then(|| self.lengths(Position::default()));
        for table in [Some(&mut within), first.as_mut()].into_iter().flatten() {
            let mut set = |id: u32, bytes| {
                if let Some(entry) = table.get_mut(id as usize) {
                    *entry = bytes;
                }
            };
            special.iter().for_each(|&id| set(id, Some(0)));
            unknown.into_iter().for_each(|id| set(id, None));
        }
        Some(TokenBytes {
            within,
            first,
            end_of_text: self.end_of_text(),
        })
    }

    /// Returns the bytes of each id when it follows other tokens: empty for special, unknown and unassigned
    /// ids. `None` for a `tokenizer.json` whose tokens depend on the previous one (WordPiece, WordLevel).
    pub fn texts(&self) -> Option<Vec<Vec<u8>>> {
        let bytes = self.token_bytes()?;
        let text = |id| {
            let mut text = Vec::new();
            if bytes.within.get(id as usize).copied().flatten() > Some(0) {
                self.push_bytes(id, &mut Position::within(), &mut text);
            }
            text
        };
        Some((0..self.vocab_size() as u32).map(text).collect())
    }

    /// Returns the number of bytes of every id at `position`, or `None` for unassigned ids.
    fn lengths(&self, position: Position) -> Vec<Option<u32>> {
        let mut bytes = Vec::new();
        let length = |id| {
            bytes.clear();
            let mut position = position;
            self.push_bytes(id, &mut position, &mut bytes)
                .then_some(bytes.len() as u32)
        };
        (0..self.vocab_size() as u32).map(length).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerKind;

    fn total(bytes: &TokenBytes, ids: &[u32]) -> Option<u32> {
        let pairs = ids.windows(2);
        pairs.map(|pair| bytes.after(pair[0], pair[1])).sum()
    }

    /// The first token, which has no previous one here, is not counted.
    #[test]
    fn byte_counts_add_up_to_the_text() {
        let text = "a naïve café, 漢字 and 🔥\n\n  done";
        for kind in [
            TokenizerKind::Gpt2,
            TokenizerKind::Cl100k,
            TokenizerKind::O200k,
            TokenizerKind::Byte,
        ] {
            let tokenizer = Tokenizer::builtin(kind).unwrap();
            let bytes = tokenizer.token_bytes().unwrap();
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(total(&bytes, &ids), Some(text.len() as u32 - 1), "{kind}");
            let end = tokenizer.end_of_text().unwrap();
            assert_eq!(total(&bytes, &[ids[0], end]), Some(0), "{kind}");
        }
        let chars = Tokenizer::char_from_alphabet(text.chars()).unwrap();
        let ids = chars.encode(text).unwrap();
        let bytes = chars.token_bytes().unwrap();
        assert_eq!(total(&bytes, &ids), Some(text.len() as u32 - 1));
        assert_eq!(bytes.after(0, 1_000), None);
    }

    #[test]
    fn token_texts_concatenate_to_the_text() {
        let text = "a naïve café, 漢字 and 🔥\n\n  done";
        for kind in [TokenizerKind::Gpt2, TokenizerKind::Byte] {
            let tokenizer = Tokenizer::builtin(kind).unwrap();
            let texts = tokenizer.texts().unwrap();
            assert_eq!(texts.len(), tokenizer.vocab_size());
            let ids = tokenizer.encode(text).unwrap();
            let joined: Vec<&[u8]> = ids.iter().map(|&id| &texts[id as usize][..]).collect();
            assert_eq!(joined.concat(), text.as_bytes(), "{kind}");
            let end = tokenizer.end_of_text().unwrap();
            assert!(texts[end as usize].is_empty(), "{kind}");
        }
    }

    fn from_json(json: &str) -> Tokenizer {
        let vocab = crate::file::FileVocab::new(json.as_bytes().to_vec()).unwrap();
        Tokenizer::new(Vocab::File(Box::new(vocab)))
    }

    const UNIGRAM: &str = r#"{"version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [{"id": 0, "content": "<unk>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true},
          {"id": 1, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true}],
        "normalizer": null, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "post_processor": null, "decoder": DECODER,
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false,
            "vocab": [["<unk>", 0.0], ["</s>", 0.0], ["▁the", -1.0], ["▁é", -2.0], ["n", -3.0]]}}"#;

    #[test]
    fn a_prepended_space_is_not_counted() {
        let decoder = r#"{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}"#;
        let bytes = from_json(&UNIGRAM.replace("DECODER", decoder)).token_bytes();
        let bytes = bytes.unwrap();
        assert_eq!(bytes.after(1, 2), Some(3), "`the` at the beginning");
        assert_eq!(bytes.after(4, 2), Some(4), "` the` after a token");
        assert_eq!(bytes.after(4, 3), Some(3), "` é`");
        assert_eq!(bytes.after(4, 4), Some(1));
        assert_eq!(bytes.after(4, 1), Some(0), "the end of a text");
        assert_eq!(
            bytes.after(4, 0),
            None,
            "unknown text has an unknown length"
        );
        let texts = from_json(&UNIGRAM.replace("DECODER", decoder)).texts();
        assert_eq!(texts.unwrap(), ["", "", " the", " é", "n"].map(Vec::from));
    }

    #[test]
    fn tokenizers_that_drop_spaces_have_no_byte_counts() {
        let decoder = r###"{"type": "WordPiece", "prefix": "##", "cleanup": true}"###;
        assert!(
            from_json(&UNIGRAM.replace("DECODER", decoder))
                .token_bytes()
                .is_none()
        );
        assert!(
            from_json(&UNIGRAM.replace("DECODER", "null"))
                .token_bytes()
                .is_none()
        );
    }
}
