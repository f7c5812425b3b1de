//! Reader for JSON Lines: one object per line.

use std::io::{BufRead, Read};

use super::records::{ReadRecords, Record, utf8};
use super::source::Source;
use super::{Input, InputOptions, MAX_RECORD_BYTES, json_field};
use crate::{DataError, RecordFault};

/// Reads the lines of a file, which end in LF or CR LF. Blank lines are skipped.
pub(super) struct Jsonl {
    source: Source,
    /// The field that holds the text. `None` passes the whole line on.
    field: Option<String>,
    line: Vec<u8>,
    /// The number of the current line, from 1.
    number: u64,
}

impl Jsonl {
    pub(super) fn open(input: &Input, options: &InputOptions) -> Result<Self, DataError> {
        Ok(Self {
            source: Source::open_records(input)?,
            field: (!options.raw_records).then(|| options.field.clone()),
            line: Vec::new(),
            number: 0,
        })
    }

    /// Reads the next line without its line break. A line that is too long is truncated. Returns false at the end of
    /// the file.
    fn next_line(&mut self) -> Result<bool, DataError> {
        self.line.clear();
        self.number += 1;
        // With room for the line break, so a read of this length means that the line is too long.
        let most = MAX_RECORD_BYTES as u64 + 2;
        let read = (&mut self.source)
            .take(most)
            .read_until(b'\n', &mut self.line)
            .map_err(|error| self.source.failure(error))?;
        if self.line.pop_if(|last| *last == b'\n').is_some() {
            self.line.pop_if(|last| *last == b'\r');
        } else if read as u64 == most {
            let rest = self.source.skip_until(b'\n');
            rest.map_err(|error| self.source.failure(error))?;
        }
        Ok(read > 0)
    }

    fn text(&self) -> Result<String, RecordFault> {
        if self.line.len() > MAX_RECORD_BYTES {
            let most = MAX_RECORD_BYTES >> 20;
            return Err(format!("the line is longer than {most} MiB").into());
        }
        let line = utf8(&self.line, "the line")?;
        match &self.field {
            None => Ok(line.to_owned()),
            Some(field) => json_field::text(line, field),
        }
    }
}

impl ReadRecords for Jsonl {
    fn next_record(&mut self) -> Result<Option<Record>, DataError> {
        while self.next_line()? {
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some(Record {
                    number: self.number,
                    text: self.text(),
                }));
            }
        }
        Ok(None)
    }

    fn bytes_read(&self) -> u64 {
        self.source.bytes_read()
    }
}
