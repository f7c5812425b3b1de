//! Counts taken while tokens are written, for the warnings and for resuming.

use serde::{Deserialize, Serialize};

/// A document with fewer tokens, including its end-of-text token, counts as short.
pub(super) const FEW_TOKENS: u64 = 8;

/// The counts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tally {
    /// The number of chunks processed, including those of dropped documents.
    #[serde(rename = "pieces")]
    pub(super) chunks: u64,
    /// The number of bytes of text in those chunks.
    pub(super) bytes: u64,
    /// The number of NUL bytes among them.
    #[serde(default)]
    pub(super) nuls: u64,
    /// The number of unknown tokens.
    pub(super) unknown: u64,
    /// The number of cuts that may have changed tokens.
    #[serde(default)]
    pub(super) inexact_cuts: u64,
    /// The number of documents begun.
    pub(super) documents: u64,
    /// The number of finished documents with fewer than [`FEW_TOKENS`] tokens.
    pub(super) short: u64,
    /// The number of tokens in the current document.
    open: u64,
}

impl Tally {
    /// Adds a span of a document.
    pub(super) fn add(&mut self, tokens: u64, unknown: u64, begins: bool) {
        if begins {
            self.end_document();
            self.documents += 1;
        }
        self.open += tokens;
        self.unknown += unknown;
    }

    /// Ends the current document.
    pub(super) fn end_document(&mut self) {
        if self.documents > 0 && self.open < FEW_TOKENS {
            self.short += 1;
        }
        self.open = 0;
    }
}
