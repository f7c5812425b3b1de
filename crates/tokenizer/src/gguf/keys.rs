//! The keys of a GGUF file's tokenizer: ids of special tokens, and those that are ignored.

use emberlm_gguf::{GgufError, Metadata};

use super::Token;

/// Ids of no token: -1, and -1 as an unsigned number.
const ABSENT: [i128; 3] = [-1, u32::MAX as i128, u64::MAX as i128];

/// Keys that are read, or that change neither ids nor texts.
const KNOWN: [&str; 38] = [
    "add_bos_token",
    "add_eos_token",
    "add_space_prefix",
    "bos_token_id",
    "cls_token_id",
    "eom_token_id",
    "eos_token_id",
    "eot_token_id",
    "mask_token_id",
    "merges",
    "model",
    "normalizer.lowercase",
    "padding_token_id",
    "pre",
    "precompiled_charsmap",
    "remove_extra_whitespaces",
    "scores",
    "seperator_token_id",
    "token_type",
    "tokens",
    "unknown_token_id",
    // Tokens that fill in the middle of a text, which no command does.
    "fim_mid_token_id",
    "fim_pad_token_id",
    "fim_pre_token_id",
    "fim_rep_token_id",
    "fim_sep_token_id",
    "fim_suf_token_id",
    "middle_token_id",
    "prefix_token_id",
    "suffix_token_id",
    // Copies of the vocabulary in other forms, and its size.
    "added_tokens",
    "extra_special_tokens",
    "huggingface.json",
    "hf_json",
    "n_tokens",
    "rwkv.world",
    "token_type_count",
    "vocab_size",
];
const PREFIX: &str = "tokenizer.ggml.";

/// Reads a token id; `None` if the key is absent or has the id of no token.
///
/// # Errors
/// The id is no whole number, or not below the number of tokens.
pub(super) fn token_id(
    metadata: &Metadata,
    key: &str,
    tokens: &[Token<'_>],
) -> Result<Option<u32>, GgufError> {
    let Some(value) = metadata.get(key) else {
        return Ok(None);
    };
    let id = value.integer();
    if id.is_some_and(|id| ABSENT.contains(&id)) {
        return Ok(None);
    }
    let found = id.and_then(|id| u32::try_from(id).ok());
    let found = found.filter(|&id| (id as usize) < tokens.len());
    let rule = || format!("must be below the number of tokens, {}", tokens.len());
    found.map(Some).ok_or_else(|| metadata.error(key, rule()))
}

/// Warnings about keys of the tokenizer that are ignored: ids in `unused`, of which no use is made, and unknown keys.
pub(super) fn warnings(
    metadata: &Metadata,
    tokens: &[Token<'_>],
    unused: impl Iterator<Item = &'static str>,
) -> Vec<String> {
    let ids = unused.filter_map(|key| token_id(metadata, key, tokens).err());
    let mut warnings: Vec<String> = ids.map(|error| format!("{error}; it is ignored")).collect();
    let keys = metadata.iter().map(|(key, _)| key);
    let unknown = keys.filter(|key| {
        let name = key.strip_prefix(PREFIX);
        name.is_some_and(|name| !KNOWN.contains(&name))
    });
    let unknown = unknown.map(|key| format!("`{key}` is ignored: the key is unknown"));
    warnings.extend(unknown);
    warnings
}
