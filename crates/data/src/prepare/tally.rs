//! Counts taken while tokens are written, for the warnings at the end.

use serde::{Deserialize, Serialize};

/// A document of fewer tokens, its end-of-text token among them, is hardly one.
pub(super) const FEW_TOKENS: u64 = 8;

/// The counts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tally {
    /// Pieces of documents that have been gone through, those that were left out too.
    pub(super) pieces: u64,
    /// Their text's bytes.
    pub(super) bytes: u64,
    /// Tokens that stand for what the vocabulary does not have.
    pub(super) unknown: u64,
    /// Places at which a text was cut although that may change tokens.
    #[serde(default)]
    pub(super) inexact_cuts: u64,
    /// Documents that have been begun.
    pub(super) documents: u64,
    /// Of those that have ended, how many have fewer than [`FEW_TOKENS`] tokens.
    pub(super) short: u64,
    /// The tokens of the document that was begun last.
    open: u64,
}

impl Tally {
    /// Takes a part of a document into account.
    pub(super) fn add(&mut self, tokens: u64, unknown: u64, begins: bool) {
        if begins {
            self.end_document();
            self.documents += 1;
        }
        self.open += tokens;
        self.unknown += unknown;
    }

    /// Ends the document that was begun last.
    pub(super) fn end_document(&mut self) {
        if self.documents > 0 && self.open < FEW_TOKENS {
            self.short += 1;
        }
        self.open = 0;
    }
}
