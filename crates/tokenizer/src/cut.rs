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

use crate::{Tokenizer, TokenizerKind};

impl Tokenizer {
    /// The last place in `text`, in bytes, at which the parts before and after can be encoded apart; both are not
    /// empty. None where no such place is known.
    pub fn last_cut(&self, text: &str) -> Option<usize> {
        match self.kind() {
            TokenizerKind::Char | TokenizerKind::Byte => {
                let (at, _) = text.char_indices().next_back()?;
                (at > 0).then_some(at)
            }
            TokenizerKind::Gpt2 | TokenizerKind::Cl100k | TokenizerKind::O200k => {
                (1..text.len()).rev().find(|&at| is_cut(text, at))
            }
        }
    }
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

    fn all_cuts(text: &str) -> Vec<usize> {
        (1..text.len()).filter(|&at| is_cut(text, at)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn parts_give_the_tokens_of_the_whole(text in nasty_text()) {
            for kind in [TokenizerKind::Gpt2, TokenizerKind::Cl100k, TokenizerKind::O200k] {
                let tokenizer = Tokenizer::builtin(kind).unwrap();
                let mut ids = Vec::new();
                let mut start = 0;
                for at in all_cuts(&text).into_iter().chain([text.len()]) {
                    ids.extend(tokenizer.encode(&text[start..at]).unwrap());
                    start = at;
                }
                prop_assert_eq!(ids, tokenizer.encode(&text).unwrap(), "{}", kind);
            }
        }
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
