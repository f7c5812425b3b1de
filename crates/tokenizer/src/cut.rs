//! The places where a text can be cut so that its parts, encoded apart, give the tokens of the whole.
//!
//! A byte-pair vocabulary first splits a text into pieces by a pattern, then encodes each piece by itself. So a cut is
//! safe where every pattern ends a piece, whatever stands on either side. Two such places, proved from the
//! patterns (none looks back):
//!
//! - After a single `\n` between a character that is not white space and a letter or digit. No piece continues from
//!   before the line break into the letter: words, numbers and blanks stop at the break, and symbols take line breaks
//!   (and in o200k `/`) with them but no letter or digit. The break itself is one piece with or without a text after
//!   it: `\s+(?!\S)` needs a second blank, so `\s` or `\s*[\r\n]+` takes it, and at the end of a part `\s+$`.
//! - Before a single space between two ASCII letters. The word before ends there in every pattern, whatever follows,
//!   and the space begins the next piece.
//!
//! Where neither place comes for [`LONGEST_PIECE`] bytes, the text is split by the pattern itself, which gives exact
//! places too. A single piece that is longer (a run of blanks, NUL bytes or letters) is cut inexactly, so that memory is
//! bounded whatever the text: byte-pair merging takes some 40 bytes for each of a piece's.
//!
//! The same holds for a `tokenizer.json` that splits by one of these patterns, or by Llama 3's or Qwen's, which differ from
//! cl100k's in how many digits and trailing blanks they take together, and that does nothing else with a text.

use serde_json::Value;

use crate::tokenizer::Vocab;
use crate::{Tokenizer, TokenizerKind, patterns};

/// The longest piece that is encoded at once, in bytes. Longer ones are encoded in parts of this length, rounded down to
/// whole characters.
pub(crate) const LONGEST_PIECE: usize = 256 << 10;

/// The longest text that is encoded at once by a tokenizer without known cuts, in bytes: the `tokenizers` crate takes up
/// to 200 bytes of memory for each.
const LONGEST_TEXT: usize = 2 << 20;

/// A place to cut a text at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The first byte of the second part, between two characters.
    pub at: usize,
    /// True if the tokens of the parts are those of the whole.
    pub exact: bool,
}

impl Tokenizer {
    /// The most bytes that are to be encoded at once where memory is to be bounded: a longer text is cut by
    /// [`Tokenizer::cut`].
    pub fn longest_part(&self) -> usize {
        match self.has_cuts() {
            true => LONGEST_PIECE,
            false => LONGEST_TEXT,
        }
    }

    /// The place to cut a text that is longer than [`Tokenizer::longest_part`], at most so many bytes from its beginning:
    /// the last exact one where there is one, and else one that depends only on the text's first
    /// `2 * longest_part()` bytes. `text` must begin where a document or an earlier cut does.
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
        // Most tokenizers have the fewest tokens across line and word boundaries.
        let after = |end: Option<usize>| end.map(|at| at + 1).filter(|&at| at < text.len());
        let line = || after(window.rfind('\n'));
        let word = || window.rfind(' ').filter(|&at| at > 0);
        forced(line().or_else(word).unwrap_or(window.len()))
    }

    /// The last place in `text`, in bytes, at which the parts before and after can be encoded apart; both are not
    /// empty. None where no such place is known.
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

/// The pattern by which a `tokenizer.json` splits, where it is one of those described above.
pub(crate) fn known_pattern(file: &Value) -> Option<&'static str> {
    let absent = |value: &Value| value.is_null() || value == "";
    let model = &file["model"];
    let plain_model = model["type"] == "BPE"
        && absent(&model["continuing_subword_prefix"])
        && absent(&model["end_of_word_suffix"]);
    // Special tokens are not looked for in a text; other added tokens may lie across a cut.
    let added = file["added_tokens"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let all_special = added.iter().all(|token| token["special"] == true);
    let bytes = |step: &Value, own_pattern: bool| {
        step["type"] == "ByteLevel"
            && step["add_prefix_space"] == false
            && step["use_regex"].as_bool().unwrap_or(true) == own_pattern
    };
    let splits = |step: &Value| {
        let isolated =
            step["type"] == "Split" && step["behavior"] == "Isolated" && step["invert"] == false;
        let pattern = step["pattern"]["Regex"].as_str().filter(|_| isolated);
        patterns::ALL
            .into_iter()
            .find(|known| pattern == Some(known))
    };
    let pieces = &file["pre_tokenizer"];
    let pattern = match pieces["pretokenizers"].as_array().map(Vec::as_slice) {
        Some([split, rest]) if pieces["type"] == "Sequence" && bytes(rest, false) => splits(split),
        None if bytes(pieces, true) => Some(patterns::GPT2),
        _ => None,
    };
    let plain = file["normalizer"].is_null() && plain_model && all_special;
    pattern.filter(|_| plain)
}

/// Returns true if `at`, above 0 and below `text`'s length, is one of the two places described above.
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

    use super::*;
    use crate::hard_texts::{BYTE_PAIRS, FILES, nasty_text};

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
        fn parts_give_the_tokens_of_the_whole(text in nasty_text()) {
            for kind in BYTE_PAIRS {
                check_parts(&Tokenizer::builtin(kind).unwrap(), &text)?;
            }
        }

        #[test]
        fn parts_give_the_tokens_of_the_whole_with_files_too(text in nasty_text()) {
            for (_, tokenizer) in &*FILES {
                prop_assert!(tokenizer.has_cuts());
                check_parts(tokenizer, &text)?;
            }
        }
    }

    #[test]
    fn files_that_do_more_to_a_text_have_no_cuts() {
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
    fn ordinary_prose_has_cuts() {
        assert_eq!(all_cuts("One two.\nThree"), [3, 9]);
    }

    #[test]
    fn doubtful_places_are_no_cuts() {
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
    fn long_texts_without_safe_places_are_cut_where_pieces_end() {
        let pieces = [
            // No letters at all, nor a digit after a line break.
            "-1.25\n".repeat(100_000),
            "🔥".repeat(7) + &"!? \t\u{a0}'".repeat(60_000),
            "漢字。、".repeat(60_000),
            // A long piece after others.
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
    fn cuts_depend_on_the_beginning_of_a_text_alone() {
        let gpt2 = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
        let run = "\u{0}".repeat(5 * LONGEST_PIECE);
        let forced = Cut {
            at: LONGEST_PIECE,
            exact: false,
        };
        assert_eq!(gpt2.cut(&run), forced);
        assert_eq!(gpt2.cut(&run[..2 * LONGEST_PIECE]), forced);
        // Between characters, however many bytes they have.
        let marks = "!".to_owned() + &"\u{301}".repeat(LONGEST_PIECE);
        assert_eq!(gpt2.cut(&marks).at, LONGEST_PIECE - 1);
    }

    #[test]
    fn the_last_cut_leaves_something_on_both_sides() {
        let byte = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        assert_eq!(byte.last_cut("aé"), Some(1));
        assert_eq!(byte.last_cut("é"), None);
        let gpt2 = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
        assert_eq!(gpt2.last_cut("one two.\nThree!"), Some(9));
        assert_eq!(gpt2.last_cut("onetwo"), None);
    }
}
