//! Where a text can be cut so that its parts, encoded apart, give the tokens of the whole.
//!
//! A byte-pair vocabulary first splits a text into pieces by a pattern, then encodes each piece by itself. So a cut is
//! safe where every pattern ends a piece, whatever stands on either side. Two such places, proved from the three
//! patterns (none looks back):
//!
//! - After a single `\n` between a character that is not white space and a letter or digit. No piece goes on from
//!   before the line break into the letter: words, numbers and blanks stop at the break, and symbols take line breaks
//!   (and in o200k `/`) with them but no letter or digit. The break itself is one piece with or without a text after
//!   it: `\s+(?!\S)` needs a second blank, so `\s` or `\s*[\r\n]+` takes it, and at the end of a part `\s+$`.
//! - Before a single space between two ASCII letters. The word before ends there in every pattern, whatever follows,
//!   and the space begins the next piece.
//!
//! The same holds for a `tokenizer.json` that splits by one of these patterns, or by Llama 3's or Qwen's, which differ from
//! cl100k's in how many digits and trailing blanks they take together, and that does nothing else with a text.

use serde_json::Value;

use crate::tokenizer::Vocab;
use crate::{Tokenizer, TokenizerKind, patterns};

impl Tokenizer {
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
            Vocab::File(file) => file.has_cuts(),
            Vocab::Bpe(_) | Vocab::Char(_) | Vocab::Byte => true,
        }
    }
}

/// Whether a `tokenizer.json` is one of those described above.
pub(crate) fn are_known(file: &Value) -> bool {
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
        let pattern = step["pattern"]["Regex"].as_str();
        step["type"] == "Split"
            && step["behavior"] == "Isolated"
            && step["invert"] == false
            && pattern.is_some_and(|pattern| patterns::ALL.contains(&pattern))
    };
    let pieces = &file["pre_tokenizer"];
    let known_pieces = match pieces["pretokenizers"].as_array().map(Vec::as_slice) {
        Some([split, rest]) => pieces["type"] == "Sequence" && splits(split) && bytes(rest, false),
        Some(_) => false,
        None => bytes(pieces, true),
    };
    file["normalizer"].is_null() && plain_model && all_special && known_pieces
}

/// Whether `at`, above 0 and below `text`'s length, is one of the two places described above.
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
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    /// Text made of what the patterns treat differently.
    fn nasty_text() -> impl Strategy<Value = String> {
        let atom = prop_oneof![
            4 => prop::sample::select(vec!["\n", " ", "a", "B", "word"]),
            2 => prop::sample::select(vec!["\r", "\r\n", "\t", "  ", "\u{a0}", "\u{2028}", "\u{85}"]),
            2 => prop::sample::select(vec!["'s", "'LL", "'", "/", "//", ".", "!?", "\"", "<|endoftext|>"]),
            2 => prop::sample::select(vec!["7", "1234", "½", "٣", "²"]),
            2 => prop::sample::select(vec!["é", "e\u{301}", "\u{301}", "Ǆ", "ʰ", "漢", "ß", "ſ", "🔥", "\u{93f}", "\u{200d}"]),
            1 => any::<char>().prop_map(|c| Box::leak(c.to_string().into_boxed_str()) as &str),
        ];
        prop::collection::vec(atom, 0..40).prop_map(|atoms| atoms.concat())
    }

    /// cl100k as a file, with each of the patterns that are known to have cuts.
    fn file_tokenizers() -> Vec<Tokenizer> {
        let json = Tokenizer::builtin(TokenizerKind::Cl100k)
            .unwrap()
            .to_tokenizer_json();
        let file: Value = serde_json::from_slice(&json).unwrap();
        let with = |pattern: &&str| {
            let mut file = file.clone();
            file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = (*pattern).into();
            let tokenizer = Tokenizer::from_json(file.to_string()).unwrap();
            assert!(tokenizer.has_cuts());
            tokenizer
        };
        patterns::ALL.iter().map(with).collect()
    }

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
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn parts_give_the_tokens_of_the_whole(text in nasty_text()) {
            for kind in [TokenizerKind::Gpt2, TokenizerKind::Cl100k, TokenizerKind::O200k] {
                check_parts(&Tokenizer::builtin(kind).unwrap(), &text)?;
            }
        }

        #[test]
        fn parts_give_the_tokens_of_the_whole_with_files_too(text in nasty_text()) {
            static FILES: LazyLock<Vec<Tokenizer>> = LazyLock::new(file_tokenizers);
            for tokenizer in &*FILES {
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
        assert!(are_known(&file));
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
            assert!(!are_known(&file));
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
    fn the_last_cut_leaves_something_on_both_sides() {
        let byte = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        assert_eq!(byte.last_cut("aé"), Some(1));
        assert_eq!(byte.last_cut("é"), None);
        let gpt2 = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
        assert_eq!(gpt2.last_cut("one two.\nThree!"), Some(9));
        assert_eq!(gpt2.last_cut("onetwo"), None);
    }
}
