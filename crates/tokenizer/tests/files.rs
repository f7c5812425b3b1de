//! Compares tokenizers from a `tokenizer.json` with Python's `tokenizers`. `fixtures/make_files.py` wrote the
//! files and the expected ids of hard texts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, iter};

use emberlm_tokenizer::{
    TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, Tokenizer, TokenizerError, TokenizerKind, TokenizerSpec,
};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tables::check_table;

#[derive(Deserialize)]
struct Golden {
    files: BTreeMap<String, File>,
}

#[derive(Deserialize)]
struct File {
    vocab_size: usize,
    end_of_text: Option<u32>,
    cases: Vec<Case>,
    random: Vec<Decoded>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    #[serde(flatten)]
    decoded: Decoded,
}

#[derive(Deserialize)]
struct Decoded {
    ids: Vec<u32>,
    decoded: String,
}

fn golden() -> BTreeMap<String, File> {
    let golden: Golden = serde_json::from_str(include_str!("fixtures/files.json")).unwrap();
    assert_eq!(golden.files.len(), 4);
    golden.files
}

fn path(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/files");
    folder.join(format!("{name}.json"))
}

fn open(name: &str) -> Tokenizer {
    Tokenizer::from_file(path(name)).unwrap()
}

/// Loads a fixture with an edit.
fn edited(name: &str, edit: impl FnOnce(&mut Value)) -> Result<Tokenizer, TokenizerError> {
    let mut value: Value = serde_json::from_slice(&fs::read(path(name)).unwrap()).unwrap();
    edit(&mut value);
    Tokenizer::from_json(value.to_string())
}

fn streamed(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut stream = tokenizer.stream();
    let pieces = ids.iter().map(|&id| stream.push(id).unwrap());
    let text: String = pieces.collect();
    text + &stream.finish()
}

#[test]
fn hard_texts_are_encoded_like_python() {
    for (name, file) in golden() {
        let tokenizer = open(&name);
        for case in &file.cases {
            let ids = tokenizer.encode(&case.text).unwrap();
            assert_eq!(ids, case.decoded.ids, "{name}: {:?}", case.text);
        }
    }
}

#[test]
fn ids_are_decoded_like_python_at_once_and_one_by_one() {
    for (name, file) in golden() {
        let tokenizer = open(&name);
        let cases = file.cases.iter().map(|case| &case.decoded);
        for Decoded { ids, decoded } in cases.chain(&file.random) {
            assert_eq!(tokenizer.decode(ids).unwrap(), *decoded, "{name}: {ids:?}");
            assert_eq!(streamed(&tokenizer, ids), *decoded, "{name}: {ids:?}");
        }
    }
}

#[test]
fn sizes_and_ends_of_text_match_the_files() {
    for (name, file) in golden() {
        let tokenizer = open(&name);
        assert_eq!(tokenizer.kind(), TokenizerKind::File);
        assert_eq!(tokenizer.vocab_size(), file.vocab_size, "{name}");
        assert_eq!(tokenizer.end_of_text(), file.end_of_text, "{name}");
    }
}

proptest! {
    #[test]
    fn a_stream_equals_the_decoded_text_for_any_ids(seeds in prop::collection::vec(any::<u32>(), 0..40)) {
        for name in ["byte_level", "llama", "unigram", "wordpiece"] {
            let tokenizer = open(name);
            let ids: Vec<u32> =
                seeds.iter().map(|seed| seed % tokenizer.vocab_size() as u32).collect();
            let whole = tokenizer.decode(&ids).unwrap();
            prop_assert_eq!(streamed(&tokenizer, &ids), whole, "{}", name);
        }
    }

    #[test]
    fn byte_vocabularies_round_trip_any_text(text in any::<String>()) {
        for name in ["byte_level", "llama"] {
            let tokenizer = open(name);
            let ids = tokenizer.encode(&text).unwrap();
            prop_assert_eq!(tokenizer.decode(&ids).unwrap(), text.clone(), "{}", name);
        }
    }
}

#[test]
fn a_character_appears_with_its_last_byte() {
    for name in ["byte_level", "llama"] {
        let tokenizer = open(name);
        let ids = tokenizer.encode("x\u{1F9ED}").unwrap();
        let mut stream = tokenizer.stream();
        let pieces: Vec<String> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
        assert_eq!(pieces.concat(), "x\u{1F9ED}");
        assert_eq!(pieces.last().unwrap(), "\u{1F9ED}", "{name}");
        let bytes = tokenizer.decode_bytes(&ids).unwrap();
        assert_eq!(bytes, "x\u{1F9ED}".as_bytes());
    }
}

