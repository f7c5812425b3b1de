//! What a corpus is read from: files of text or of records, one document after another.

use std::path::{Path, PathBuf};

use emberlm_tokenizer::Tokenizer;

use crate::DataError;
use crate::corpus;
use crate::text_blocks::{BLOCK_BYTES, TextBlocks};

/// What stands for standard input among paths.
pub const STANDARD_INPUT: &str = "-";

/// How a file holds its documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// UTF-8 text: the file is one document.
    Text,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 1] = [Self::Text];

    /// Whether a file holds many documents.
    pub const fn has_records(self) -> bool {
        !matches!(self, Self::Text)
    }

    /// The format's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
        }
    }
}

/// What is done about a record that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The first one ends it all.
    #[default]
    Stop,
    /// It is left out and counted.
    Skip,
}

/// How inputs are to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputOptions {
    /// How every file holds its documents; without it, each as its name says.
    pub format: Option<Format>,
    /// Where a record has its text.
    pub field: String,
    /// Whether a JSON line's piece is the line as it is.
    pub raw_records: bool,
    /// What to do about broken records.
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

/// What has been left out, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    broken: u64,
    empty: u64,
    first: Vec<String>,
}

impl LeftOut {
    /// How many records were broken.
    pub fn broken(&self) -> u64 {
        self.broken
    }

    /// How many records have an empty text.
    pub fn empty(&self) -> u64 {
        self.empty
    }

    /// What was wrong with the first broken ones.
    pub fn first(&self) -> &[String] {
        &self.first
    }

    /// Takes another input's into account.
    pub fn add(&mut self, other: &Self) {
        self.broken += other.broken;
        self.empty += other.empty;
        self.first.extend(other.first.iter().cloned());
    }
}

/// The inputs that `paths` stand for.
///
/// # Errors
/// As [`corpus::expand`].
pub fn expand(paths: &[PathBuf], options: &InputOptions) -> Result<Vec<Input>, DataError> {
    if let [path] = paths
        && path == Path::new(STANDARD_INPUT)
    {
        return Ok(vec![Input {
            path: path.clone(),
            name: PathBuf::from("standard input"),
            bytes: 0,
            format: Format::Text,
        }]);
    }
    let documents = corpus::expand(paths)?;
    let input = |document: corpus::Document| Input::detect(&document.path, &document.path, options);
    documents.into_iter().map(input).collect()
}

/// One file of the corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The file.
    pub path: PathBuf,
    /// What it is called where something is said of it.
    pub name: PathBuf,
    /// Its length on the disk, in bytes: compressed, where it is.
    pub bytes: u64,
    /// How it holds its documents.
    pub format: Format,
}

/// A document, or the next part of a long one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The text. What follows a part of a document can be tokenized apart from it.
    pub(crate) text: String,
    /// Whether a document begins with it.
    pub(crate) begins: bool,
    /// Where it stands in the file, from 1: the line of a JSONL or CSV record, the row of a Parquet file, 1 for a text.
    pub(crate) record: u64,
}

/// Gives the documents of an input in their order. Between two calls it holds no more than a piece and its buffers.
pub(crate) trait Documents: Send {
    /// The next piece, or none at the end.
    fn next_piece(&mut self) -> Result<Option<Piece>, DataError>;

    /// How many bytes of the file have been read, for a progress bar.
    fn bytes_read(&self) -> u64;

    /// The records that were no documents.
    fn left_out(&self) -> &LeftOut;
}

impl Input {
    /// The file at `path`; `name` is what it is called.
    ///
    /// # Errors
    /// Where it cannot be read or is empty.
    pub fn detect(
        path: &Path,
        name: impl Into<PathBuf>,
        _options: &InputOptions,
    ) -> Result<Self, DataError> {
        let metadata = std::fs::metadata(path).map_err(DataError::io("read", path))?;
        let name = name.into();
        if metadata.len() == 0 {
            return Err(DataError::EmptyFile { path: name });
        }
        Ok(Self {
            path: path.to_owned(),
            name,
            bytes: metadata.len(),
            format: Format::Text,
        })
    }

    /// Begins to read the input. A text is cut where `tokenizer` makes the same tokens of its parts; without one,
    /// between any two characters.
    pub(crate) fn open<'a>(
        &'a self,
        _options: &InputOptions,
        tokenizer: Option<&'a Tokenizer>,
    ) -> Result<Box<dyn Documents + 'a>, DataError> {
        match self.format {
            Format::Text => Ok(Box::new(Text {
                blocks: TextBlocks::open(&self.path, tokenizer, BLOCK_BYTES)?,
                read: 0,
                left_out: LeftOut::default(),
            })),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A text file: one document in blocks.
struct Text<'a> {
    blocks: TextBlocks<'a>,
    read: u64,
    left_out: LeftOut,
}

impl Documents for Text<'_> {
    fn next_piece(&mut self) -> Result<Option<Piece>, DataError> {
        let Some(text) = self.blocks.next_block()? else {
            return Ok(None);
        };
        let begins = self.read == 0;
        self.read += text.len() as u64;
        Ok(Some(Piece {
            text,
            begins,
            record: 1,
        }))
    }

    fn bytes_read(&self) -> u64 {
        self.read
    }

    fn left_out(&self) -> &LeftOut {
        &self.left_out
    }
}
