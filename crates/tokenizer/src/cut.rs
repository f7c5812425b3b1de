//! Positions at which a text can be cut so that its parts, encoded separately, give the tokens of the whole.
//!
//! A byte-pair vocabulary splits a text into pieces by a pattern and encodes each piece separately. A cut is
//! therefore exact where every pattern ends a piece, regardless of the text on either side. Two such positions
//! follow from the patterns (none looks behind):
//!
//! - After a single `\n` between a character that is not white space and a letter or digit. No piece extends
//!   from before the line break into the letter: words, numbers and white space stop at the break, and symbols
//!   include line breaks (and in o200k `/`) but no letter or digit. The break itself is one piece with or
//!   without following text: `\s+(?!\S)` needs a second white-space character, so `\s` or `\s*[\r\n]+` matches
//!   it, or `\s+$` at the end of a part.
//! - Before a single space between two ASCII letters. Every pattern ends the preceding word there, and the
//!   space begins the next piece.
//!
//! If neither position occurs within [`LONGEST_PIECE`] bytes, the pattern itself is run, which also gives exact
//! positions. A single longer piece (a run of white space, NUL bytes or letters) is cut inexactly, to bound
//! memory: byte-pair merging takes some 40 bytes per byte of a piece.
//!
//! The same holds for a `tokenizer.json` that splits by one of these patterns, or by Llama 3's or Qwen's, and
//! does not change the text otherwise. Those two differ from cl100k's in the number of digits and in trailing
//! white space.

use crate::fast_encoder::LONGEST_PIECE;
use crate::tokenizer::Vocab;
use crate::{Tokenizer, TokenizerKind};

/// The longest text that is encoded at once by a tokenizer without known cuts, in bytes. The `tokenizers` crate
/// takes up to 200 bytes of memory per byte.
const LONGEST_TEXT: usize = 2 << 20;

/// A position at which to cut a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The byte offset of the second part, a character boundary.
    pub at: usize,
    /// True if the parts have the same tokens as the whole text.
    pub exact: bool,
}

impl Tokenizer {
    /// The largest number of bytes to encode at once with bounded memory. Cut longer texts with
    /// [`Tokenizer::cut`].
    pub fn longest_part(&self) -> usize {
        match self.has_cuts() {
            true => LONGEST_PIECE,
            false => LONGEST_TEXT,
        }
    }

    /// Returns a position at which to cut a text that is longer than [`Tokenizer::longest_part`], at most that
    /// many bytes from its beginning. It is the last exact position if there is one. Otherwise it is an inexact
    /// one that depends only on the first `2 * longest_part()` bytes. `text` must begin at a document's start
    /// or at an earlier cut.
    pub fn cut(&self, text: &str) -> Cut {
        let most = self.longest_part();
        let window = &text[..text.floor_char_boundary(most)];
        let exact = |at| Cut { at, exact: true };
        let forced = |at| Cut { at, exact: false };
        if let Some(at) = self.last_cut(window) {
            return exact(at);
        }
        let fast = match self.vocab() {
            Vocab::Bpe(bpe) => Some(bpe.fast_encoder()),
            Vocab::File(file) => file.fast_encoder(),
            Vocab::Char(_) | Vocab::Byte => return exact(window.len()),
        };
        if let Some(fast) = fast {
            let ahead = &text[..text.floor_char_boundary(2 * most)];
            let end = fast.last_piece_end(ahead, most);
            return end.map_or(forced(window.len()), exact);
        }
        // Few tokenizers have tokens that cross lines or words.
        let after = |end: Option<usize>| end.map(|at| at + 1).filter(|&at| at < text.len());
        let line = || after(window.rfind('\n'));
        let word = || window.rfind(' ').filter(|&at| at > 0);
        forced(line().or_else(word).unwrap_or(window.len()))
    }

    /// Returns the byte offset of the last position at which `text` can be cut exactly into two non-empty
    /// parts. `None` if there is no known one.
    pub fn last_cut(&self, text: &str) -> Option<usize> {
        match self.kind() {
            TokenizerKind::Char | TokenizerKind::Byte => {
                let (at, _) = text.char_indices().next_back()?;
                (at > 0).then_some(at)
            }
            _ if !self.has_cuts() => None,
            _ => (1..text.len()).rev().find(|&at| is_cut(text, at)),
        }
    }

    fn has_cuts(&self) -> bool {
        match self.vocab() {
            Vocab::File(file) => file.fast_encoder().is_some(),
            Vocab::Bpe(_) | Vocab::Char(_) | Vocab::Byte => true,
        }
    }
}

