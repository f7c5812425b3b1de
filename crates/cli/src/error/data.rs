//! Hints for datasets that cannot be created or read.

use std::io;
use std::path::Path;

use emberlm_data::{DataError, NotADataset, RecordFault, Split};
use emberlm_system::file_kind::FileKind;

use super::CliError;
use super::hints::{self, chat, tokenizer, with};
use crate::shell::shell_path;

impl From<DataError> for CliError {
    fn from(error: DataError) -> Self {
        match error {
            DataError::Contradiction { reason } => Self::usage(reason),
            DataError::Kept { source } => {
                Self::from(*source).hint("finished work is kept: continue with --resume")
            }
            error => {
                let hints = data(&error);
                with(&error, hints)
            }
        }
    }
}

/// The hint for conversations that are read as texts.
const CHAT_TEMPLATE: &str = "for conversations, pass a chat template: --chat-template chatml, or the folder of the model to fine-tune";

/// Returns a hint for an error of the data crate.
pub(super) fn data(error: &DataError) -> Option<String> {
    let hint = match error {
        DataError::Io { path, source, .. } => {
            return hints::io(source).or_else(|| invalid(path, source));
        }
        DataError::NotADataset { path, found } => return Some(not_a_dataset(path, *found)),
        DataError::Tokenize { source, .. } | DataError::Tokenizer(source) => {
            return tokenizer(source);
        }
        DataError::Chat(source) => return chat(source),
        DataError::RankFailed { .. }
        | DataError::Exchange { .. }
        | DataError::NoInputs
        | DataError::MissingInput { .. }
        | DataError::NotAFile { .. }
        | DataError::EmptyFolder { .. }
        | DataError::Value { .. }
        | DataError::OutOfBounds { .. }
        | DataError::UnknownFormat { .. }
        | DataError::UnknownSplit { .. }
        | DataError::UnknownSplitRule { .. }
        | DataError::Contradiction { .. }
        | DataError::UnknownPacking { .. }
        | DataError::NotATale { .. } => return None,
        DataError::NoMatch { .. } => {
            "`*` and `?` stand for a part of one name, `**` for any folders; hidden files are not matched"
        }
        DataError::OtherKind { path, found, .. } => return advice(*found, path),
        DataError::DamagedInput { .. } => {
            "copy the file again, or state its format: --format text|jsonl|csv|tsv|parquet"
        }
        DataError::NoColumn { found, .. } if found.is_empty() => CHAT_TEMPLATE,
        DataError::NoColumn { .. } => "name one of them: --column NAME",
        DataError::Record { fault, .. } => match fault {
            RecordFault::Conversation(reason) if reason.contains("`record` must be") => {
                "a record is one JSON object (`jq -c '.[]' FILE.json > FILE.jsonl` makes lines of an array)"
            }
            RecordFault::Json { .. } => {
                "a line is one JSON object (`jq -c '.[]' FILE.json > FILE.jsonl` makes lines of an array); --on-error skip leaves broken lines out"
            }
            RecordFault::Field(reason) if has_conversation(reason) => CHAT_TEMPLATE,
            RecordFault::Field(_) => {
                "select the text field with --field NAME, or skip broken records with --on-error skip"
            }
            RecordFault::Conversation(_) => {
                "a record has `messages`, `conversations` (ShareGPT), `prompt` and `completion`, or `instruction` and `output` (docs/guides/prepare-data.md); --on-error skip leaves broken records out"
            }
            RecordFault::Quote(_) => {
                "close the quote, or write two (\"\") for one within a quoted field; for a file without quoting, write .jsonl instead"
            }
            RecordFault::Malformed(_) => "--on-error skip leaves broken records out",
        },
        DataError::EmptyFile { .. } => "leave it out: a document needs some text",
        DataError::InvalidUtf8 { .. } => {
            "convert it first, for example: iconv -f LATIN1 -t UTF-8 OLD.txt > NEW.txt"
        }
        DataError::FileChanged { .. } => "run the command again when nothing writes to it",
        DataError::EmptySplit { characters: 0, .. }
        | DataError::NoTrainDocuments { documents: 0 } => {
            "every record is empty or was left out: name the field of the text with --field NAME"
        }
        DataError::EmptySplit {
            split: Split::Val, ..
        } => "give more text, or none for validation: --val-fraction 0",
        DataError::EmptySplit {
            split: Split::Train,
            ..
        } => "give more text, or a lower --val-fraction",
        DataError::NoTrainDocuments { .. } => "give more documents, or a lower --val-fraction",
        DataError::OutputBusy { .. } => "wait until it ends, or choose another --out",
        DataError::UnfinishedExists { .. } => {
            "repeat the command with --resume to continue it, or with --force to start over"
        }
        DataError::CannotContinue { .. } => {
            "repeat the original settings, or start over with --force"
        }
        DataError::Kept { source } => return data(source),
        DataError::RanksDiffer { .. } => {
            "start all ranks with the same command line, and give them the same files"
        }
        DataError::OutputExists { .. } => "replace it with --force, or choose another --out",
        DataError::OutputNotADataset { .. } => {
            "choose another --out, or move the folder away yourself"
        }
        DataError::Manifest { .. } | DataError::ManifestTokenizer { .. } => {
            "it was made by another version or changed since: make it again with `emberlm prepare`"
        }
        DataError::Shard { .. } | DataError::TokenOutOfRange { .. } => {
            "it is damaged: take it again from where it came from, or make the dataset again"
        }
        DataError::DamagedBlock { .. } => {
            "`emberlm data verify` lists all that is damaged; take the file again from where it came from, or make the dataset again with `emberlm prepare`"
        }
        DataError::BlockHashes { .. } | DataError::OtherBlockHashes { .. } => {
            "where `emberlm data verify` finds nothing else wrong, remove dataset.blocks.json: files are then verified as a whole"
        }
        DataError::Damaged { .. } => {
            "take the files again from where they came from, or make the dataset again"
        }
        DataError::UnclearSplit { .. } | DataError::BothSplits { .. } => {
            "select the files of each split, such as --train '*_train_*.bin' --val '*_val_*.bin'"
        }
        DataError::NothingToAdopt { .. } => {
            "name the files with --train and --val, as --train '*_train_*.bin'"
        }
        DataError::OtherVocabulary { .. } => {
            "another tokenizer made the file, or it is damaged, or no file of tokens"
        }
        DataError::OtherTokenizerFile { .. } => {
            "name that tokenizer, or create a separate folder with --out"
        }
        DataError::NotExportable { .. } => "--format npy holds any dataset",
        DataError::NoEndOfText { .. } => {
            "prepare the text with a tokenizer that has one, such as gpt2 or byte, or leave it at --documents stream"
        }
        DataError::EndOfTextWithin { .. } => {
            "leave it at --documents stream, or prepare it with a chat template that ends turns with another token"
        }
        DataError::TooShort { .. } => {
            "prepare more text, or train a model with a smaller `model.seq_len`"
        }
    };
    Some(hint.to_owned())
}

