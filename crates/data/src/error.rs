//! What can go wrong between text files and batches.

use std::io;
use std::path::{Path, PathBuf};

use emberlm_tokenizer::TokenizerError;

use crate::Split;

/// An error of this crate; each carries the path, the value at fault and the rule it breaks.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The operating system refused something: a full disk and a missing permission end up here.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: "read", "write", ….
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A parameter is outside what is allowed.
    #[error("`{field}` is {value}: {rule}")]
    Value {
        /// The parameter.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// There is nothing to prepare.
    #[error("no input: name at least one text file or folder")]
    NoInputs,
    /// An input does not exist.
    #[error("no such file or folder: {}", path.display())]
    MissingInput {
        /// The input.
        path: PathBuf,
    },
    /// An input is neither a regular file nor a folder.
    #[error("{} is neither a regular file nor a folder", path.display())]
    NotAFile {
        /// The input.
        path: PathBuf,
    },
    /// A folder holds no file (hidden ones and links do not count).
    #[error("{} holds no text files (hidden files and links are not read)", path.display())]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A text file holds nothing.
    #[error("{} is empty", path.display())]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },
    /// A text file is not UTF-8.
    #[error("{} is not UTF-8 text: the first wrong byte is at offset {offset}", path.display())]
    InvalidUtf8 {
        /// The file.
        path: PathBuf,
        /// Where the first byte is that cannot be read, counted from 0.
        offset: u64,
    },
    /// A text file was written to between the two times it is read.
    #[error("{} changed while it was being read", path.display())]
    FileChanged {
        /// The file.
        path: PathBuf,
    },
    /// A split would hold nothing.
    #[error(
        "the {split} split would be empty: `val_fraction` {val_fraction} of {characters} characters"
    )]
    EmptySplit {
        /// The split.
        split: Split,
        /// How many characters there are in all.
        characters: u64,
        /// The fraction asked for.
        val_fraction: f64,
    },
    /// A text could not be tokenized.
    #[error("{}: {source}", path.display())]
    Tokenize {
        /// The text's file.
        path: PathBuf,
        /// What the tokenizer said.
        source: TokenizerError,
    },
    /// The output exists, and it was not said that it may be replaced.
    #[error("{} already exists", path.display())]
    OutputExists {
        /// The output.
        path: PathBuf,
    },
    /// The output may be replaced, but is not a dataset of this program, so it is left alone.
    #[error("{} is not replaced, since it is not an emberlm dataset: {reason}", path.display())]
    OutputNotADataset {
        /// The output.
        path: PathBuf,
        /// What gives it away.
        reason: String,
    },
    /// A folder is no dataset, or its manifest cannot be used.
    #[error("{}: {reason}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A tokenizer, or the file that holds it, cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The tokenizer that a manifest describes is not one of this program's.
    #[error("{}: {source}", path.display())]
    ManifestTokenizer {
        /// The manifest.
        path: PathBuf,
        /// What the tokenizer said.
        source: TokenizerError,
    },
    /// A shard is damaged or is no shard.
    #[error("{} is not a usable shard: {reason}", path.display())]
    Shard {
        /// The shard.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A shard holds an id that the vocabulary does not have.
    #[error("{}: token {id} at position {position} is outside the vocabulary of {vocab_size}", path.display())]
    TokenOutOfRange {
        /// The shard.
        path: PathBuf,
        /// The token's place in the shard, counted from 0.
        position: u64,
        /// The token.
        id: u32,
        /// The vocabulary's size.
        vocab_size: usize,
    },
    /// A read reaches beyond the end of a split.
    #[error("tokens {start} to {} were asked for, but the split has {total}", start.saturating_add(*len))]
    OutOfBounds {
        /// The first token asked for.
        start: u64,
        /// How many were asked for.
        len: u64,
        /// How many there are.
        total: u64,
    },
    /// A split has too few tokens for a single window.
    #[error("a sequence of {seq_len} needs {} tokens, but the split has {tokens}", seq_len.saturating_add(1))]
    TooShort {
        /// How many tokens there are.
        tokens: u64,
        /// The window's length in predicted tokens.
        seq_len: u64,
    },
    /// Documents are to be isolated that nothing tells apart.
    #[error("{}: its tokenizer, {tokenizer}, has no end-of-text token to tell documents apart by", path.display())]
    NoEndOfText {
        /// The dataset.
        path: PathBuf,
        /// Its tokenizer.
        tokenizer: String,
    },
    /// A way to pack documents is asked for that does not exist.
    #[error("unknown packing `{name}`: choose stream or isolated")]
    UnknownPacking {
        /// The name as given.
        name: String,
    },
    /// A split is asked for that does not exist.
    #[error("unknown split `{name}`: choose train or val")]
    UnknownSplit {
        /// The name as given.
        name: String,
    },
    /// A text is not what the tale generator could have written.
    #[error("not a tale of this generator: nothing it could write continues at byte {offset}")]
    NotATale {
        /// Where the sentence begins that cannot be one of the generator's.
        offset: usize,
    },
}

impl DataError {
    /// For `map_err`: an operating system's error, with what was tried and on what.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
