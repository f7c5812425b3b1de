//! Tokenizers as metadata of GGUF files: read back, they have the ids that tiktoken and `tokenizers` gave.

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_gguf::{Array, Metadata, Value};
use emberlm_tokenizer::{
    GgufTokenizer, GgufTokenizerOptions, GgufVocabulary, Tokenizer, TokenizerError, TokenizerKind,
};
use serde_json::{Map, Value as Json, json};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn converted(
    tokenizer: &Tokenizer,
    vocab_size: usize,
    config: &Map<String, Json>,
) -> Result<GgufVocabulary, TokenizerError> {
    GgufVocabulary::of(
        tokenizer,
        &GgufTokenizerOptions {
            config,
            ends: &[],
            template: None,
            vocab_size,
        },
    )
}

fn metadata(vocabulary: &GgufVocabulary) -> Metadata {
    let mut metadata = Metadata::default();
    for (key, value) in &vocabulary.metadata {
        assert!(metadata.insert(key.as_str(), value.clone()), "{key}");
    }
    metadata
}

/// The tokenizer of the metadata of another, and its metadata.
fn again(tokenizer: &Tokenizer) -> (Tokenizer, Metadata) {
    let vocabulary = converted(tokenizer, tokenizer.vocab_size(), &Map::new()).unwrap();
    let metadata = metadata(&vocabulary);
    let read = GgufTokenizer::read(&metadata).unwrap().unwrap();
    (read.tokenizer().unwrap(), metadata)
}

fn texts() -> Vec<String> {
    let golden: Json = serde_json::from_slice(&fs::read(fixture("files.json")).unwrap()).unwrap();
    let cases = golden["files"]["byte_level"]["cases"].as_array().unwrap();
    let texts = cases.iter().map(|case| case["text"].as_str().unwrap());
    texts.map(str::to_owned).collect()
}

#[test]
fn built_in_vocabularies_keep_their_ids() {
    for (kind, pre) in [
        (TokenizerKind::Gpt2, "gpt-2"),
        (TokenizerKind::Cl100k, "llama-bpe"),
        (TokenizerKind::O200k, "gpt-4o"),
        (TokenizerKind::Byte, "gpt-2"),
    ] {
        let expected = Tokenizer::builtin(kind).unwrap();
        let (found, metadata) = again(&expected);
        assert_eq!(metadata.text("tokenizer.ggml.pre").unwrap(), Some(pre));
        assert_eq!(found.end_of_text(), expected.end_of_text());
        for text in texts() {
            let ids = expected.encode(&text).unwrap();
            // Llama 3's pattern differs from cl100k's at the end of these.
            let ends_in_space = text.ends_with(char::is_whitespace);
            if pre != "llama-bpe" || !ends_in_space {
                assert_eq!(found.encode(&text).unwrap(), ids, "{pre} {text:?}");
            }
            assert_eq!(found.decode(&ids).unwrap(), text);
        }
    }
}

#[test]
fn files_keep_their_ids() {
    for (golden, list, name, file, model) in [
        (
            "files.json",
            "files",
            "byte_level",
            "files/byte_level.json",
            "gpt2",
        ),
        (
            "sentence_piece.json",
            "models",
            "bpe",
            "sentence_piece/bpe.model",
            "llama",
        ),
    ] {
        let golden: Json = serde_json::from_slice(&fs::read(fixture(golden)).unwrap()).unwrap();
        let tokenizer = Tokenizer::from_file(fixture(file)).unwrap();
        let (found, metadata) = again(&tokenizer);
        assert_eq!(metadata.text("tokenizer.ggml.model").unwrap(), Some(model));
        for case in golden[list][name]["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
            assert_eq!(found.encode(text).unwrap(), ids, "{name} {text:?}");
        }
    }
}

#[test]
fn ids_without_a_token_have_a_name_and_special_tokens_a_key() {
    let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
    let config = json!({"bos_token": {"content": "<|endoftext|>"}, "pad_token": "A"});
    let Json::Object(config) = config else {
        unreachable!()
    };
    let found = converted(&tokenizer, 259, &config).unwrap();
    let metadata = metadata(&found);
    let tokens = metadata.texts("tokenizer.ggml.tokens").unwrap().unwrap();
    assert_eq!(tokens.len(), 259);
    assert_eq!(tokens[256..], ["<|endoftext|>", "[PAD257]", "[PAD258]"]);
    let Some(Value::Array(Array::I32(kinds))) = metadata.get("tokenizer.ggml.token_type") else {
        panic!("no types");
    };
    assert_eq!(kinds[255..], [1, 3, 5, 5]);
    let id = |name: &str| {
        metadata
            .count(&format!("tokenizer.ggml.{name}_token_id"))
            .unwrap()
    };
    assert_eq!([id("bos"), id("eos")], [Some(256); 2]);
    assert_eq!(id("padding"), Some(65));
    let error = converted(&tokenizer, 256, &config).unwrap_err().to_string();
    assert!(
        error.contains("its token 256 is beyond the model's vocabulary of 256"),
        "{error}"
    );
}

#[test]
fn tokenizers_of_other_kinds_are_refused() {
    let refused = |tokenizer: &Tokenizer| {
        let error = converted(tokenizer, 100_000, &Map::new());
        error.unwrap_err().to_string()
    };
    for (name, rule) in [
        ("unigram", "its model is Unigram, not byte pairs"),
        ("wordpiece", "its model is WordPiece, not byte pairs"),
    ] {
        let tokenizer = Tokenizer::from_file(fixture(&format!("files/{name}.json"))).unwrap();
        let error = refused(&tokenizer);
        assert_eq!(
            error,
            format!("GGUF files cannot express this tokenizer: {rule}")
        );
    }
    for (file, rule) in [
        // One merge per token, where scores allow every way to form it.
        (
            "files/llama.json",
            "its merges do not follow from scores of tokens",
        ),
        (
            "sentence_piece/bpe_plain.model",
            "its byte pairs have no bytes to fall back on",
        ),
    ] {
        let error = refused(&Tokenizer::from_file(fixture(file)).unwrap());
        assert!(error.ends_with(rule), "{error}");
    }
    let characters = Tokenizer::char_from_alphabet("abc ".chars()).unwrap();
    assert!(refused(&characters).contains("its model is WordLevel"));

    let path = fixture("files/byte_level.json");
    let mut file: Json = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    file["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "[aeiou]+"}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
    ]});
    let tokenizer = Tokenizer::from_json(file.to_string()).unwrap();
    let error = refused(&tokenizer);
    assert!(
        error.contains("llama.cpp has no pre-tokenizer that splits texts in its way"),
        "{error}"
    );
}
