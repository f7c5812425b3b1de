//! A lower bound of the number of tokens of a text, without encoding it.

use serde_json::Value;

use crate::tokenizer::Vocab;
use crate::{Tokenizer, byte_level, patterns};

/// A lower bound of the number of tokens of a text, which is much faster to compute than its tokens.
///
/// ```
/// use emberlm_tokenizer::{LeastTokens, Tokenizer, TokenizerKind};
///
/// let tokenizer = Tokenizer::builtin(TokenizerKind::Gpt2)?;
/// let text = "seven ".repeat(10_000);
/// // The longest token of GPT-2 has 128 bytes.
/// assert_eq!(LeastTokens::new(&tokenizer).of(&text), 60_000_usize.div_ceil(128));
/// # Ok::<(), emberlm_tokenizer::TokenizerError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastTokens(Relation);

/// The relation of tokens to the characters of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    /// Every byte is in a token, which has at most this many.
    PerBytes(usize),
    /// Every character is a token.
    PerChar,
    /// Every ASCII punctuation character and every word with an ASCII letter or digit is a token or more: BERT's
    /// vocabularies.
    PerWord,
    /// Nothing is known: text can be removed before it is encoded.
    Unknown,
}

impl LeastTokens {
    /// The bound of texts of a tokenizer.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        Self(Relation::of(tokenizer.vocab()))
    }

    /// The bound of a text. 0 if nothing is known about the vocabulary.
    pub fn of(self, text: &str) -> usize {
        match self.0 {
            Relation::PerBytes(longest) => text.len().div_ceil(longest),
            Relation::PerChar => text.chars().count(),
            Relation::PerWord => words(text),
            Relation::Unknown => 0,
        }
    }
}

impl Relation {
    fn of(vocab: &Vocab) -> Self {
        match vocab {
            Vocab::Bpe(bpe) => {
                let lengths = (0..bpe.vocab_size() as u32).filter_map(|id| {
                    let mut bytes = Vec::new();
                    bpe.push_bytes(id, &mut bytes).then_some(bytes.len())
                });
                lengths.max().map_or(Self::Unknown, Self::PerBytes)
            }
            Vocab::Char(_) => Self::PerChar,
            Vocab::Byte => Self::PerBytes(1),
            Vocab::File(file) => {
                let json = serde_json::from_slice(file.json()).unwrap_or_default();
                Self::of_file(&json)
            }
        }
    }

    fn of_file(file: &Value) -> Self {
        let vocab = || file["model"]["vocab"].as_object().into_iter().flatten();
        if patterns::known_pattern(file).is_some() {
            // A byte without a token would be left out.
            let is_whole = (0..=u8::MAX).all(|byte| {
                let name = byte_level::spell(&[byte]);
                file["model"]["vocab"].get(name.as_str()).is_some()
            });
            // Each character stands for a byte.
            let longest = vocab().map(|(token, _)| token.chars().count()).max();
            let per_bytes = longest.filter(|_| is_whole).map(Self::PerBytes);
            return per_bytes.unwrap_or(Self::Unknown);
        }
        let kind = |part: &str| file[part]["type"].as_str();
        // Other added tokens can have several words.
        let added = file["added_tokens"].as_array().into_iter().flatten();
        let splits_words = kind("model") == Some("WordPiece")
            && kind("pre_tokenizer") == Some("BertPreTokenizer")
            && matches!(kind("normalizer"), None | Some("BertNormalizer"))
            && added.into_iter().all(|token| token["special"] == true);
        match splits_words {
            true => Self::PerWord,
            false => Self::Unknown,
        }
    }
}

/// The number of ASCII punctuation characters, and of words between them and white space that have an ASCII letter or digit.
fn words(text: &str) -> usize {
    let (mut count, mut in_word) = (0, false);
    for byte in text.bytes() {
        match byte {
            // Other white space is removed by BERT's normalizer, as all control characters.
            b' ' | b'\t' | b'\n' | b'\r' => in_word = false,
            _ if byte.is_ascii_punctuation() => {
                count += 1;
                in_word = false;
            }
            _ if byte.is_ascii_alphanumeric() && !in_word => {
                count += 1;
                in_word = true;
            }
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::TokenizerKind;
    use crate::test_texts::{BYTE_PAIRS, FILES, arbitrary_text};

    const WORDS: &[u8] = include_bytes!("../tests/fixtures/files/wordpiece.json");

    fn of_words() -> Tokenizer {
        Tokenizer::from_json(WORDS.to_vec()).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_text_has_fewer_tokens(text in arbitrary_text()) {
            let builtin = BYTE_PAIRS.into_iter().chain([TokenizerKind::Byte]);
            let builtin = builtin.map(|kind| Tokenizer::builtin(kind).unwrap());
            let files = FILES.iter().map(|(_, tokenizer)| tokenizer.clone());
            for tokenizer in builtin.chain(files).chain([of_words()]) {
                let (least, tokens) = (least(&tokenizer, &text), tokenizer.encode(&text).unwrap());
                prop_assert!(least <= tokens.len(), "{:?}: {least} of {}", tokenizer.kind(), tokens.len());
            }
        }
    }

    fn least(tokenizer: &Tokenizer, text: &str) -> usize {
        LeastTokens::new(tokenizer).of(text)
    }

    #[test]
    fn the_bound_follows_from_the_kind_of_vocabulary() {
        let byte = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        assert_eq!(least(&byte, "été"), 5);
        let chars = Tokenizer::char_from_alphabet("ét".chars()).unwrap();
        assert_eq!(least(&chars, "été"), 3);
        // GPT-2's longest token has 128 bytes.
        let gpt2 = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
        assert_eq!(least(&gpt2, &"a".repeat(1281)), 11);
        let words = of_words();
        assert_eq!(least(&words, "a-b, c2 你\u{301}\u{b}"), 5);
        assert_eq!(least(&words, &"!".repeat(1000)), 1000);
        assert_eq!(least(&words, &" ".repeat(1000)), 0);
    }

    /// Without a token for every byte, text is left out.
    #[test]
    fn nothing_is_known_of_vocabularies_that_leave_text_out() {
        let mut file: Value = serde_json::from_slice(&FILES[0].0).unwrap();
        assert_ne!(Relation::of_file(&file), Relation::Unknown);
        let vocab = file["model"]["vocab"].as_object_mut().unwrap();
        vocab.remove("q").unwrap();
        assert_eq!(Relation::of_file(&file), Relation::Unknown);
        let mut file: Value = serde_json::from_slice(WORDS).unwrap();
        assert_eq!(Relation::of_file(&file), Relation::PerWord);
        file["added_tokens"][0]["special"] = false.into();
        assert_eq!(Relation::of_file(&file), Relation::Unknown);
    }
}
