//! Compares SentencePiece models with Python's `sentencepiece`. `fixtures/make_sentence_piece.py` trained small
//! models and recorded their ids of hard texts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use emberlm_tokenizer::{Tokenizer, TokenizerChoice, TokenizerKind};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    models: BTreeMap<String, Expected>,
}

#[derive(Deserialize)]
struct Expected {
    vocab_size: usize,
    end_of_text: u32,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
}

fn golden() -> BTreeMap<String, Expected> {
    let golden: Golden =
        serde_json::from_str(include_str!("fixtures/sentence_piece.json")).unwrap();
    golden.models
}

fn path(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/sentence_piece");
    Path::new(folder).join(format!("{name}.model"))
}

/// Returns true if a text is a short text repeated many times. It can be segmented in several ways whose scores
/// differ only by the rounding of their sums. A Unigram model chooses between them arbitrarily, so only the
/// order of the tokens differs.
fn is_run(text: &str) -> bool {
    let is = |len: usize| {
        text.get(..len)
            .is_some_and(|start| text == start.repeat(text.len() / len))
    };
    text.len() > 50 && (1..=4).any(is)
}

#[test]
fn hard_texts_are_encoded_like_sentencepiece() {
    let mut wrong = Vec::new();
    for (name, expected) in golden() {
        let tokenizer = Tokenizer::from_file(path(&name)).unwrap();
        for case in &expected.cases {
            let mut ids = tokenizer.encode(&case.text).unwrap();
            let mut expected = case.ids.clone();
            if is_run(&case.text) && !name.starts_with("bpe") {
                ids.sort();
                expected.sort();
            }
            if ids != expected {
                wrong.push(format!("{name} {:?}\n {ids:?}\n {:?}", case.text, case.ids));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sizes_and_ends_of_text_match_the_models() {
    for (name, expected) in golden() {
        let choice: TokenizerChoice = path(&name).to_str().unwrap().parse().unwrap();
        let tokenizer = Tokenizer::from_choice(&choice).unwrap();
        assert_eq!(tokenizer.kind(), TokenizerKind::File);
        assert_eq!(tokenizer.vocab_size(), expected.vocab_size, "{name}");
        assert_eq!(tokenizer.end_of_text(), Some(expected.end_of_text));
    }
}

/// With byte fallback and preserved spaces, decoding inverts encoding.
#[test]
fn lossless_models_round_trip() {
    for name in ["bpe", "unigram_bytes"] {
        let tokenizer = Tokenizer::from_file(path(name)).unwrap();
        for case in &golden()[name].cases {
            // A literal `▁` in the text is decoded as a space.
            let expected = case.text.replace('\u{2581}', " ");
            assert_eq!(tokenizer.decode(&case.ids).unwrap(), expected, "{name}");
        }
    }
}

#[test]
fn names_of_control_pieces_are_plain_text() {
    for name in ["bpe", "unigram_bytes", "unigram"] {
        let tokenizer = Tokenizer::from_file(path(name)).unwrap();
        let ids = tokenizer.encode("a </s> b <s>").unwrap();
        assert!(!ids.contains(&1) && !ids.contains(&2), "{name} {ids:?}");
    }
}

#[test]
fn a_folder_with_only_a_model_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(path("bpe"), folder.path().join("tokenizer.model")).unwrap();
    let choice: TokenizerChoice = folder.path().to_str().unwrap().parse().unwrap();
    assert_eq!(Tokenizer::from_choice(&choice).unwrap().vocab_size(), 700);
}

fn refused(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("damaged.model");
    fs::write(&file, bytes).unwrap();
    match Tokenizer::from_file(&file) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn damaged_models_are_rejected_or_harmless() {
    let whole = fs::read(path("rules")).unwrap();
    let message = refused(&whole[..whole.len() / 2]);
    assert!(
        message.contains("not a usable SentencePiece model: it is damaged"),
        "{message}"
    );
    for at in (0..whole.len()).step_by(97) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x15;
        refused(&bytes);
    }
}

/// A hand-written model with two pieces. Field 1 is a piece with its name (1), score (2) and type (3), field 2
/// the trainer's settings, field 3 the normalizer's.
#[test]
fn unsupported_features_are_rejected_by_name() {
    let unknown = b"\x0a\x09\x0a\x05<unk>\x18\x02";
    let with = |more: &[u8]| refused(&[unknown.as_slice(), more].concat());
    assert_eq!(with(b"\x0a\x03\x0a\x01a"), "");
    assert!(with(b"\x0a\x05\x0a\x01a\x18\x04").ends_with(
        "piece 1 (\"a\") is user-defined, which a tokenizer.json cannot express exactly"
    ));
    assert!(with(b"\x0a\x05\x0a\x01a\x18\x05").contains("is unused"));
    assert!(with(b"\x0a\x07\x0a\x05<unk>").contains("pieces 0 and 1 are both \"<unk>\""));
    assert!(with(b"\x0a\x00").contains("piece 1 is empty"));
    assert!(with(b"\x0a\x08\x0a\x01a\x15\x00\x00\xc0\x7f").contains("is not a number"));
    assert!(with(b"\x12\x02\x18\x03").contains("`model_type` is 3"));
    assert!(with(b"\x12\x03\xc0\x01\x01").contains("`treat_whitespace_as_suffix`"));
    assert!(with(b"\x1a\x02\x28\x00").contains("`escape_whitespaces` must be true"));
    assert!(refused(b"\x0a\x03\x0a\x01a").contains("no piece for what is unknown"));
}
