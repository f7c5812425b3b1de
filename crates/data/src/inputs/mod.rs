//! What a corpus is read from: files of text or of records, one document after another.

use std::path::{Path, PathBuf};

use emberlm_tokenizer::Tokenizer;

use crate::DataError;
use crate::text_blocks::{BLOCK_BYTES, TextBlocks};

/// How a file holds its documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// UTF-8 text: the file is one document.
    Text,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputOptions {
    /// What to do about broken records.
    pub on_error: OnError,
}

/// One file of the corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The file.
    pub path: PathBuf,
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

    /// How many records have been left out.
    fn skipped(&self) -> u64;
}

impl Input {
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

    fn skipped(&self) -> u64 {
        0
    }
}
