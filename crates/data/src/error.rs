//! The error type of this crate.

use std::io;
use std::path::{Path, PathBuf};

use emberlm_system::file_kind::{Compression, FileKind};
use emberlm_tokenizer::chat::ChatError;
use emberlm_tokenizer::{TokenizerError, TokenizerKind};

use crate::lists::{self, listed, quoted};
use crate::{NotADataset, RecordFault, Split};

/// An error of this crate. Most variants carry the path, the invalid value and the violated rule.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// An operating system error, such as a full disk or a missing permission.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation: "read", "write" and so on.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A parameter is outside its allowed range.
    #[error("`{field}` is {value}: {rule}")]
    Value {
        /// The parameter's name.
        field: &'static str,
        /// Its value.
        value: String,
        /// The rule.
        rule: &'static str,
    },
    /// No input was given.
    #[error("no input: pass at least one file or folder")]
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
    /// A folder contains no files. Hidden files and links do not count.
    #[error("{} holds no files (hidden files and links are not read)", path.display())]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
    },
    /// No file matches a pattern.
    #[error("no file matches {pattern}")]
    NoMatch {
        /// The pattern.
        pattern: String,
    },
    /// An unknown input format was requested.
    #[error("unknown format `{name}`: choose text, jsonl, csv, tsv or parquet")]
    UnknownFormat {
        /// The requested name.
        name: String,
    },
    /// An input is not of its stated kind, or it is damaged and an unknown part of it is lost.
    #[error("{} is not usable as {kind}: {reason}", path.display())]
    DamagedInput {
        /// The file.
        path: PathBuf,
        /// The expected kind.
        kind: &'static str,
        /// The reason.
        reason: String,
    },
    /// An input is of another kind than its format says.
    #[error("{} is {found}{}, not {expected}", path.display(), lists::inside(*inside))]
    OtherKind {
        /// The file.
        path: PathBuf,
        /// The expected kind.
        expected: &'static str,
        /// The kind that its first bytes show.
        found: FileKind,
        /// The compression that it is inside of.
        inside: Option<Compression>,
    },
    /// A table has no column of the requested name.
    #[error("{} has no text column `{column}`: it has {}", path.display(), quoted(found))]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The requested column.
        column: String,
        /// The available text columns.
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
    /// A text file is empty.
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
        /// The offset of the first invalid byte, from 0.
        offset: u64,
    },
    /// An input changed between the two passes over it.
    #[error("{} changed while it was being read", path.display())]
    FileChanged {
        /// The file.
        path: PathBuf,
    },
    /// A split would be empty.
    #[error("the {split} split would be empty: {}", lists::empty_split(*val_fraction, *characters))]
    EmptySplit {
        /// The split.
        split: Split,
        /// The number of characters.
        characters: u64,
        /// The requested validation fraction.
        val_fraction: f64,
    },
    /// A split by documents left no documents for training.
    #[error("the train split would be empty: {}", lists::no_train_documents(*documents))]
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
    /// The output already exists and may not be replaced.
    #[error("{} already exists", path.display())]
    OutputExists {
        /// The output.
        path: PathBuf,
    },
    /// Another process is writing the output.
    #[error("{} is being written by another process", path.display())]
    OutputBusy {
        /// The output.
        path: PathBuf,
    },
    /// An unfinished output exists, and the options neither resume nor replace it.
    #[error("{} was begun and now is not finished", path.display())]
    UnfinishedExists {
        /// The output.
        path: PathBuf,
    },
    /// The unfinished output was begun with other inputs, options or another tokenizer.
    #[error("cannot continue {}: {reason}", path.display())]
    CannotContinue {
        /// The output.
        path: PathBuf,
        /// The difference between then and now.
        reason: String,
    },
    /// An error interrupted the work. The progress so far has been kept and can be resumed.
    #[error("{source}")]
    Kept {
        /// The error that interrupted it.
        source: Box<DataError>,
    },
    /// A rank prepares another dataset than rank 0.
    #[error("rank {rank} does not prepare the same dataset as rank 0: {reason}")]
    RanksDiffer {
        /// The first such rank.
        rank: usize,
        /// The first difference.
        reason: String,
    },
    /// Another rank failed, and reports the reason.
    #[error("rank {rank} failed")]
    RankFailed {
        /// The rank.
        rank: usize,
    },
    /// Ranks cannot exchange their work.
    #[error("cannot exchange tokens with the other ranks: {reason}")]
    Exchange {
        /// The reason.
        reason: String,
    },
    /// Two settings contradict each other.
    #[error("{reason}")]
    Contradiction {
        /// The contradiction.
        reason: &'static str,
    },
    /// The output may be replaced, but it is not a dataset of this program and is left unchanged.
    #[error("{} is not an emberlm dataset and is not replaced: {reason}", path.display())]
    OutputNotADataset {
        /// The output.
        path: PathBuf,
        /// The reason that it is not a dataset.
        reason: String,
    },
    /// A path is not a dataset folder.
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
    /// The tokenizer described by a manifest is not supported.
    #[error("{}: {source}", path.display())]
    ManifestTokenizer {
        /// The manifest.
        path: PathBuf,
        /// The tokenizer's error.
        source: TokenizerError,
    },
    /// A shard is damaged, or the file is not a shard.
    #[error("{} is not a usable shard: {reason}", path.display())]
    Shard {
        /// The shard.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A block of a shard or mask has changed since the dataset was written.
    #[error("{} is damaged: bytes {start} to {last} are not what was written", path.display(), last = end.saturating_sub(1))]
    DamagedBlock {
        /// The file.
        path: PathBuf,
        /// The first byte of the block, from 0.
        start: u64,
        /// The end of the block, exclusive.
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
    /// A shard contains an id outside the vocabulary.
    #[error("{}: token {id} at position {position} is outside the vocabulary of {vocab_size}", path.display())]
    TokenOutOfRange {
        /// The shard.
        path: PathBuf,
        /// The token's position in the shard, from 0.
        position: u64,
        /// The token.
        id: u32,
        /// The vocabulary size.
        vocab_size: usize,
    },
    /// A dataset does not match its manifest.
    #[error("{} is damaged: {}", folder.display(), listed(problems, "; "))]
    Damaged {
        /// The dataset.
        folder: PathBuf,
        /// The problems found, each with its file.
        problems: Vec<String>,
    },
    /// A token file's name does not state its split.
    #[error("{}: its name contains neither train nor val", path.display())]
    UnclearSplit {
        /// The file.
        path: PathBuf,
    },
    /// A token file matches the patterns of both splits.
    #[error("{} was selected for both splits", path.display())]
    BothSplits {
        /// The file.
        path: PathBuf,
    },
    /// A folder contains no token files for a split.
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
        /// The pattern for the split's files, if one was given.
        pattern: Option<String>,
    },
    /// A token file contains ids that its stated tokenizer does not have.
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
        /// The position of the first such token in the file, from 0.
        position: u64,
        /// The id of the first such token.
        id: u32,
        /// The tokenizer's kind.
        kind: TokenizerKind,
        /// The vocabulary size of the tokenizer.
        vocab_size: usize,
    },
    /// A folder to be adopted contains a different tokenizer file than the requested tokenizer.
    #[error("{} is a different tokenizer than the named one", path.display())]
    OtherTokenizerFile {
        /// The tokenizer file in the folder.
        path: PathBuf,
    },
    /// The export format cannot represent the dataset.
    #[error("{} cannot be written as {format}: {reason}", folder.display())]
    NotExportable {
        /// The dataset.
        folder: PathBuf,
        /// The format's name.
        format: &'static str,
        /// The reason.
        reason: String,
    },
    /// A read extends beyond the end of a split.
    #[error("tokens {start} to {} were requested, but the split has {total}", start.saturating_add(*len))]
    OutOfBounds {
        /// The first requested token.
        start: u64,
        /// The number of requested tokens.
        len: u64,
        /// The number of available tokens.
        total: u64,
    },
    /// A split is too short for one window.
    #[error("a sequence of {seq_len} needs {} tokens, but the split has {tokens}", seq_len.saturating_add(1))]
    TooShort {
        /// The number of tokens.
        tokens: u64,
        /// The window length in predicted tokens.
        seq_len: u64,
    },
    /// Isolated documents were requested, but no token separates documents.
    #[error("{}: its tokenizer, {tokenizer}, has no end-of-text token to separate documents", path.display())]
    NoEndOfText {
        /// The dataset.
        path: PathBuf,
        /// Its tokenizer.
        tokenizer: String,
    },
    /// Isolated documents were requested, but end-of-text tokens that are not targets also occur within documents.
    #[error(
        "{}: documents of its {split} split cannot be distinguished: it has {stated}, but {found} end-of-text tokens that are \
         not to be learnt", path.display()
    )]
    EndOfTextWithin {
        /// The dataset.
        path: PathBuf,
        /// The split.
        split: Split,
        /// The number of end-of-text tokens that would begin a document.
        found: u64,
        /// The number of documents in the manifest.
        stated: u64,
    },
    /// An unknown packing was requested.
    #[error("unknown packing `{name}`: choose stream, isolated or best_fit")]
    UnknownPacking {
        /// The requested name.
        name: String,
    },
    /// An unknown split was requested.
    #[error("unknown split `{name}`: choose train or val")]
    UnknownSplit {
        /// The requested name.
        name: String,
    },
    /// An unknown split rule was requested.
    #[error("unknown split `{name}`: choose position, hash or file")]
    UnknownSplitRule {
        /// The requested name.
        name: String,
    },
    /// A text cannot have been written by the tale generator.
    #[error("not a tale of this generator: it cannot continue at byte {offset}")]
    NotATale {
        /// The start of the sentence that does not match the grammar.
        offset: usize,
    },
}

impl DataError {
    /// For `map_err`: wraps an operating system error with the failed operation and its path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
