//! The tokens that begin a word, for masking whole words.

use serde_json::Value;

use crate::Tokenizer;
use crate::tokenizer::Vocab;

/// The characters with which vocabularies mark a space or a line break before a token.
const MARKS: [char; 5] = ['\u{2581}', '\u{120}', '\u{10a}', ' ', '\n'];

impl Tokenizer {
    /// Returns true for each id that begins a word. WordPiece marks the other tokens (`##`); byte-pair and unigram
    /// vocabularies mark those after a space, so that punctuation belongs to the word before it. In a vocabulary without
    /// marks, every token is a word. `None` for characters and bytes.
    pub fn word_starts(&self) -> Option<Vec<bool>> {
        let pieces: Vec<Option<String>> = match self.vocab() {
            Vocab::Char(_) | Vocab::Byte => return None,
            Vocab::Bpe(bpe) => {
                let mut pieces = vec![None; self.vocab_size()];
                for (id, bytes) in bpe.tokens() {
                    if let Some(piece) = pieces.get_mut(id as usize) {
                        *piece = Some(String::from_utf8_lossy(bytes).into_owned());
                    }
                }
                pieces
            }
            Vocab::File(file) => {
                let pieces = (0..file.vocab_size() as u32).map(|id| file.token(id));
                let pieces: Vec<Option<String>> = pieces.collect();
                if let Some(prefix) = continuation(file.json()) {
                    let begins = |piece: &Option<String>| match piece {
                        Some(piece) => !piece.starts_with(&prefix),
                        None => true,
                    };
                    return Some(pieces.iter().map(begins).collect());
                }
                pieces
            }
        };
        let is_marked =
            |piece: &Option<String>| piece.as_ref().is_some_and(|piece| piece.starts_with(MARKS));
        let starts: Vec<bool> = pieces.iter().map(is_marked).collect();
        Some(match starts.contains(&true) {
            true => starts,
            false => vec![true; starts.len()],
        })
    }
}

/// The prefix of a WordPiece vocabulary's tokens inside of a word.
fn continuation(json: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(json).ok()?;
    let model = &value["model"];
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or("##");
    (model["type"] == "WordPiece").then(|| prefix.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::TokenizerKind;

    fn starts(model: Value) -> Option<Vec<bool>> {
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null, "model": model,
        });
        let tokenizer = Tokenizer::from_json(file.to_string()).unwrap();
        tokenizer.word_starts()
    }

    #[test]
    fn word_pieces_and_marked_spaces_delimit_words() {
        let pieces = json!({
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9,
            "vocab": {"[UNK]": 0, "play": 1, "##ing": 2, "##s": 3, ",": 4},
        });
        assert_eq!(starts(pieces), Some(vec![true, true, false, false, true]));
        let words = json!({"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0, "b": 1}});
        assert_eq!(starts(words), Some(vec![true, true]));
        let pairs = json!({
            "type": "BPE", "vocab": {"a": 0, "\u{120}a": 1, "b": 2, "\u{120}": 3}, "merges": ["\u{120} a"],
        });
        assert_eq!(starts(pairs), Some(vec![false, true, false, true]));
    }

    #[test]
    fn bytes_have_no_words() {
        let bytes = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        assert_eq!(bytes.word_starts(), None);
    }
}
