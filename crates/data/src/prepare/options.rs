//! The options of `prepare`.

use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;

use emberlm_tokenizer::{TokenizerChoice, TokenizerKind};

use super::Encoding;
use crate::shard::check_shard_tokens;
use crate::{DEFAULT_SHARD_TOKENS, DataError, InputOptions};

/// Bytes of text that are tokenized between two entries of the journal.
pub const DEFAULT_JOURNAL_BYTES: u64 = 64 << 20;

/// The options of [`crate::prepare()`].
#[derive(Clone, Debug, PartialEq)]
pub struct PrepareOptions {
    /// Which tokenizer; [`TokenizerKind::Char`] takes its alphabet from all the documents.
    pub tokenizer: TokenizerChoice,
    /// The reading of the inputs.
    pub input: InputOptions,
    /// The encoding of a document.
    pub encoding: Encoding,
    /// The rule that chooses the validation split; without it [`SplitRule::File`] where `val` names inputs, else
    /// [`SplitRule::Position`] where all inputs are texts, else [`SplitRule::Hash`].
    pub split: Option<SplitRule>,
    /// The part that is kept for validation: at least 0 and below 1. [`SplitRule::File`] does not look at it.
    pub val_fraction: f64,
    /// The inputs of the validation split, for [`SplitRule::File`].
    pub val: Vec<PathBuf>,
    /// True if documents that are equal to an earlier one, byte for byte, are left out.
    pub dedup: bool,
    /// The most tokens in a shard: 1 to 2,147,483,647.
    pub shard_tokens: u64,
    /// The number of threads that tokenize; without it, all of the present rayon pool. The dataset does not depend on it.
    pub threads: Option<NonZero<usize>>,
    /// True if an existing dataset may be replaced, and an unfinished one restarted.
    pub force: bool,
    /// True if an unfinished dataset is resumed. If there is none, a new one is begun.
    pub resume: bool,
    /// Bytes of text that are tokenized between two entries of the journal; an entry is written every three seconds at
    /// the latest.
    pub journal_bytes: u64,
    /// The command, as recorded in the manifest.
    pub command: String,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        Self {
            tokenizer: TokenizerKind::Gpt2.into(),
            input: InputOptions::default(),
            encoding: Encoding::Text,
            split: None,
            val_fraction: 0.1,
            val: Vec::new(),
            dedup: false,
            shard_tokens: DEFAULT_SHARD_TOKENS,
            threads: None,
            force: false,
            resume: false,
            journal_bytes: DEFAULT_JOURNAL_BYTES,
            command: String::new(),
        }
    }
}

impl PrepareOptions {
    /// Refuses what is out of range or contradicts itself.
    pub(super) fn check(&self) -> Result<(), DataError> {
        if !(0.0..1.0).contains(&self.val_fraction) {
            return Err(DataError::Value {
                field: "val_fraction",
                value: self.val_fraction.to_string(),
                rule: "it must be at least 0 and below 1",
            });
        }
        check_shard_tokens(self.shard_tokens)?;
        let reason = match (self.split, self.val.is_empty()) {
            (Some(SplitRule::File), true) => {
                "a split by file needs the inputs that are for validation"
            }
            (Some(SplitRule::Position | SplitRule::Hash), false) => {
                "inputs for validation are named, but the split is not by file"
            }
            _ => return Ok(()),
        };
        Err(DataError::Contradiction { reason })
    }
}

/// The rule that chooses the validation split; written in lower case wherever it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SplitRule {
    /// The end of the documents put together: of `n` characters, the first `n * (1 - val_fraction)`, rounded down, are
    /// for training, as nanoGPT has it. A document at the border is cut in two.
    Position,
    /// A document is for validation where the first 64 bits of its text's BLAKE3, as a big-endian number, are below
    /// `val_fraction * 2^64`: it stays where it is when the corpus grows, and equal documents are on the same side.
    Hash,
    /// The inputs that are named for it.
    File,
}

impl SplitRule {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Position, Self::Hash, Self::File];

    /// The rule's name, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Position => "position",
            Self::Hash => "hash",
            Self::File => "file",
        }
    }
}

impl fmt::Display for SplitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SplitRule {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        Self::ALL
            .into_iter()
            .find(|rule| rule.name() == name)
            .ok_or_else(|| DataError::UnknownSplitRule {
                name: name.to_owned(),
            })
    }
}