#[test]
fn text_after_a_prompt_keeps_its_space() {
    for name in ["llama", "unigram", "byte_level"] {
        let tokenizer = open(name);
        let whole = tokenizer.encode("License Work").unwrap();
        let prompt = tokenizer.encode("License").unwrap();
        let (head, rest) = whole.split_at(prompt.len());
        assert_eq!(head, prompt, "{name}");
        let mut stream = tokenizer.stream();
        stream.skip(&prompt).unwrap();
        let text: String = rest.iter().map(|&id| stream.push(id).unwrap()).collect();
        assert_eq!(text, " Work", "{name}");
        assert!(stream.skip(&[u32::MAX]).is_err());
    }
}

#[test]
fn special_tokens_are_decoded_but_never_encoded_from_text() {
    let names = [
        ("byte_level", "<|endoftext|>", 0),
        ("byte_level", "<|im end|>", 500),
        ("llama", "</s>", 2),
        ("unigram", "</s>", 1),
        ("wordpiece", "[SEP]", 3),
    ];
    for (file, name, id) in names {
        let tokenizer = open(file);
        assert_eq!(tokenizer.decode(&[id]).unwrap(), name);
        let ids = tokenizer.encode(name).unwrap();
        assert!(ids.len() > 1 && !ids.contains(&id), "{file}: {ids:?}");
    }
    // An added token that is not special is recognized in text.
    let tokenizer = open("byte_level");
    assert_eq!(tokenizer.encode("<think>").unwrap(), [501]);
    assert_eq!(tokenizer.decode(&[501, 500]).unwrap(), "<think><|im end|>");
}

#[test]
fn text_outside_the_vocabulary_is_the_unknown_token() {
    let tokenizer = open("wordpiece");
    let unknown = tokenizer.encode("\u{1F9ED}").unwrap();
    assert_eq!(tokenizer.decode(&unknown).unwrap(), "[UNK]");
    let without = edited("wordpiece", |file| {
        file["model"]["unk_token"] = json!("nowhere")
    });
    let error = without.unwrap().encode("\u{1F9ED}").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("tokenizer.json cannot encode this text: ")
    );
}

#[test]
fn truncation_padding_and_dropout_are_ignored() {
    // unigram.json truncates to eight tokens and pads to four.
    let tokenizer = open("unigram");
    assert!(
        tokenizer
            .encode("many more than eight tokens of text")
            .unwrap()
            .len()
            > 8
    );
    assert_eq!(tokenizer.encode("").unwrap(), [0; 0]);
    let chance = edited("byte_level", |file| file["model"]["dropout"] = json!(1.0)).unwrap();
    let text = "License and conditions";
    assert_eq!(
        chance.encode(text).unwrap(),
        open("byte_level").encode(text).unwrap()
    );
}

#[test]
fn unassigned_ids_are_errors_with_the_id() {
    let tokenizer = open("llama");
    let error = tokenizer.decode(&[519]).unwrap_err().to_string();
    assert_eq!(
        error,
        "token id 519 is out of range: tokenizer.json has ids 0 to 518"
    );
    let holes = edited("llama", |file| file["model"]["vocab"]["zz"] = json!(600)).unwrap();
    assert_eq!(holes.vocab_size(), 601);
    let kind = TokenizerKind::File;
    assert_eq!(
        holes.decode(&[599]),
        Err(TokenizerError::IdUnassigned { id: 599, kind })
    );
}

