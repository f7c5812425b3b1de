//! Byte-level byte pairs.

use emberlm_gguf::{GgufError, Metadata};
use serde_json::{Value, json};

use super::pre_tokenizers::{self, PRE};
use super::{Token, added_tokens, post_processor, vocabulary};
use crate::export::byte_level;

pub(super) const MERGES: &str = "tokenizer.ggml.merges";

/// Builds the `tokenizer.json`.
pub(super) fn file(metadata: &Metadata, tokens: &[Token<'_>]) -> Result<Value, GgufError> {
    let name = metadata.text(PRE)?;
    let name = name.ok_or_else(|| metadata.error(PRE, "must be given"))?;
    let Some(pre) = pre_tokenizers::named(name) else {
        let names = pre_tokenizers::names().join(", ");
        return Err(metadata.error(PRE, format!("must be one of {names}")));
    };
    let merges = metadata.texts(MERGES)?;
    let merges = merges.ok_or_else(|| metadata.error(MERGES, "must be given"))?;
    // Tokens contain no spaces but those that are spaces themselves, so the first space after the first character
    // separates the two.
    let pair = |merge: &String| {
        let first = merge.chars().next().map_or(0, char::len_utf8);
        let at = first + merge[first..].find(' ')?;
        Some(json!([merge[..at], merge[at + 1..]]))
    };
    let merges: Option<Vec<Value>> = merges.iter().map(pair).collect();
    let merges = merges.ok_or_else(|| metadata.error(MERGES, "each must be two tokens"))?;
    let steps = pre.steps();
    let normalizer = pre
        .normalizer
        .map_or(Value::Null, |kind| json!({"type": kind}));
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added_tokens(tokens),
        "normalizer": normalizer,
        "pre_tokenizer": match steps.as_slice() {
            [only] => only.clone(),
            _ => json!({"type": "Sequence", "pretokenizers": steps}),
        },
        "post_processor": post_processor(metadata, tokens, pre.begins)?,
        "decoder": byte_level(),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": pre.ignores_merges,
            "vocab": vocabulary(tokens.iter().map(|token| token.text)),
            "merges": merges,
        },
    }))
}
