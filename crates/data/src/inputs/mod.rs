//! The sources of a corpus: files of text or of records, one document after another.
//!
//! | file | what it holds |
//! |---|---|
//! | `expand` | [`expand`]: files, folders, patterns and standard input to a list of inputs |
//! | `format` | [`Format`]: how a file holds its documents, by its name |
//! | `source` | a file's bytes, decompressed and counted |
//! | `text`, `text_blocks` | a text: one document in blocks |
//! | `records` | what the formats of records share |
//! | `jsonl`, `json_field` | a JSON object a line, and one string out of it |
//! | `csv` | records of a table with a header |
//! | `parquet` | one column of a Parquet file |
//! | `panics` | another crate's panics as errors |
//! | `fault` | [`RecordFault`]: what keeps a record from being a document |
//! | `left_out` | [`LeftOut`]: the records that are no documents |
//!
//! No reader holds more than a record and its buffers, however long the file is. A damaged container (a gzip checksum
//! that is wrong, a zstd frame or a Parquet file that is broken off) is always an error, since nobody knows what is
//! missing; a broken record is one by [`OnError`].

mod csv;
mod expand;
mod fault;
mod format;
mod json_field;
mod jsonl;
mod left_out;
mod panics;
mod parquet;
mod records;
mod source;
mod text;
mod text_blocks;

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_tokenizer::Tokenizer;

use crate::DataError;

pub use expand::{STANDARD_INPUT, expand};
pub use fault::RecordFault;
pub use format::Format;
pub use left_out::LeftOut;
use records::{ReadRecords, Records};

/// The longest record. A longer one is not a document but a file without line breaks, or a quote that is never closed.
const MAX_RECORD_BYTES: usize = 64 << 20;

/// The treatment of a record that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The first one ends it all.
    #[default]
    Stop,
    /// Leave it out and count it.
    Skip,
}

/// Options of reading inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputOptions {
    /// The format of every file; without it, each has the one that its name states.
    pub format: Option<Format>,
    /// The field of a JSON object, or the column of a table, that is a record's text. Dots lead into nested ones
    /// (`meta.text`), unless the name itself has them.
    pub field: String,
    /// True if a JSON line's piece is the line as it is, and not one field's text: for records that another part makes
    /// a document of. Such lines are only checked to be UTF-8.
    pub raw_records: bool,
    /// The treatment of broken records.
    pub on_error: OnError,
}

impl Default for InputOptions {
    fn default() -> Self {
        Self {
            format: None,
            field: "text".to_owned(),
            raw_records: false,
            on_error: OnError::Stop,
        }
    }
}

/// One file of the corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The file.
    pub path: PathBuf,
    /// Its name in messages: its path, except for standard input.
    pub name: PathBuf,
    /// Its length on the disk, in bytes: compressed, where it is.
    pub bytes: u64,
    /// Its format.
    pub format: Format,
}

/// A document, or the next part of a long one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The text. What follows a part of a document can be tokenized apart from it, unless `cut_inexactly`.
    pub text: String,
    /// True if the text was cut after it although that may change tokens: there was no exact place for
    /// [`Tokenizer::longest_part`] bytes.
    pub cut_inexactly: bool,
    /// True if a document begins with it.
    pub begins: bool,
    /// The position in the file, from 1: the line that a JSON or CSV record begins in, the row of a Parquet file; 1
    /// for a text.
    pub record: u64,
}

/// Gives the documents of an input in their order. Between two calls it holds no more than a piece and its buffers.
pub trait Documents: Send {
    /// The next piece, or none at the end.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is damaged; if a record is broken and the first one is to end it all. After
    /// an error it returns nothing more.
    fn next_piece(&mut self) -> Result<Option<Piece>, DataError>;

    /// The number of bytes of the file that were read, for a progress bar: [`Input::bytes`] at the end.
    fn bytes_read(&self) -> u64;

    /// The records that were no documents.
    fn left_out(&self) -> &LeftOut;

    /// The number of broken records that were left out.
    fn skipped(&self) -> u64 {
        self.left_out().broken()
    }
}

impl Input {
    /// The file at `path`, whose format is the options' or what its name says; `name` is what it is called.
    ///
    /// # Errors
    /// Fails if the file does not exist, is not a regular file, or is empty.
    pub fn detect(
        path: &Path,
        name: impl Into<PathBuf>,
        options: &InputOptions,
    ) -> Result<Self, DataError> {
        let name = name.into();
        let metadata = fs::metadata(path).map_err(expand::unreadable(&name))?;
        if !metadata.is_file() {
            return Err(DataError::NotAFile { path: name });
        }
        if metadata.len() == 0 {
            return Err(DataError::EmptyFile { path: name });
        }
        Ok(Self {
            format: options.format.unwrap_or_else(|| Format::of_name(path)),
            path: path.to_owned(),
            name,
            bytes: metadata.len(),
        })
    }

    /// Begins to read the input. A text is cut where `tokenizer` makes the same tokens of its parts; without one,
    /// between any two characters. A record is one piece.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not of its format, or has no such column.
    pub fn open<'a>(
        &'a self,
        options: &InputOptions,
        tokenizer: Option<&'a Tokenizer>,
    ) -> Result<Box<dyn Documents + 'a>, DataError> {
        fn records<'a>(
            input: &'a Input,
            options: &InputOptions,
            reader: impl ReadRecords + 'a,
        ) -> Box<dyn Documents + 'a> {
            Box::new(Records::new(input, options, reader))
        }
        Ok(match self.format {
            Format::Text => Box::new(text::Text::open(self, tokenizer)?),
            Format::Jsonl => records(self, options, jsonl::Jsonl::open(self, options)?),
            Format::Csv | Format::Tsv => records(self, options, csv::Csv::open(self, options)?),
            Format::Parquet => records(self, options, parquet::Parquet::open(self, options)?),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The error of a broken record, which begins at `record`.
    pub fn broken_record(&self, record: u64, fault: impl Into<RecordFault>) -> DataError {
        DataError::Record {
            path: self.name.clone(),
            unit: self.format.record_unit(),
            record,
            fault: fault.into(),
        }
    }

    /// The error that the file is not usable as what it is said to be.
    fn damaged(&self, kind: &'static str, reason: impl ToString) -> DataError {
        DataError::DamagedInput {
            path: self.name.clone(),
            kind,
            reason: reason.to_string(),
        }
    }
}
