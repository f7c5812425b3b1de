//! The tokenizer specification stored with datasets and checkpoints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TokenizerKind;

/// A tokenizer's identity on disk. [`crate::Tokenizer::open`] loads the tokenizer and rejects one with a
/// different vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenizerSpec {
    /// The kind of tokenizer.
    pub kind: TokenizerKind,
    /// The number of ids, including special and unassigned ones.
    pub vocab_size: usize,
    /// The BLAKE3 hash of the vocabulary in hexadecimal: the bytes of every id in order, each preceded by its
    /// length, then the end-of-text id. For `tokenizer.json`, of the file's bytes and the end-of-text
    /// id.
    pub hash: String,
    /// The characters in the order of their ids. Only for `char`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alphabet: Option<String>,
    /// The end-of-text id. Only for `tokenizer.json`, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_of_text: Option<u32>,
}
