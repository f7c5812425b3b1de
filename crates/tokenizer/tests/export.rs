//! Exports every tokenizer as a `tokenizer.json` and loads it with the `tokenizers` crate: ids and bytes must
//! be the same.

use std::sync::LazyLock;

use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use proptest::prelude::*;
use serde_json::Value;

/// Every built-in tokenizer, and the tokenizer loaded from its export.
static EXPORTED: LazyLock<Vec<(Tokenizer, Tokenizer)>> = LazyLock::new(|| {
    let made = |kind| match kind {
        TokenizerKind::Char => {
            Tokenizer::char_from_alphabet(hard_texts().concat().chars()).unwrap()
        }
        kind => Tokenizer::builtin(kind).unwrap(),
    };
    let pair = |kind| {
        let tokenizer = made(kind);
        let again = Tokenizer::from_json(tokenizer.to_tokenizer_json()).unwrap();
        (tokenizer, again)
    };
    TokenizerKind::NAMED.into_iter().map(pair).collect()
});

fn hard_texts() -> Vec<String> {
    let golden: Value = serde_json::from_str(include_str!("fixtures/golden.json")).unwrap();
    let cases = golden["cases"].as_array().unwrap().iter();
    cases
        .map(|case| case["text"].as_str().unwrap().to_owned())
        .collect()
}

/// Texts of characters that the patterns treat differently, some of them rare.
fn arbitrary_text() -> impl Strategy<Value = String> {
    let atom = prop_oneof![
        3 => prop::sample::select(vec!["\n", " ", "a", "B", "word", "ation", "THE"]),
        2 => prop::sample::select(vec!["\r", "\r\n", "\t", "  ", "   ", "\u{a0}", "\u{2028}", "\u{85}", "\u{3000}"]),
        2 => prop::sample::select(vec!["'s", "'LL", "'", "'\u{17F}", "/", "//", ".", "!?", "<|endoftext|>", "</s>"]),
        2 => prop::sample::select(vec!["7", "1234", "\u{bd}", "\u{663}", "\u{b2}", "\u{2177}"]),
        2 => prop::sample::select(vec!["é", "e\u{301}", "\u{301}", "\u{1C4}", "ʰ", "漢", "ß", "🔥", "\u{93f}", "\u{200d}"]),
    ];
    let atoms = prop::collection::vec(atom, 0..30).prop_map(|atoms| atoms.concat());
    prop_oneof![2 => atoms, 1 => any::<String>()]
}

#[test]
fn exports_keep_sizes_and_ends_of_text() {
    for (tokenizer, again) in &*EXPORTED {
        assert_eq!(again.kind(), TokenizerKind::File);
        assert_eq!(
            again.vocab_size(),
            tokenizer.vocab_size(),
            "{}",
            tokenizer.kind()
        );
        assert_eq!(
            again.end_of_text(),
            tokenizer.end_of_text(),
            "{}",
            tokenizer.kind()
        );
    }
}

#[test]
fn hard_texts_have_the_same_ids() {
    for (tokenizer, again) in &*EXPORTED {
        for text in hard_texts() {
            let ids = tokenizer.encode(&text).unwrap();
            assert_eq!(
                again.encode(&text).unwrap(),
                ids,
                "{} {text:?}",
                tokenizer.kind()
            );
            assert_eq!(again.decode(&ids).unwrap(), text);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn any_text_has_the_same_ids(text in arbitrary_text()) {
        for (tokenizer, again) in &*EXPORTED {
            if tokenizer.kind() != TokenizerKind::Char {
                let ids = tokenizer.encode(&text).unwrap();
                prop_assert_eq!(again.encode(&text).unwrap(), ids, "{}", tokenizer.kind());
            }
        }
    }
}

/// Encodes the text of every token, including those that merges do not reach.
#[test]
fn every_token_has_the_same_ids_and_bytes() {
    for (tokenizer, again) in &*EXPORTED {
        for id in 0..tokenizer.vocab_size() as u32 {
            let Ok(bytes) = tokenizer.decode_bytes(&[id]) else {
                assert!(
                    again.decode_bytes(&[id]).is_err(),
                    "{} {id}",
                    tokenizer.kind()
                );
                continue;
            };
            if Some(id) != tokenizer.end_of_text() {
                assert_eq!(
                    again.decode_bytes(&[id]).unwrap(),
                    bytes,
                    "{} {id}",
                    tokenizer.kind()
                );
            }
            if let Ok(text) = String::from_utf8(bytes) {
                let ids = tokenizer.encode(&text).unwrap();
                assert_eq!(
                    again.encode(&text).unwrap(),
                    ids,
                    "{} {text:?}",
                    tokenizer.kind()
                );
            }
        }
    }
}

#[test]
fn pathological_texts_round_trip() {
    for piece in [" ", "\n", "漢"] {
        let text = piece.repeat(1_500_000) + "x";
        let (_, gpt2) = &EXPORTED[0];
        assert_eq!(gpt2.decode(&gpt2.encode(&text).unwrap()).unwrap(), text);
    }
}

#[test]
fn unknown_characters_are_errors_in_the_export_too() {
    for (tokenizer, again) in &*EXPORTED {
        if tokenizer.kind() == TokenizerKind::Char {
            assert!(tokenizer.encode("\u{1F9ED}").is_err());
            assert!(again.encode("\u{1F9ED}").is_err());
        }
    }
}

#[test]
fn loaded_files_are_exported_unchanged() {
    let json = include_bytes!("fixtures/files/llama.json");
    let tokenizer = Tokenizer::from_json(json).unwrap();
    assert_eq!(tokenizer.to_tokenizer_json(), json);
    assert_eq!(
        EXPORTED[5].1.to_tokenizer_json(),
        EXPORTED[5].0.to_tokenizer_json()
    );
}

#[test]
fn the_config_names_the_end_of_text() {
    let config = |tokenizer: &Tokenizer| -> Value {
        serde_json::from_slice(&tokenizer.to_tokenizer_config_json(Some(1024))).unwrap()
    };
    for (tokenizer, _) in &*EXPORTED {
        let config = config(tokenizer);
        assert_eq!(config["tokenizer_class"], "PreTrainedTokenizerFast");
        assert_eq!(config["model_max_length"], 1024);
        let name = tokenizer
            .end_of_text()
            .map(|_| Value::from("<|endoftext|>"));
        assert_eq!(config.get("eos_token"), name.as_ref());
        assert_eq!(config.get("bos_token"), name.as_ref());
    }
    let llama = Tokenizer::from_json(include_bytes!("fixtures/files/llama.json")).unwrap();
    let config = config(&llama);
    assert_eq!(config["eos_token"], "</s>");
    assert_eq!(config.get("bos_token"), None);
}