/// Returns true if a record or a table lacks a field.
pub(super) fn is_of_fields(error: &DataError) -> bool {
    match error {
        DataError::NoColumn { .. } => true,
        DataError::Record { fault, .. } => matches!(fault, RecordFault::Field(_)),
        _ => false,
    }
}

/// Returns a hint for a file at `path` that is of another kind than expected.
pub(super) fn advice(found: FileKind, path: &Path) -> Option<String> {
    found.advice(&shell_path(path))
}

/// Advice on a file whose content cannot be read.
fn invalid(path: &Path, error: &io::Error) -> Option<String> {
    match error.kind() {
        io::ErrorKind::InvalidData => advice_on(path),
        _ => None,
    }
}

/// Returns advice on the file at `path` if its first bytes show that it is of another kind, such as a Git LFS pointer.
pub(super) fn advice_on(path: &Path) -> Option<String> {
    let found = FileKind::of_file(path).ok()??;
    // These can be what was expected, but damaged.
    let is_expected = matches!(
        found,
        FileKind::Text | FileKind::Xml | FileKind::Safetensors | FileKind::Gguf | FileKind::Parquet
    );
    advice(found, path).filter(|_| !is_expected)
}

/// Returns true if the names of a record's fields, in a message, are those of a conversation.
fn has_conversation(reason: &str) -> bool {
    let names = [
        "messages",
        "conversations",
        "conversation",
        "instruction",
        "completion",
    ];
    let names = names.map(|name| format!("`{name}`"));
    reason.starts_with("no field") && names.iter().any(|name| reason.contains(name))
}

/// Returns a hint for a path that is not a dataset folder.
fn not_a_dataset(path: &Path, found: NotADataset) -> String {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let parent = shell_path(parent.unwrap_or(Path::new(".")));
    let given = shell_path(path);
    match found {
        NotADataset::Manifest => format!("give the folder: {parent}"),
        NotADataset::TokenFile => format!(
            "make a dataset of the token files in its folder: emberlm data adopt {parent} --tokenizer NAME"
        ),
        NotADataset::TextFile => {
            format!(
                "make a dataset of it first: emberlm prepare {given} --out DATASET --tokenizer gpt2"
            )
        }
        NotADataset::Missing | NotADataset::OtherFile | NotADataset::Model => {
            "make a dataset first: emberlm prepare FILE… --out DATASET --tokenizer gpt2".to_owned()
        }
        NotADataset::Folder => format!(
            "make a dataset of the texts in it: emberlm prepare {given} --out DATASET --tokenizer gpt2"
        ),
    }
}
