//! Feeds arbitrary bytes to the readers of tokenizer files and chat templates.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use emberlm_tokenizer::chat::{ChatEncoder, ChatExample, ChatTemplate};
use emberlm_tokenizer::{Tokenizer, TokenizerKind};

/// The separator between a template and the record that it renders.
pub const SEPARATOR: u8 = 0;

/// The record that is rendered if the bytes contain none.
const RECORD: &str = r#"{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "Hi <|im_end|>"},
    {"role": "assistant", "content": "Hello"}]}"#;

/// Texts to encode with every valid tokenizer.
const TEXTS: [&str; 4] = [
    "",
    "Once upon a time,  there was\n\n1234 x\u{301}",
    "\u{0}\u{feff}\u{1f525}<|endoftext|></s> \t\r\n",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

static BYTES: LazyLock<Tokenizer> =
    LazyLock::new(|| match Tokenizer::builtin(TokenizerKind::Byte) {
        Ok(tokenizer) => tokenizer,
        Err(error) => panic!("the built-in tokenizer of bytes: {error}"),
    });

/// Renders and encodes a record with a chat template, both from `bytes`. Returns true if the template is valid.
pub fn template(bytes: &[u8]) -> bool {
    let mut parts = bytes.splitn(2, |&byte| byte == SEPARATOR);
    let source = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let record = parts.next().map(String::from_utf8_lossy);
    let record = record.as_deref().unwrap_or(RECORD);
    let template = match ChatTemplate::with_time("fuzzed", &source, 1_700_000_000) {
        Ok(template) => template,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    if let Ok(ChatExample::Conversation(conversation)) = ChatExample::from_json(record) {
        for prompt in [false, true] {
            if let Err(error) = template.render(&conversation, prompt) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
    let encoder = ChatEncoder::new(template, &BYTES);
    if let Ok(tokens) = encoder.encode(record) {
        assert_eq!(tokens.ids.len(), tokens.learnt.len());
        check_ids(&BYTES, &tokens.ids);
    }
    if let Ok(ids) = encoder.prompt(record) {
        check_ids(&BYTES, &ids);
    }
    let _ = encoder.stops();
    true
}

/// Loads `bytes` as a tokenizer file and encodes texts with it. Returns true if it is valid.
pub fn tokenizer(bytes: &[u8], folder: &Path) -> bool {
    let path = folder.join("tokenizer.json");
    if let Err(error) = fs::write(&path, bytes) {
        panic!("{}: {error}", path.display());
    }
    let tokenizer = match Tokenizer::from_file(&path) {
        Ok(tokenizer) => tokenizer,
        Err(error) => {
            assert!(error.to_string().contains("tokenizer.json"), "{error}");
            return false;
        }
    };
    let own = String::from_utf8_lossy(&bytes[..bytes.len().min(64)]);
    for text in TEXTS.iter().copied().chain([&*own]) {
        if let Ok(ids) = tokenizer.encode(text) {
            check_ids(&tokenizer, &ids);
        }
    }
    true
}

/// Checks that ids from a tokenizer are within its vocabulary and can be decoded, all at once and one by one.
fn check_ids(tokenizer: &Tokenizer, ids: &[u32]) {
    let size = tokenizer.vocab_size();
    for &id in ids {
        assert!((id as usize) < size, "id {id} of a vocabulary of {size}");
    }
    assert!(tokenizer.decode(ids).is_ok());
    let mut stream = tokenizer.stream();
    for &id in ids {
        assert!(stream.push(id).is_ok());
    }
}
