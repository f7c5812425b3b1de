//! Tokenizers of GGUF files: converted from a vocabulary with known ids, and refused ones.

use emberlm_gguf::{Array, Metadata, Value};
use emberlm_tokenizer::{GgufTokenizer, Tokenizer, TokenizerKind};
use serde_json::Value as Json;

const TEXTS: [&str; 7] = [
    "Hello world",
    "  It's 12345 days,\n\n\tisn't it?  ",
    "naïve café Ünïcödé 漢字 🔥",
    "<|endoftext|> is text here",
    "",
    " ",
    "x = y_1 + z[2]; // ok\r\n",
];

fn strings(list: Vec<String>) -> Value {
    Value::Array(Array::String(list))
}

/// The metadata of GPT-2's vocabulary, which tiktoken defines.
fn gpt2() -> Metadata {
    let json = Tokenizer::builtin(TokenizerKind::Gpt2)
        .unwrap()
        .to_tokenizer_json();
    let file: Json = serde_json::from_slice(&json).unwrap();
    let model = &file["model"];
    let end = "<|endoftext|>";
    let mut tokens = vec![String::new(); 50_257];
    for (token, id) in model["vocab"].as_object().unwrap() {
        tokens[id.as_u64().unwrap() as usize] = token.clone();
    }
    tokens[50_256] = end.to_owned();
    let merges = model["merges"].as_array().unwrap().iter();
    let merges = merges.map(|merge| match merge.as_str() {
        Some(merge) => merge.to_owned(),
        None => format!(
            "{} {}",
            merge[0].as_str().unwrap(),
            merge[1].as_str().unwrap()
        ),
    });
    let mut types = vec![1; tokens.len()];
    types[50_256] = 3;
    let mut metadata = Metadata::default();
    let text = |text: &str| Value::String(text.to_owned());
    metadata.insert("tokenizer.ggml.model", text("gpt2"));
    metadata.insert("tokenizer.ggml.pre", text("gpt-2"));
    metadata.insert("tokenizer.ggml.tokens", strings(tokens));
    metadata.insert("tokenizer.ggml.merges", strings(merges.collect()));
    metadata.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    metadata.insert("tokenizer.ggml.eos_token_id", Value::U32(50_256));
    metadata
}

fn read(metadata: &Metadata) -> GgufTokenizer {
    GgufTokenizer::read(metadata).unwrap().unwrap()
}

#[test]
fn byte_pairs_have_the_ids_of_their_vocabulary() {
    let expected = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
    let found = read(&gpt2()).tokenizer().unwrap();
    assert_eq!(found.end_of_text(), Some(50_256));
    for text in TEXTS {
        let ids = found.encode(text).unwrap();
        assert_eq!(ids, expected.encode(text).unwrap(), "{text:?}");
        assert_eq!(found.decode(&ids).unwrap(), text);
    }
}

#[test]
fn texts_begin_with_a_token_if_the_file_says_so() {
    let mut metadata = gpt2();
    let prompt = |metadata: &Metadata| {
        let tokenizer = read(metadata).tokenizer().unwrap();
        tokenizer.encode_prompt("Hello").unwrap()
    };
    assert_eq!(prompt(&metadata), [15_496]);
    metadata.insert("tokenizer.ggml.bos_token_id", Value::U32(50_256));
    metadata.insert("tokenizer.ggml.add_bos_token", Value::Bool(true));
    assert_eq!(prompt(&metadata), [50_256, 15_496]);
}

#[test]
fn templates_and_ends_of_answers_become_settings() {
    let mut metadata = gpt2();
    let text = |text: &str| Value::String(text.to_owned());
    metadata.insert("tokenizer.ggml.eot_token_id", Value::U32(7));
    metadata.insert("tokenizer.chat_template", text("main {{ eos_token }}"));
    let tokenizer = read(&metadata);
    assert_eq!(
        tokenizer.generation_config()["eos_token_id"],
        serde_json::json!([7, 50_256])
    );
    assert_eq!(tokenizer.config()["eos_token"], "<|endoftext|>");
    let template = tokenizer.chat_template("m.gguf", None).unwrap().unwrap();
    assert_eq!(template.source(), "main {{ eos_token }}");
    assert_eq!(template.tokens()["eos_token"], "<|endoftext|>");
    assert!(
        tokenizer
            .chat_template("m.gguf", Some("tool_use"))
            .unwrap()
            .is_none()
    );

    metadata.insert(
        "tokenizer.chat_templates",
        strings(vec!["tool_use".to_owned()]),
    );
    metadata.insert("tokenizer.chat_template.tool_use", text("tools"));
    let tokenizer = read(&metadata);
    for (which, source) in [(None, "main {{ eos_token }}"), (Some("tool_use"), "tools")] {
        let template = tokenizer.chat_template("m.gguf", which).unwrap().unwrap();
        assert_eq!(template.source(), source);
    }
}

