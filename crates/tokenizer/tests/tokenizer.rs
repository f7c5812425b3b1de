//! Tests of the public interface, for valid and invalid input.

use emberlm_tokenizer::{Tokenizer, TokenizerError, TokenizerKind, TokenizerSpec};

fn char_tokenizer() -> Tokenizer {
    Tokenizer::char_from_alphabet("hello, world".chars()).unwrap()
}

fn every_tokenizer() -> Vec<Tokenizer> {
    let builtin = |kind| match kind {
        TokenizerKind::Char => char_tokenizer(),
        kind => Tokenizer::builtin(kind).unwrap(),
    };
    TokenizerKind::NAMED.into_iter().map(builtin).collect()
}

#[test]
fn every_tokenizer_round_trips() {
    for tokenizer in every_tokenizer() {
        let ids = tokenizer.encode("hello, world").unwrap();
        assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
        assert_eq!(tokenizer.decode(&ids).unwrap(), "hello, world");
        assert_eq!(tokenizer.encode("").unwrap(), [0; 0]);
    }
}

#[test]
fn characters_are_numbered_by_code_point() {
    let tokenizer = Tokenizer::char_from_alphabet("banana é🔥".chars()).unwrap();
    assert_eq!(tokenizer.vocab_size(), 6);
    assert_eq!(tokenizer.end_of_text(), None);
    assert_eq!(tokenizer.encode(" abné🔥").unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn unknown_characters_are_reported_with_their_position() {
    let error = char_tokenizer().encode("héllo").unwrap_err();
    assert_eq!(
        error.to_string(),
        "character 'é' at position 1 is not among the 9 characters of this tokenizer"
    );
}

#[test]
fn a_char_tokenizer_needs_characters() {
    let nothing = Tokenizer::char_from_alphabet([]).unwrap_err();
    assert_eq!(nothing, TokenizerError::EmptyAlphabet);
    let builtin = Tokenizer::builtin(TokenizerKind::Char).unwrap_err();
    assert_eq!(builtin, TokenizerError::NeedsAlphabet);
}

#[test]
fn bytes_are_their_own_ids_and_256_ends_a_text() {
    let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
    assert_eq!(tokenizer.encode("aé").unwrap(), [97, 0xC3, 0xA9]);
    assert_eq!(tokenizer.decode(&[97, 256, 98]).unwrap(), "ab");
    assert_eq!(tokenizer.decode(&[0xFF]).unwrap(), "\u{FFFD}");
    assert_eq!(
        (tokenizer.vocab_size(), tokenizer.end_of_text()),
        (257, Some(256))
    );
}

#[test]
fn special_tokens_are_decoded_but_never_encoded_from_text() {
    let tokenizer = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
    assert_eq!(tokenizer.decode(&[50_256]).unwrap(), "<|endoftext|>");
    let ids = tokenizer.encode("<|endoftext|>").unwrap();
    assert!(ids.len() > 1 && !ids.contains(&50_256));
}

#[test]
fn ids_out_of_range_are_reported() {
    for tokenizer in every_tokenizer() {
        let id = tokenizer.vocab_size() as u32;
        for id in [id, u32::MAX] {
            let error = tokenizer.decode(&[0, id]).unwrap_err();
            assert!(matches!(error, TokenizerError::IdOutOfRange { id: named, .. } if named == id));
            assert!(
                error
                    .to_string()
                    .contains(&format!("token id {id} is out of range"))
            );
        }
    }
}

#[test]
fn unassigned_ids_are_reported() {
    for (kind, id) in [
        (TokenizerKind::Cl100k, 100_256),
        (TokenizerKind::O200k, 199_998),
    ] {
        let error = Tokenizer::builtin(kind).unwrap().decode(&[id]).unwrap_err();
        assert_eq!(error, TokenizerError::IdUnassigned { id, kind });
    }
}

/// tiktoken-rs fails on a million spaces.
#[test]
fn pathological_texts_are_encoded() {
    for piece in [" ", "\n", "漢"] {
        let text = piece.repeat(1_500_000) + "x";
        for kind in [
            TokenizerKind::Gpt2,
            TokenizerKind::Cl100k,
            TokenizerKind::O200k,
        ] {
            let tokenizer = Tokenizer::builtin(kind).unwrap();
            let ids = tokenizer.encode(&text).unwrap();
            assert_eq!(tokenizer.decode(&ids).unwrap(), text, "{kind}");
        }
    }
}

#[test]
fn specs_round_trip_through_json_and_open_the_tokenizer() {
    for tokenizer in every_tokenizer() {
        let json = serde_json::to_string(&tokenizer.spec()).unwrap();
        let spec: TokenizerSpec = serde_json::from_str(&json).unwrap();
        let again = Tokenizer::from_spec(&spec).unwrap();
        assert_eq!(again.spec(), tokenizer.spec());
        assert_eq!(
            again.encode("hello").unwrap(),
            tokenizer.encode("hello").unwrap()
        );
    }
}

#[test]
fn hashes_distinguish_vocabularies() {
    let mut hashes: Vec<String> = every_tokenizer().iter().map(|t| t.spec().hash).collect();
    hashes.push(
        Tokenizer::char_from_alphabet("abc".chars())
            .unwrap()
            .spec()
            .hash,
    );
    let count = hashes.len();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), count);
}

