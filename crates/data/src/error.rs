//! Errors between text files and batches.

use std::io;
use std::path::{Path, PathBuf};

use emberlm_tokenizer::chat::ChatError;
use emberlm_tokenizer::{TokenizerError, TokenizerKind};

use crate::lists::{listed, quoted};
use crate::{NotADataset, RecordFault, Split};

/// An error of this crate; each carries the path, the value at fault and the rule it breaks.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The operating system refused something: a full disk and a missing permission end up here.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation: "read", "write", ….
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A parameter is outside what is allowed.
    #[error("`{field}` is {value}: {rule}")]
    Value {
        /// The parameter.
        field: &'static str,
        /// Its value.
        value: String,
        /// The rule.
        rule: &'static str,
    },
    /// There is nothing to prepare.
    #[error("no input: name at least one file or folder")]
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
    #[error("{} holds no files (hidden files and links are not read)", path.display())]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
    },
    /// No file is where a pattern looks.
    #[error("no file matches {pattern}")]
    NoMatch {
        /// The pattern.
        pattern: String,
    },
    /// An input's format is asked for that does not exist.
    #[error("unknown format `{name}`: choose text, jsonl, csv, tsv or parquet")]
    UnknownFormat {
        /// The name as given.
        name: String,
    },
    /// An input is not what it is said to be, or damaged so that nobody knows what is missing.
    #[error("{} is not usable as {kind}: {reason}", path.display())]
    DamagedInput {
        /// The file.
        path: PathBuf,
        /// The stated kind.
        kind: &'static str,
        /// The reason.
        reason: String,
    },
    /// A table lacks the column that is to be read.
    #[error("{} has no text column `{column}`: it has {}", path.display(), quoted(found))]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The column asked for.
        column: String,
        /// The columns that could be read.
        found: Vec<String>,
    },
    /// A record is broken.
    #[error(
        "{}: {unit} {record}{}: {fault}",
        path.display(),
        fault.column().map(|column| format!(", column {column}")).unwrap_or_default()
    )]
    Record {
        /// The file.
        path: PathBuf,
        /// The unit in which records are counted: "line" or "row".
        unit: &'static str,
        /// The number of the record's first line or row, from 1.
        record: u64,
        /// The reason.
        fault: RecordFault,
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
        /// The place of the first unreadable byte, counted from 0.
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
        /// The number of characters.
        characters: u64,
        /// The fraction asked for.
        val_fraction: f64,
    },
    /// A split by documents left nothing for training.
    #[error("the train split would be empty: each of the {documents} documents is for validation")]
    NoTrainDocuments {
        /// The number of documents.
        documents: u64,
    },
    /// A text could not be tokenized.
    #[error("{}: {source}", path.display())]
    Tokenize {
        /// The text's file.
        path: PathBuf,
        /// The tokenizer's error.
        source: TokenizerError,
    },
    /// The output exists, and it was not said that it may be replaced.
    #[error("{} already exists", path.display())]
    OutputExists {
        /// The output.
        path: PathBuf,
    },
    /// Another process writes the output.
    #[error("{} is being written by another process", path.display())]
    OutputBusy {
        /// The output.
        path: PathBuf,
    },
    /// The output was begun and broken off, and it was not said what is to be done with that.
    #[error("{} was begun and is not finished", path.display())]
    UnfinishedExists {
        /// The output.
        path: PathBuf,
    },
    /// The unfinished output was begun with other inputs, options or another tokenizer.
    #[error("cannot continue {}: {reason}", path.display())]
    CannotContinue {
        /// The output.
        path: PathBuf,
        /// The difference: before and now.
        reason: String,
    },
    /// Something ended the work, of which as much as is done has been kept.
    #[error("{source}")]
    Kept {
        /// The error that interrupted it.
        source: Box<DataError>,
    },
    /// Two settings cannot be together.
    #[error("{reason}")]
    Contradiction {
        /// Which two, and why.
        reason: &'static str,
    },
    /// The output may be replaced, but is not a dataset of this program, so it is left as it is.
    #[error("{} is not replaced, since it is not an emberlm dataset: {reason}", path.display())]
    OutputNotADataset {
        /// The output.
        path: PathBuf,
        /// The sign of it.
        reason: String,
    },
    /// A path is not a dataset's folder.
    #[error("{} {found}", path.display())]
    NotADataset {
        /// The path.
        path: PathBuf,
        /// The kind of file or folder that is there.
        found: NotADataset,
    },
    /// The manifest of a dataset cannot be used.
    #[error("{}: {reason}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A tokenizer, or the file that holds it, cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A chat template cannot be used.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// The tokenizer that a manifest describes is not one of this program's.
    #[error("{}: {source}", path.display())]
    ManifestTokenizer {
        /// The manifest.
        path: PathBuf,
        /// The tokenizer's error.
        source: TokenizerError,
    },
    /// A shard is damaged or is no shard.
    #[error("{} is not a usable shard: {reason}", path.display())]
    Shard {
        /// The shard.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A part of a shard or mask has changed since the dataset was made.
    #[error("{} is damaged: bytes {start} to {last} are not what was written", path.display(), last = end.saturating_sub(1))]
    DamagedBlock {
        /// The file.
        path: PathBuf,
        /// The first byte of the part, from 0.
        start: u64,
        /// The end of the part, exclusive.
        end: u64,
    },
    /// The block hashes of a dataset cannot be used.
    #[error("{}: {reason}", path.display())]
    BlockHashes {
        /// Their file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The block hashes of a file do not combine to its hash in the manifest.
    #[error("{}: its block hashes in dataset.blocks.json do not match its BLAKE3 in dataset.json", path.display())]
    OtherBlockHashes {
        /// The file.
        path: PathBuf,
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
    /// A dataset is not what its manifest says.
    #[error("{} is damaged: {}", folder.display(), listed(problems, "; "))]
    Damaged {
        /// The dataset.
        folder: PathBuf,
        /// The defects, each with its file.
        problems: Vec<String>,
    },
    /// A token file's name does not state its split.
    #[error("{}: its name does not say whether it is for training or for validation", path.display())]
    UnclearSplit {
        /// The file.
        path: PathBuf,
    },
    /// Both splits' patterns match a token file.
    #[error("{} is asked for in both splits", path.display())]
    BothSplits {
        /// The file.
        path: PathBuf,
    },
    /// A folder holds no token files of a split.
    #[error(
        "{} holds nothing for {}: no file is named like {}",
        folder.display(),
        match split { Split::Train => "training", Split::Val => "validation" },
        pattern.clone().unwrap_or_else(|| format!("*{split}*.bin"))
    )]
    NothingToAdopt {
        /// The folder.
        folder: PathBuf,
        /// The split.
        split: Split,
        /// The pattern that was given for its files.
        pattern: Option<String>,
    },
    /// A token file holds ids that the tokenizer it is said to be made by does not have.
    #[error(
        "{}: token {id} at position {position} is not one of the {vocab_size} ids of {kind}{}",
        path.display(),
        match count { 1 => String::new(), 2 => ", nor is 1 more".to_owned(), _ => format!(", nor are {} more", count - 1) }
    )]
    OtherVocabulary {
        /// The file.
        path: PathBuf,
        /// The number of such tokens.
        count: u64,
        /// The position of the first in the file, counted from 0.
        position: u64,
        /// The first one.
        id: u32,
        /// The tokenizer's kind.
        kind: TokenizerKind,
        /// The number of ids that it has.
        vocab_size: usize,
    },
    /// A folder that is to be adopted holds another tokenizer than the one that is named.
    #[error("{} is another tokenizer than the one that is named", path.display())]
    OtherTokenizerFile {
        /// The folder's own.
        path: PathBuf,
    },
    /// A format cannot hold what a dataset consists of.
    #[error("{} cannot be written as {format}: {reason}", folder.display())]
    NotExportable {
        /// The dataset.
        folder: PathBuf,
        /// The format's name.
        format: &'static str,
        /// The mismatch.
        reason: String,
    },
    /// A read reaches beyond the end of a split.
    #[error("tokens {start} to {} were requested, but the split has {total}", start.saturating_add(*len))]
    OutOfBounds {
        /// The first token asked for.
        start: u64,
        /// The number requested.
        len: u64,
        /// The number available.
        total: u64,
    },
    /// A split has too few tokens for a single window.
    #[error("a sequence of {seq_len} needs {} tokens, but the split has {tokens}", seq_len.saturating_add(1))]
    TooShort {
        /// The number of tokens.
        tokens: u64,
        /// The window's length in predicted tokens.
        seq_len: u64,
    },
    /// Documents are to be isolated, but nothing separates them.
    #[error("{}: its tokenizer, {tokenizer}, has no end-of-text token to separate documents", path.display())]
    NoEndOfText {
        /// The dataset.
        path: PathBuf,
        /// Its tokenizer.
        tokenizer: String,
    },
    /// Documents are to be isolated that have what begins a document within them too.
    #[error(
        "{}: documents of its {split} split cannot be distinguished: it has {stated}, but {found} end-of-text tokens that are \
         not to be learnt", path.display()
    )]
    EndOfTextWithin {
        /// The dataset.
        path: PathBuf,
        /// The split.
        split: Split,
        /// End-of-text tokens that would begin a document.
        found: u64,
        /// The number of documents in the manifest.
        stated: u64,
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
    /// A way to split is asked for that does not exist.
    #[error("unknown split `{name}`: choose position, hash or file")]
    UnknownSplitRule {
        /// The name as given.
        name: String,
    },
    /// A text is not what the tale generator could have written.
    #[error("not a tale of this generator: nothing it could write continues at byte {offset}")]
    NotATale {
        /// The beginning of the sentence that the generator cannot have written.
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
