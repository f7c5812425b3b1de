//! Readers for the files of a corpus: text or records, one document after another.
//!
//! | file | contents |
//! |---|---|
//! | `expand` | [`expand`]: turns files, folders, patterns and standard input into a list of inputs |
//! | `format` | [`Format`]: the format of a file, from its name |
//! | `source` | decompresses a file, checks that it is of the expected kind, and counts the bytes read |
//! | `utf16` | converts UTF-16 to UTF-8 |
//! | `text`, `text_blocks` | a text file: one document in blocks |
//! | `records` | the code shared by all record formats |
//! | `jsonl`, `json_field` | JSON Lines, and extraction of one string from an object |
//! | `csv` | CSV and TSV tables with a header |
//! | `parquet`, `parquet_rows` | one column of a Parquet file, and its rows as objects |
//! | `panics` | turns panics of a dependency into errors |
//! | `left_out` | [`LeftOut`]: counts of skipped records |
//!
//! A reader holds at most one record and its buffers, regardless of the file's length. A damaged container (a wrong
//! gzip checksum, a truncated zstd frame or Parquet file) is always an error, since an unknown part of the data is
//! missing. Broken records are handled according to [`OnError`].

mod csv;
#[cfg(feature = "file-formats")]
mod decoders;
mod expand;
mod format;
mod json_field;
mod jsonl;
mod left_out;
#[cfg(feature = "file-formats")]
mod panics;
#[cfg(feature = "file-formats")]
mod parquet;
#[cfg(feature = "file-formats")]
mod parquet_rows;
mod records;
mod source;
mod text;
mod text_blocks;
mod utf16;
#[cfg(not(feature = "file-formats"))]
mod without_formats;

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_system::file_kind::{Compression, FileKind};
use emberlm_tokenizer::Tokenizer;
use serde_json::{Map, Value};

use crate::{DataError, RecordFault};

#[cfg(feature = "file-formats")]
use decoders::decompressed;
pub use expand::{STANDARD_INPUT, expand};
pub use format::Format;
pub use left_out::LeftOut;
use records::{ReadRecords, Records};
#[cfg(not(feature = "file-formats"))]
use without_formats::{NOT_BUILT, decompressed};

/// The maximum length of a record. A longer one usually means a file without line breaks, or an unclosed quote.
const MAX_RECORD_BYTES: usize = 64 << 20;

/// The handling of records that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Stop with an error at the first one.
    #[default]
    Stop,
    /// Skip and count them.
    Skip,
}

/// Options for reading inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputOptions {
    /// The format of all files. `None` derives each file's format from its name.
    pub format: Option<Format>,
    /// The field of a JSON object, or the column of a table, that holds the text. Dots lead into nested fields
    /// (`meta.text`), unless a name itself contains them.
    pub field: String,
    /// Passes each record on as a JSON object instead of extracting a field: a JSON line unchanged, which is only checked to
    /// be UTF-8; a row of a table with its columns as fields.
    pub raw_records: bool,
    /// The handling of broken records.
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
    /// The name shown in messages: the path, except for standard input.
    pub name: PathBuf,
    /// The size of the file on disk in bytes, compressed if it is.
    pub bytes: u64,
    /// Its format.
    pub format: Format,
}

/// A document, or the next part of a long one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentChunk {
    /// The text. Unless `cut_inexactly` is set, it can be tokenized separately from the text that follows it.
    pub text: String,
    /// True if the cut after this chunk may change tokens, because there was no exact place to cut within
    /// [`Tokenizer::longest_part`] bytes.
    pub cut_inexactly: bool,
    /// True if a document begins with this chunk.
    pub begins: bool,
    /// The position of the record in the file, from 1: the line on which a JSON or CSV record begins, or the row of a
    /// Parquet file. It is 1 for a text.
    pub record: u64,
}

/// Reads the documents of an input in order. Between calls it holds at most one chunk and its buffers.
pub trait Documents: Send {
    /// Returns the next chunk, or `None` at the end.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is damaged, or at the first broken record if [`OnError::Stop`] is set. The
    /// reader must not be used after an error.
    fn next_chunk(&mut self) -> Result<Option<DocumentChunk>, DataError>;