#[test]
fn specs_of_other_vocabularies_are_rejected() {
    let spec = char_tokenizer().spec();
    let refused = |spec: TokenizerSpec| Tokenizer::from_spec(&spec).unwrap_err().to_string();

    let size = TokenizerSpec {
        vocab_size: 8,
        ..spec.clone()
    };
    assert!(refused(size).contains("`vocab_size` is 8, but this tokenizer has 9 ids"));
    let hash = TokenizerSpec {
        hash: "00".into(),
        ..spec.clone()
    };
    assert!(refused(hash).contains("`hash` is 00"));
    let missing = TokenizerSpec {
        alphabet: None,
        ..spec.clone()
    };
    assert!(refused(missing).contains("`alphabet` must be given"));
    let misplaced = TokenizerSpec {
        kind: TokenizerKind::Byte,
        ..spec
    };
    assert!(refused(misplaced).contains("`alphabet` must be absent"));
}

#[test]
fn unknown_fields_of_specs_are_rejected() {
    let json = r#"{"kind": "byte", "vocab_size": 257, "hash": "", "merges": 1}"#;
    let error = serde_json::from_str::<TokenizerSpec>(json).unwrap_err();
    assert!(error.to_string().contains("unknown field `merges`"));
}

#[test]
fn tokenizers_are_shared_between_threads() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<Tokenizer>();
}

/// The kinds that guarantee lossless round trips: see docs/guides/tokenizers.md.
mod any_text_round_trips {
    use std::sync::LazyLock;

    use emberlm_tokenizer::{BpeOptions, BpeTraining, Pattern};
    use proptest::prelude::*;

    use super::*;

    static TOKENIZERS: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
        let named = TokenizerKind::NAMED.into_iter();
        let mut all: Vec<Tokenizer> = named
            .filter(|kind| *kind != TokenizerKind::Char)
            .map(|kind| Tokenizer::builtin(kind).unwrap())
            .collect();
        for pattern in Pattern::ALL {
            let options = BpeOptions {
                vocab_size: 300,
                min_frequency: 0,
                pattern,
                special: Vec::new(),
            };
            let training = BpeTraining::new(options).unwrap();
            let counts = training.count("It's the 1234th time\n\n that the cat's café is closed");
            all.push(training.train(counts).unwrap());
        }
        let sentence_piece = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/fixtures/sentence_piece/bpe.model"
        );
        all.push(Tokenizer::from_file(sentence_piece).unwrap());
        all
    });

    proptest! {
        #[test]
        fn for_every_lossless_kind(text in any::<String>()) {
            // SentencePiece's mark for a space.
            let text = text.replace('\u{2581}', " ");
            for tokenizer in &*TOKENIZERS {
                let ids = tokenizer.encode(&text).unwrap();
                prop_assert_eq!(tokenizer.decode(&ids).unwrap(), text.as_str(), "{}", tokenizer.kind());
            }
        }

        #[test]
        fn for_characters_of_the_alphabet(text in any::<String>()) {
            let Ok(tokenizer) = Tokenizer::char_from_alphabet(text.chars()) else {
                return Ok(());
            };
            let ids = tokenizer.encode(&text).unwrap();
            prop_assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        }
    }
}