/// Returns true if `at` is one of the two positions described above. It must be within `text`, neither its
/// start nor its end.
fn is_cut(text: &str, at: usize) -> bool {
    let bytes = text.as_bytes();
    match (bytes[at - 1], bytes[at]) {
        (b'\n', _) => {
            let (before, after) = (&text[..at - 1], &text[at..]);
            before.ends_with(|c: char| !c.is_whitespace())
                && after.starts_with(char::is_alphanumeric)
        }
        (last, b' ') => {
            last.is_ascii_alphabetic() && bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::patterns::{self, known_pattern};
    use crate::test_texts::{BYTE_PAIRS, FILES, arbitrary_text};

    fn check_parts(tokenizer: &Tokenizer, text: &str) -> Result<(), TestCaseError> {
        let mut ids = Vec::new();
        let mut start = 0;
        for at in all_cuts(text).into_iter().chain([text.len()]) {
            ids.extend(tokenizer.encode(&text[start..at]).unwrap());
            start = at;
        }
        prop_assert_eq!(ids, tokenizer.encode(text).unwrap(), "{}", tokenizer.kind());
        Ok(())
    }

    fn all_cuts(text: &str) -> Vec<usize> {
        (1..text.len()).filter(|&at| is_cut(text, at)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(800))]
        #[test]
        fn parts_give_the_tokens_of_the_whole(text in arbitrary_text()) {
            for kind in BYTE_PAIRS {
                check_parts(&Tokenizer::builtin(kind).unwrap(), &text)?;
            }
        }

        #[test]
        fn parts_give_the_tokens_of_the_whole_with_files(text in arbitrary_text()) {
            for (_, tokenizer) in &*FILES {
                prop_assert!(tokenizer.has_cuts());
                check_parts(tokenizer, &text)?;
            }
        }
    }

    #[test]
    fn files_that_change_texts_have_no_cuts() {
        let json = Tokenizer::builtin(TokenizerKind::Byte)
            .unwrap()
            .to_tokenizer_json();
        let mut file: Value = serde_json::from_slice(&json).unwrap();
        file["pre_tokenizer"]["use_regex"] = true.into();
        assert_eq!(known_pattern(&file), Some(patterns::GPT2));
        let text = "one two.\nThree!";
        let tokenizer = Tokenizer::from_json(file.to_string()).unwrap();
        assert_eq!(tokenizer.last_cut(text), Some(9));
        let edits: [fn(&mut Value); 6] = [
            |file| file["pre_tokenizer"]["use_regex"] = false.into(),
            |file| file["pre_tokenizer"]["add_prefix_space"] = true.into(),
            |file| file["normalizer"] = serde_json::json!({"type": "NFC"}),
            |file| file["added_tokens"][0]["special"] = false.into(),
            |file| file["model"]["end_of_word_suffix"] = "e".into(),
            |file| file["model"]["type"] = "WordLevel".into(),
        ];
        for edit in edits {
            let mut file = file.clone();
            edit(&mut file);
            assert_eq!(known_pattern(&file), None);
        }
        file["pre_tokenizer"] = Value::Null;
        let tokenizer = Tokenizer::from_json(file.to_string()).unwrap();
        assert_eq!(tokenizer.last_cut(text), None);
    }

    #[test]
    fn prose_has_cuts() {
        assert_eq!(all_cuts("One two.\nThree"), [3, 9]);
    }

    #[test]
    fn unsafe_positions_are_not_cuts() {
        for text in [
            "a\n\nb",
            "a \nb",
            "a\n/b",
            "a\n b",
            "a  b",
            "a 1",
            "a.\r\n\r\nb",
            "\nb",
            "a\n",
        ] {
            assert_eq!(all_cuts(text), [0; 0], "{text:?}");
        }
    }

    #[test]
    fn long_texts_without_safe_positions_are_cut_between_pieces() {
        let pieces = [
            // No letters, and no digit after a line break.
            "-1.25\n".repeat(100_000),
            "🔥".repeat(7) + &"!? \t\u{a0}'".repeat(60_000),
            "漢字。、".repeat(60_000),
            // A long piece after short ones.
            "- ".repeat(1000) + &" ".repeat(600_000),
        ];
        for kind in BYTE_PAIRS {
            let tokenizer = Tokenizer::builtin(kind).unwrap();
            for text in &pieces {
                let (mut rest, mut ids) = (text.as_str(), Vec::new());
                let mut inexact = 0;
                while rest.len() > tokenizer.longest_part() {
                    let Cut { at, exact } = tokenizer.cut(rest);
                    assert!(at > 0 && at <= tokenizer.longest_part());
                    let (part, after) = rest.split_at(at);
                    ids.extend(tokenizer.encode(part).unwrap());
                    (rest, inexact) = (after, inexact + usize::from(!exact));
                }
                ids.extend(tokenizer.encode(rest).unwrap());
                assert_eq!(
                    inexact,
                    if text.ends_with("    ") { 2 } else { 0 },
                    "{kind}"
                );
                assert!(ids == tokenizer.encode(text).unwrap(), "{kind}");
            }
        }
    }

    #[test]
    fn cuts_depend_only_on_the_beginning_of_a_text() {
        let gpt2 = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
        let run = "\u{0}".repeat(5 * LONGEST_PIECE);
        let forced = Cut {
            at: LONGEST_PIECE,
            exact: false,
        };
        assert_eq!(gpt2.cut(&run), forced);
        assert_eq!(gpt2.cut(&run[..2 * LONGEST_PIECE]), forced);
        // Cuts are at character boundaries.
        let marks = "!".to_owned() + &"\u{301}".repeat(LONGEST_PIECE);
        assert_eq!(gpt2.cut(&marks).at, LONGEST_PIECE - 1);
    }

    #[test]
    fn the_last_cut_leaves_two_non_empty_parts() {
        let byte = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        assert_eq!(byte.last_cut("aé"), Some(1));
        assert_eq!(byte.last_cut("é"), None);
        let gpt2 = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
        assert_eq!(gpt2.last_cut("one two.\nThree!"), Some(9));
        assert_eq!(gpt2.last_cut("onetwo"), None);
    }
}
