//! The code shared by all record formats: skips records that are not documents.

use super::{DocumentChunk, Documents, Input, InputOptions, LeftOut, OnError};
use crate::{DataError, RecordFault};

/// A record, which is a document if it has a text.
pub(super) struct Record {
    /// The position in the file, see [`DocumentChunk::record`].
    pub(super) number: u64,
    /// The text, or the reason that there is none.
    pub(super) text: Result<String, RecordFault>,
}

/// Reads the records of a file in order.
pub(super) trait ReadRecords: Send {
    /// Returns the next record, or `None` at the end. An error concerns the file, not a single record.
    fn next_record(&mut self) -> Result<Option<Record>, DataError>;

    /// See [`Documents::bytes_read`].
    fn bytes_read(&self) -> u64;
}

/// The records with a text, each as one document.
pub(super) struct Records<'a, R> {
    input: &'a Input,
    reader: R,
    on_error: OnError,
    left_out: LeftOut,
}

impl<'a, R: ReadRecords> Records<'a, R> {
    pub(super) fn new(input: &'a Input, options: &InputOptions, reader: R) -> Self {
        Self {
            input,
            reader,
            on_error: options.on_error,
            left_out: LeftOut::default(),
        }
    }
}

impl<R: ReadRecords> Documents for Records<'_, R> {
    fn next_chunk(&mut self) -> Result<Option<DocumentChunk>, DataError> {
        while let Some(Record { number, text }) = self.reader.next_record()? {
            match text {
                Ok(text) if text.is_empty() => self.left_out.empty_record(),
                Ok(text) => {
                    return Ok(Some(DocumentChunk {
                        text,
                        cut_inexactly: false,
                        begins: true,
                        record: number,
                    }));
                }
                Err(fault) => {
                    let error = self.input.broken_record(number, fault);
                    self.left_out.broken_record(error, self.on_error)?;
                }
            }
        }
        Ok(None)
    }

    fn bytes_read(&self) -> u64 {
        self.reader.bytes_read()
    }

    fn left_out(&self) -> &LeftOut {
        &self.left_out
    }
}

/// Returns `bytes` as text, or an error message that calls them `of`, such as "the line".
pub(super) fn utf8<'b>(bytes: &'b [u8], of: &str) -> Result<&'b str, String> {
    str::from_utf8(bytes).map_err(|error| {
        let byte = error.valid_up_to() + 1;
        format!("not UTF-8: byte {byte} of {of} is invalid")
    })
}
