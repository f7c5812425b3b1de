//! WordPiece vocabularies. Files mark the beginning of a word by `▁` where BERT marks its continuation by `##`.

use emberlm_gguf::{GgufError, Metadata};
use serde_json::{Value, json};

use super::keys::token_id;
use super::{TOKENS, Token, added_tokens, template, token_type, vocabulary};

const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
const BEGIN: &str = "tokenizer.ggml.cls_token_id";
const BEGIN_OTHER: &str = "tokenizer.ggml.bos_token_id";
/// The key is misspelled in the format.
const END: &str = "tokenizer.ggml.seperator_token_id";
const BEGINS_WORD: char = '\u{2581}';
const CONTINUES_WORD: &str = "##";
/// Longest word in characters, as in BERT.
const LONGEST_WORD: usize = 100;

/// Builds the `tokenizer.json`.
pub(super) fn file(metadata: &Metadata, tokens: &[Token<'_>]) -> Result<Value, GgufError> {
    let text = |token: &Token<'_>| match token.text.strip_prefix(BEGINS_WORD) {
        Some(word) => word.to_owned(),
        None if token.kind == token_type::NORMAL && !is_bracketed(token.text) => {
            format!("{CONTINUES_WORD}{}", token.text)
        }
        None => token.text.to_owned(),
    };
    let texts: Vec<String> = tokens.iter().map(text).collect();
    let vocab = vocabulary(texts.iter().map(String::as_str));
    if vocab.len() != tokens.len() {
        return Err(metadata.error(TOKENS, "two tokens are the same piece of a word"));
    }
    let begin = match token_id(metadata, BEGIN, tokens)? {
        Some(begin) => Some(begin),
        None => token_id(metadata, BEGIN_OTHER, tokens)?,
    };
    let end = token_id(metadata, END, tokens)?;
    let unknown = token_id(metadata, UNKNOWN, tokens)?;
    let unknown = unknown.map_or("[UNK]", |id| tokens[id as usize].text);
    let lowercase = metadata.flag("tokenizer.ggml.normalizer.lowercase")?;
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added_tokens(tokens),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": lowercase.unwrap_or(true),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": template(tokens, begin, end),
        "decoder": {"type": "WordPiece", "prefix": CONTINUES_WORD, "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": unknown,
            "continuing_subword_prefix": CONTINUES_WORD,
            "max_input_chars_per_word": LONGEST_WORD, "vocab": vocab,
        },
    }))
}

/// Returns true for names such as `[CLS]`.
fn is_bracketed(text: &str) -> bool {
    text.starts_with('[') && text.ends_with(']')
}