#[test]
fn unsupported_tokenizers_are_refused_by_the_key() {
    let text = |text: &str| Value::String(text.to_owned());
    let cases = [
        (
            "tokenizer.ggml.model",
            text("rwkv"),
            "`tokenizer.ggml.model` = \"rwkv\": must be one of gpt2, llama, t5, bert",
        ),
        (
            "tokenizer.ggml.pre",
            text("unheard-of"),
            "`tokenizer.ggml.pre` = \"unheard-of\": must be one of gpt-2, phi-2,",
        ),
        (
            "tokenizer.ggml.eos_token_id",
            Value::U32(50_257),
            "`tokenizer.ggml.eos_token_id` = 50257: must be below the number of tokens, 50257",
        ),
        (
            "tokenizer.ggml.token_type",
            Value::Array(Array::I32(vec![1, 9])),
            "`tokenizer.ggml.token_type` = [1, 9]: must have a type from 1 to 6 for each of the 50257 tokens",
        ),
        (
            "tokenizer.ggml.tokens",
            strings(vec!["a".to_owned(), "a".to_owned()]),
            "must have a type from 1 to 6",
        ),
        (
            "tokenizer.ggml.merges",
            strings(vec!["ab".to_owned()]),
            "`tokenizer.ggml.merges` = [\"ab\"]: each must be two tokens",
        ),
        (
            "tokenizer.ggml.add_bos_token",
            Value::U8(1),
            "`tokenizer.ggml.add_bos_token` = 1: must be true or false",
        ),
    ];
    for (key, value, expected) in cases {
        let mut metadata = gpt2();
        metadata.insert(key, value);
        let error = GgufTokenizer::read(&metadata).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(GgufTokenizer::read(&Metadata::default()).unwrap().is_none());
}

/// The metadata of a vocabulary of four tokens.
fn small() -> Metadata {
    let list = |texts: &[&str]| strings(texts.iter().map(|text| (*text).to_owned()).collect());
    let text = |text: &str| Value::String(text.to_owned());
    let mut metadata = Metadata::default();
    metadata.insert("tokenizer.ggml.model", text("gpt2"));
    metadata.insert("tokenizer.ggml.pre", text("gpt-2"));
    metadata.insert("tokenizer.ggml.tokens", list(&["a", "b", "ab", "<end>"]));
    metadata.insert("tokenizer.ggml.merges", list(&["a b"]));
    let types = Value::Array(Array::I32(vec![1, 1, 1, 3]));
    metadata.insert("tokenizer.ggml.token_type", types);
    metadata.insert("tokenizer.ggml.eos_token_id", Value::U32(3));
    metadata
}

/// Qwen3.5 splits like Qwen2, but keeps marks with the letters before them.
#[test]
fn marks_are_parts_of_words_since_qwen3_5() {
    let list = |texts: &[&str]| strings(texts.iter().map(|text| (*text).to_owned()).collect());
    for (pre, expected) in [("qwen2", &[0, 3][..]), ("qwen35", &[4])] {
        let mut metadata = small();
        metadata.insert("tokenizer.ggml.pre", Value::String(pre.to_owned()));
        let tokens = list(&["q", "Ì", "ģ", "Ìģ", "qÌģ", "<end>"]);
        metadata.insert("tokenizer.ggml.tokens", tokens);
        metadata.insert("tokenizer.ggml.merges", list(&["Ì ģ", "q Ìģ"]));
        let types = Value::Array(Array::I32(vec![1, 1, 1, 1, 1, 3]));
        metadata.insert("tokenizer.ggml.token_type", types);
        metadata.insert("tokenizer.ggml.eos_token_id", Value::U32(5));
        let tokenizer = read(&metadata).tokenizer().unwrap();
        // No character is composed of the two.
        assert_eq!(tokenizer.encode("q\u{301}").unwrap(), expected, "{pre}");
    }
}

#[test]
fn ids_of_no_token_are_absent_and_unusable_ids_that_no_text_needs_are_warnings() {
    const IDS: [&str; 9] = [
        "bos",
        "eos",
        "unknown",
        "padding",
        "seperator",
        "cls",
        "mask",
        "eot",
        "eom",
    ];
    for name in IDS {
        let key = format!("tokenizer.ggml.{name}_token_id");
        for none in [
            Value::U32(u32::MAX),
            Value::I32(-1),
            Value::U64(u64::MAX),
            Value::I64(-1),
        ] {
            let mut metadata = small();
            metadata.insert(&key, none);
            let tokenizer = read(&metadata);
            assert_eq!(tokenizer.warnings(), Vec::<String>::new(), "{key}");
            let ids = tokenizer.tokenizer().unwrap().encode("ab").unwrap();
            assert_eq!(ids, [2], "{key}");
        }
        if name == "eos" {
            continue;
        }
        for other in [
            Value::U32(4),
            Value::I32(-2),
            Value::String("none".to_owned()),
        ] {
            let mut metadata = small();
            metadata.insert(&key, other);
            let tokenizer = read(&metadata);
            let [warning] = tokenizer.warnings() else {
                panic!("{key}: {:?}", tokenizer.warnings());
            };
            assert!(warning.contains(&key), "{warning}");
            assert!(warning.ends_with("; it is ignored"), "{warning}");
            tokenizer.tokenizer().unwrap();
        }
    }
    // A text begins with it.
    let mut metadata = small();
    metadata.insert("tokenizer.ggml.add_bos_token", Value::Bool(true));
    metadata.insert("tokenizer.ggml.bos_token_id", Value::U32(4));
    let error = GgufTokenizer::read(&metadata).unwrap_err().to_string();
    assert!(error.contains("tokenizer.ggml.bos_token_id"), "{error}");
}

#[test]
fn unknown_keys_of_the_tokenizer_are_warnings() {
    let mut metadata = small();
    metadata.insert("tokenizer.ggml.fim_pre_token_id", Value::U32(3));
    metadata.insert("tokenizer.ggml.token_type_count", Value::U32(2));
    assert_eq!(read(&metadata).warnings(), Vec::<String>::new());
    metadata.insert("tokenizer.ggml.strip_accents", Value::Bool(true));
    let tokenizer = read(&metadata);
    let [warning] = tokenizer.warnings() else {
        panic!("{:?}", tokenizer.warnings());
    };
    assert!(
        warning.contains("`tokenizer.ggml.strip_accents` is ignored"),
        "{warning}"
    );
}
