//! The byte-pair tokenizers against Python's `tiktoken`: `fixtures/make.py` wrote what it makes of hard texts.

#![allow(clippy::unwrap_used)] // A test that unwraps fails, as it should.

use std::collections::BTreeMap;

use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    vocab_size: BTreeMap<TokenizerKind, usize>,
    end_of_text: BTreeMap<TokenizerKind, u32>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    #[serde(flatten)]
    ids: BTreeMap<TokenizerKind, Vec<u32>>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("fixtures/golden.json")).unwrap()
}

const BPE: [TokenizerKind; 3] = [
    TokenizerKind::Gpt2,
    TokenizerKind::Cl100k,
    TokenizerKind::O200k,
];

#[test]
fn hard_texts_are_encoded_as_tiktoken_does() {
    let golden = golden();
    assert!(golden.cases.len() >= 20);
    for kind in BPE {
        let tokenizer = Tokenizer::builtin(kind).unwrap();
        for case in &golden.cases {
            let ids = tokenizer.encode(&case.text).unwrap();
            assert_eq!(ids, case.ids[&kind], "{kind}: {:?}", case.text);
        }
    }
}

#[test]
fn hard_texts_come_back_unchanged() {
    for kind in BPE {
        let tokenizer = Tokenizer::builtin(kind).unwrap();
        for case in golden().cases {
            assert_eq!(tokenizer.decode(&case.ids[&kind]).unwrap(), case.text);
            let mut stream = tokenizer.stream();
            let mut text = String::new();
            for &id in &case.ids[&kind] {
                text += &stream.push(id).unwrap();
            }
            assert_eq!(text + &stream.finish(), case.text);
        }
    }
}

#[test]
fn sizes_and_end_of_text_are_tiktokens() {
    let golden = golden();
    for kind in BPE {
        let tokenizer = Tokenizer::builtin(kind).unwrap();
        assert_eq!(tokenizer.vocab_size(), golden.vocab_size[&kind], "{kind}");
        assert_eq!(tokenizer.end_of_text(), Some(golden.end_of_text[&kind]));
    }
}