#[test]
fn the_config_next_to_a_file_sets_the_end_of_text() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(TOKENIZER_FILE);
    fs::copy(path("llama"), &file).unwrap();
    let with = |config: &str| {
        fs::write(folder.path().join(TOKENIZER_CONFIG_FILE), config).unwrap();
        Tokenizer::from_file(&file)
    };
    let end = |config: &str| with(config).unwrap().end_of_text();
    assert_eq!(end(r#"{"eos_token": "<s>"}"#), Some(1));
    assert_eq!(
        end(r#"{"eos_token": {"content": "<s>", "lstrip": false}}"#),
        Some(1)
    );
    assert_eq!(end(r#"{"eos_token": null}"#), Some(2));
    assert_eq!(end("{}"), Some(2));
    for (config, reason) in [
        ("{", "tokenizer_config.json: it is not JSON"),
        (
            r#"{"eos_token": "<end>"}"#,
            "`eos_token` is \"<end>\", which tokenizer.json lacks",
        ),
        (r#"{"eos_token": 2}"#, "`eos_token` must be a string"),
    ] {
        let message = with(config).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn saved_tokenizers_are_opened_with_their_end_of_text() {
    for (name, config) in [("llama", r#"{"eos_token": "<s>"}"#), ("wordpiece", "{}")] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = from.path().join(TOKENIZER_FILE);
        fs::copy(path(name), &file).unwrap();
        fs::write(from.path().join(TOKENIZER_CONFIG_FILE), config).unwrap();
        let tokenizer = Tokenizer::from_file(&file).unwrap();
        assert!(tokenizer.save(to.path()).unwrap());
        // Without `tokenizer_config.json`: the end-of-text token is in the specification.
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 1);
        let saved = to.path().join(TOKENIZER_FILE);
        assert_eq!(fs::read(&saved).unwrap(), fs::read(&file).unwrap());
        drop(from);
        let spec = serde_json::to_string(&tokenizer.spec()).unwrap();
        let spec: TokenizerSpec = serde_json::from_str(&spec).unwrap();
        let again = Tokenizer::open(&spec, to.path()).unwrap();
        assert_eq!(again.spec(), tokenizer.spec());
        assert_eq!(again.end_of_text(), tokenizer.end_of_text());
        let text = "License and conditions";
        assert_eq!(again.encode(text), tokenizer.encode(text));
        assert_eq!(
            Tokenizer::from_spec(&spec).unwrap_err(),
            TokenizerError::NeedsFile
        );

        let refused =
            |spec: &TokenizerSpec| Tokenizer::open(spec, to.path()).unwrap_err().to_string();
        let other = TokenizerSpec {
            end_of_text: Some(3),
            ..spec.clone()
        };
        assert!(refused(&other).contains("`hash` is"));
        let nowhere = TokenizerSpec {
            end_of_text: Some(9999),
            ..spec.clone()
        };
        assert!(refused(&nowhere).contains("`end_of_text` is 9999"));
        fs::copy(path("unigram"), &saved).unwrap();
        assert!(refused(&spec).contains("but this tokenizer"));
        fs::remove_file(&saved).unwrap();
        assert!(refused(&spec).contains(TOKENIZER_FILE));
    }
}

#[test]
fn built_in_tokenizers_have_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let byte = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
    assert!(!byte.save(folder.path()).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!(
        Tokenizer::open(&byte.spec(), folder.path()).unwrap().spec(),
        byte.spec()
    );
    let misplaced = TokenizerSpec {
        end_of_text: Some(0),
        ..byte.spec()
    };
    let message = Tokenizer::from_spec(&misplaced).unwrap_err().to_string();
    assert!(message.contains("`end_of_text` is 0"), "{message}");
}

#[test]
fn damaged_files_are_rejected_with_a_reason() {
    let json = fs::read(path("byte_level")).unwrap();
    let step = json.len() / 97;
    let cuts = iter::successors(Some(0), |at| Some(at + step)).take_while(|&at| at < json.len());
    for at in cuts {
        let message = Tokenizer::from_json(&json[..at]).unwrap_err().to_string();
        assert!(
            message.starts_with("not a usable tokenizer.json: it is not JSON"),
            "{message}"
        );
    }
    let message = Tokenizer::from_file(Path::new("no/such.json"))
        .unwrap_err()
        .to_string();
    assert!(message.starts_with("no/such.json: "), "{message}");
}

#[test]
fn invalid_and_unsupported_contents_are_rejected_with_a_reason() {
    check_table("files", |row| {
        let tokenizer = match row.split_once(' ') {
            Some((path, value)) if path.starts_with('/') => edited("byte_level", |file| {
                let (place, name) = path.rsplit_once('/').unwrap();
                let place = file.pointer_mut(place).unwrap();
                place[name] = serde_json::from_str(value).unwrap();
            }),
            _ => Tokenizer::from_json(row),
        };
        tokenizer.unwrap_err().to_string()
    });
}

#[test]
fn other_decoders_match_the_crate() {
    let text = "the License of the Work";
    let decoders = [
        json!(null),
        json!({"type": "Fuse"}),
        json!({"type": "BPEDecoder", "suffix": "k"}),
        json!({"type": "Strip", "content": "L", "start": 2, "stop": 0}),
        json!({"type": "WordPiece", "prefix": "L", "cleanup": false}),
        json!({"type": "Metaspace", "replacement": "e", "prepend_scheme": "never", "split": true}),
        json!({"type": "Sequence", "decoders": [
            {"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "first"},
        ]}),
    ];
    for decoder in decoders {
        let with = |file: &mut Value| file["decoder"] = decoder.clone();
        let tokenizer = edited("llama", with).unwrap();
        let mut value: Value = serde_json::from_slice(&fs::read(path("llama")).unwrap()).unwrap();
        with(&mut value);
        let crates: tokenizers::Tokenizer = value.to_string().parse().unwrap();
        let mut ids = tokenizer.encode(text).unwrap();
        ids.extend([3 + 0xE2, 3 + 0x82, 3 + 0xAC, 2, 1]);
        for len in 1..=ids.len() {
            let ids = &ids[..len];
            if ids.ends_with(&[3 + 0xE2]) || ids.ends_with(&[3 + 0x82]) {
                continue; // Not a complete character yet.
            }
            let expected = crates.decode(ids, false).unwrap();
            assert_eq!(
                tokenizer.decode(ids).unwrap(),
                expected,
                "{decoder} {ids:?}"
            );
            assert_eq!(streamed(&tokenizer, ids), expected, "{decoder}");
        }
    }
}