    /// The number of bytes read from the file, for a progress bar. [`Input::bytes`] at the end.
    fn bytes_read(&self) -> u64;

    /// The records that were skipped.
    fn left_out(&self) -> &LeftOut;

    /// The number of broken records that were skipped.
    fn skipped(&self) -> u64 {
        self.left_out().broken()
    }
}

impl Input {
    /// The file at `path`, called `name` in messages. Its format is set by the options or derived from its content and
    /// `path`.
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
            format: options.format.unwrap_or_else(|| Format::of_file(path)),
            path: path.to_owned(),
            name,
            bytes: metadata.len(),
        })
    }

    /// Opens the input for reading. A text is cut where `tokenizer` produces the same tokens for the parts, or
    /// between any two characters without one. A record is always a single chunk.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not of its format, or has no column of the requested name.
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
            #[cfg(feature = "file-formats")]
            Format::Parquet if options.raw_records => {
                records(self, options, parquet_rows::ParquetRows::open(self)?)
            }
            #[cfg(feature = "file-formats")]
            Format::Parquet => records(self, options, parquet::Parquet::open(self, options)?),
            #[cfg(not(feature = "file-formats"))]
            Format::Parquet => return Err(self.damaged("Parquet", NOT_BUILT)),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the records of a file in order as objects, with their positions from 1.
    ///
    /// # Errors
    /// The file cannot be read, or a record is not an object or is rejected by `visit`.
    pub(crate) fn for_each_object(
        &self,
        mut visit: impl FnMut(u64, &Map<String, Value>) -> Result<(), RecordFault>,
    ) -> Result<(), DataError> {
        let options = InputOptions {
            raw_records: true,
            ..InputOptions::default()
        };
        let mut lines = self.open(&options, None)?;
        while let Some(line) = lines.next_chunk()? {
            let object = serde_json::from_str(&line.text).map_err(|e| RecordFault::json(&e));
            let visited = object.and_then(|object| visit(line.record, &object));
            visited.map_err(|fault| self.broken_record(line.record, fault))?;
        }
        Ok(())
    }

    /// The error for a broken record that begins at position `record`.
    pub fn broken_record(&self, record: u64, fault: impl Into<RecordFault>) -> DataError {
        DataError::Record {
            path: self.name.clone(),
            unit: self.format.record_unit(),
            record,
            fault: fault.into(),
        }
    }

    /// The error for a file of another kind than the format's.
    fn other_kind(&self, found: FileKind, inside: Option<Compression>) -> DataError {
        DataError::OtherKind {
            path: self.name.clone(),
            expected: self.format.kind(),
            found,
            inside,
        }
    }

    /// The error for a file that is not usable as `kind`.
    fn damaged(&self, kind: &'static str, reason: impl ToString) -> DataError {
        DataError::DamagedInput {
            path: self.name.clone(),
            kind,
            reason: reason.to_string(),
        }
    }
}

/// Reads the records of `inputs` in order with `record`, which gets them as objects with their positions from 1. `kind`
/// names the records in errors.
///
/// # Errors
/// An input cannot be read, is a plain text or has no records, or `record` rejects an object with the violated rule.
pub fn read_objects<T>(
    inputs: &[PathBuf],
    kind: &'static str,
    record: impl Fn(&Map<String, Value>, u64) -> Result<T, String>,
) -> Result<Vec<T>, DataError> {
    let mut records = Vec::new();
    for input in expand(inputs, &InputOptions::default())? {
        let before = records.len();
        if !input.format.has_records() {
            return Err(DataError::DamagedInput {
                path: input.name,
                kind,
                reason: "a text has no fields; give .jsonl, .csv, .tsv or .parquet".to_owned(),
            });
        }
        input.for_each_object(|number, object| {
            records.push(record(object, number).map_err(RecordFault::Field)?);
            Ok(())
        })?;
        if records.len() == before {
            return Err(DataError::EmptyFile { path: input.name });
        }
    }
    Ok(records)
}
