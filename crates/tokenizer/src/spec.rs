//! The specification, written beside data and weights, by which the same tokenizer is found again.

use serde::{Deserialize, Serialize};

use crate::TokenizerKind;

/// A tokenizer's identity on disk; [`crate::Tokenizer::open`] turns it back into the tokenizer and refuses one whose
/// vocabulary has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerSpec {
    /// Which tokenizer.
    pub kind: TokenizerKind,
    /// The number of ids that it has, special and unassigned ones included.
    pub vocab_size: usize,
    /// BLAKE3, in hexadecimal, of the vocabulary: every id's bytes in the order of the ids, each after its length, and
    /// the end-of-text id. For [`TokenizerKind::File`], of the file's bytes and the end-of-text id.
    pub hash: String,
    /// The characters in the order of their ids: for [`TokenizerKind::Char`], and for no other kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alphabet: Option<String>,
    /// The id that ends a text: for [`TokenizerKind::File`] where it has one, and for no other kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_of_text: Option<u32>,
}
