//! The options of `prepare`.

use std::num::NonZero;
use std::path::PathBuf;

use emberlm_tokenizer::{TokenizerChoice, TokenizerKind};

use super::Encoding;
use crate::shard::check_shard_tokens;
use crate::{DEFAULT_SHARD_TOKENS, DataError, InputOptions};

/// The default of [`PrepareOptions::journal_bytes`].
pub const DEFAULT_JOURNAL_BYTES: u64 = 64 << 20;

/// The options of [`crate::prepare()`].
///
/// ```
/// use emberlm_data::{Dataset, PrepareOptions, prepare};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let (input, out) = (folder.path().join("text.txt"), folder.path().join("data"));
/// std::fs::write(&input, "a line\n".repeat(1000))?;
/// let options = PrepareOptions {
///     tokenizer: "byte".parse()?,
///     ..PrepareOptions::default()
/// };
/// prepare(&[input], &out, &options, &|_progress| {})?;
/// assert!(Dataset::open(out)?.tokenizer().encode("a line").is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PrepareOptions {
    /// The tokenizer. [`TokenizerKind::Char`] takes its alphabet from all documents.
    pub tokenizer: TokenizerChoice,
    /// Options for reading the inputs.
    pub input: InputOptions,
    /// The encoding of a document.
    pub encoding: Encoding,
    /// The rule that selects the validation split. `None` chooses [`SplitRule::File`] if `val` is not empty, else
    /// [`SplitRule::Position`] if all inputs are texts, else [`SplitRule::Hash`].
    pub split: Option<SplitRule>,
    /// The fraction used for validation, at least 0 and below 1. Ignored by [`SplitRule::File`].
    pub val_fraction: f64,
    /// The inputs of the validation split, for [`SplitRule::File`].
    pub val: Vec<PathBuf>,
    /// Drops documents that are byte-identical to an earlier one.
    pub dedup: bool,
    /// The maximum number of tokens in a shard, 1 to 2,147,483,647.
    pub shard_tokens: u64,
    /// The number of tokenizing threads. `None` uses the current rayon pool. The dataset does not depend on it.
    pub threads: Option<NonZero<usize>>,
    /// Replaces an existing dataset, and restarts an unfinished one.
    pub force: bool,
    /// Resumes an unfinished dataset, or begins a new one if there is none.
    pub resume: bool,
    /// The number of bytes of text tokenized between two updates of the saved progress. It is also saved at least
    /// every three seconds.
    pub journal_bytes: u64,
    /// The command line to record in the manifest.
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
    /// Checks that options are in range and do not contradict each other.
    pub(super) fn check(&self) -> Result<(), DataError> {
        if !(0.0..1.0).contains(&self.val_fraction) {
            return Err(DataError::Value {
                field: "val_fraction",
                value: self.val_fraction.to_string(),
                rule: "must be at least 0 and below 1",
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

emberlm_system::named! {
    /// The rule that selects the validation split. Names are lower case.
    #[derive(Hash)]
    pub enum SplitRule {
        /// The end of the concatenated documents. Of `n` characters, the first `n * (1 - val_fraction)`, rounded down,
        /// are for training, as in nanoGPT. A document at the border is cut in two.
        Position = "position",
        /// A document is for validation if the first 64 bits of its text's BLAKE3, as a big-endian number, are below
        /// `val_fraction * 2^64`. It stays in its split when the corpus grows, and equal documents are in the same split.
        Hash = "hash",
        /// The inputs named for validation.
        File = "file",
    }
}
