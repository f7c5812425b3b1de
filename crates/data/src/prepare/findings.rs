//! The result of a preparation, with warnings.

use std::fmt;

use emberlm_tokenizer::Tokenizer;

use super::documents::Counts;
use super::tally::{FEW_TOKENS, Tally};
use crate::lists::listed;
use crate::{LeftOut, Manifest, Split, SplitManifest};

/// A validation split with fewer tokens is too small for a meaningful loss. It is less than one window of a small
/// model.
const FEW_VAL_TOKENS: u64 = 256;

/// The share of unknown tokens above which a warning is given.
const MAX_UNKNOWN_SHARE: f64 = 0.001;

/// The share of NUL bytes above which a warning is given. Text has none.
const MAX_NUL_SHARE: f64 = 0.001;

/// The result of [`crate::prepare()`].
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// The dataset's contents.
    pub manifest: Manifest,
    /// The records that were skipped.
    pub left_out: LeftOut,
    /// The number of documents dropped because they equal an earlier one.
    pub duplicates: u64,
    /// Warnings.
    pub warnings: Vec<Warning>,
}

/// A property of the dataset that may be unintended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// Many tokens are the unknown token.
    UnknownTokens {
        /// The number of unknown tokens.
        unknown: u64,
        /// The number of tokens.
        tokens: u64,
    },
    /// The texts have many NUL bytes, which binary data and padding have.
    Nuls {
        /// The number of NUL bytes.
        nuls: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// Texts were cut at positions that may change tokens, because no exact place to cut was found in time.
    InexactCuts {
        /// The number of such cuts.
        cuts: u64,
        /// The number of bytes without an exact place after which a text is cut.
        longest: usize,
    },
    /// The chat template uses special tokens that the tokenizer does not have. They are encoded as plain text.
    MissingSpecials {
        /// The names of the special tokens.
        names: Vec<String>,
    },
    /// A validation split was requested, but it has very few tokens.
    ShortVal {
        /// The number of tokens in the validation split.
        tokens: u64,
    },
    /// Most documents have very few tokens.
    ShortDocuments {
        /// The number of short documents.
        short: u64,
        /// The number of documents.
        documents: u64,
    },
    /// The corpus contains duplicates.
    Duplicates {
        /// The number of documents that equal an earlier one.
        duplicates: u64,
        /// The number of documents compared.
        compared: u64,
    },
    /// Validation documents also occur in the training split.
    Leaked {
        /// The number of such documents.
        leaked: u64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: u64, of: u64| part as f64 / of.max(1) as f64 * 100.0;
        match self {
            Self::MissingSpecials { names } => write!(
                f,
                "the tokenizer has no special token {}: the template's are plain text",
                listed(names, ", ")
            ),
            &Self::InexactCuts { cuts, longest } => write!(
                f,
                "texts were cut at {cuts} place{} within spans of more than {} KiB that cannot be tokenized separately: \
                 tokens there may differ from those of the whole text",
                if cuts == 1 { "" } else { "s" },
                longest >> 10,
            ),
            &Self::Nuls { nuls, bytes } => write!(
                f,
                "{nuls} of {bytes} bytes of text ({:.2}%) are NUL: is a file binary, or in another encoding than UTF-8?",
                percent(nuls, bytes)
            ),
            &Self::UnknownTokens { unknown, tokens } => write!(
                f,
                "{unknown} of {tokens} tokens ({:.2}%) are unknown ones: the tokenizer was not made for this text",
                percent(unknown, tokens)
            ),
            Self::ShortVal { tokens: 0 } => {
                write!(
                    f,
                    "the validation split is empty: there are too few documents to choose from"
                )
            }
            &Self::ShortVal { tokens } => write!(
                f,
                "the validation split has only {tokens} tokens: its losses will be noisy"
            ),
            &Self::ShortDocuments { short, documents } => write!(
                f,
                "{short} of {documents} documents have fewer than {FEW_TOKENS} tokens: is each line or record really a separate document?"
            ),
            &Self::Duplicates {
                duplicates,
                compared,
            } => write!(
                f,
                "{duplicates} of {compared} documents are equal to an earlier one: --dedup leaves them out"
            ),
            &Self::Leaked { leaked } => write!(
                f,
                "{leaked} documents of the validation split are in the training split too"
            ),
        }
    }
}

/// The warnings about a prepared dataset.
pub(super) fn warnings(
    manifest: &Manifest,
    tally: &Tally,
    counts: &Counts,
    dedup: bool,
    val_wanted: bool,
    tokenizer: &Tokenizer,
    missing: &[String],
) -> Vec<Warning> {
    let sum = |count: fn(&SplitManifest) -> u64| -> u64 {
        Split::ALL
            .map(|split| count(manifest.split(split)))
            .iter()
            .sum()
    };
    let (tokens, val) = (sum(|split| split.tokens), manifest.splits.val.tokens);
    let unknown = tally.unknown;
    let (short, documents) = (tally.short, tally.documents);
    let &Counts {
        duplicates,
        leaked,
        compared,
        ..
    } = counts;
    let warnings = [
        (tally.inexact_cuts > 0).then(|| Warning::InexactCuts {
            cuts: tally.inexact_cuts,
            longest: tokenizer.longest_part(),
        }),
        (!missing.is_empty()).then(|| Warning::MissingSpecials {
            names: missing.to_vec(),
        }),
        (tally.nuls as f64 > tally.bytes as f64 * MAX_NUL_SHARE).then_some(Warning::Nuls {
            nuls: tally.nuls,
            bytes: tally.bytes,
        }),
        (unknown as f64 > tokens as f64 * MAX_UNKNOWN_SHARE)
            .then_some(Warning::UnknownTokens { unknown, tokens }),
        (val_wanted && val < FEW_VAL_TOKENS).then_some(Warning::ShortVal { tokens: val }),
        // A few short documents are probably a trial.
        (documents >= 10 && short * 2 > documents)
            .then_some(Warning::ShortDocuments { short, documents }),
        (duplicates > 0 && !dedup).then_some(Warning::Duplicates {
            duplicates,
            compared,
        }),
        (leaked > 0 && !dedup).then_some(Warning::Leaked { leaked }),
    ];
    warnings.into_iter().flatten().collect()
}
