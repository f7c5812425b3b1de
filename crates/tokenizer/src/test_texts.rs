//! Texts and tokenizers shared by the tests of splitting and encoding.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::Value;

use crate::{Tokenizer, TokenizerKind, patterns};

/// The built-in byte-pair vocabularies.
pub(crate) const BYTE_PAIRS: [TokenizerKind; 4] = [
    TokenizerKind::Gpt2,
    TokenizerKind::P50k,
    TokenizerKind::Cl100k,
    TokenizerKind::O200k,
];

/// cl100k's vocabulary as a `tokenizer.json`, once with each known pattern.
pub(crate) static FILES: LazyLock<Vec<(Vec<u8>, Tokenizer)>> = LazyLock::new(|| {
    let cl100k = Tokenizer::builtin(TokenizerKind::Cl100k).unwrap();
    let file: Value = serde_json::from_slice(&cl100k.to_tokenizer_json()).unwrap();
    let with = |pattern: &&str| {
        let mut file = file.clone();
        file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = (*pattern).into();
        let json = file.to_string().into_bytes();
        let tokenizer = Tokenizer::from_json(json.clone()).unwrap();
        (json, tokenizer)
    };
    patterns::ALL.iter().map(with).collect()
});

/// Texts of characters that the patterns treat differently, some of them repeated.
pub(crate) fn arbitrary_text() -> impl Strategy<Value = String> {
    let atom = prop_oneof![
        4 => prop::sample::select(vec!["\n", " ", "a", "B", "word", " the", "ation"]),
        2 => prop::sample::select(vec!["\r", "\r\n", "\t", "  ", "\u{a0}", "\u{2028}", "\u{85}"]),
        2 => prop::sample::select(vec!["'s", "'LL", "'", "'\u{17F}", "/", "//", ".", "!?", "\"", "<|endoftext|>"]),
        2 => prop::sample::select(vec!["7", "1234", "½", "٣", "²"]),
        2 => prop::sample::select(vec!["é", "e\u{301}", "\u{301}", "Ǆ", "ʰ", "漢", "ß", "ſ", "🔥", "\u{93f}", "\u{200d}"]),
        1 => any::<char>().prop_map(|c| Box::leak(c.to_string().into_boxed_str()) as &str),
    ];
    let run = (atom, prop_oneof![9 => Just(1), 1 => 2usize..60]);
    let text = |runs: Vec<(&str, usize)>| {
        runs.iter()
            .map(|(atom, times)| atom.repeat(*times))
            .collect()
    };
    prop::collection::vec(run, 0..40).prop_map(text)
}
