//! Reader for CSV and TSV tables.

use std::io::BufRead;

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use serde_json::{Map, Value};

use super::records::{ReadRecords, Record, utf8};
use super::source::Source;
use super::{Format, Input, InputOptions, MAX_RECORD_BYTES};
use crate::{DataError, RecordFault};

/// The maximum number of fields in a record.
const MAX_FIELDS: usize = 1 << 16;

/// Reads the records of a table as in RFC 4180. A record may end in LF, CR LF or CR. Blank lines are skipped.
pub(super) struct Csv<'a> {
    input: &'a Input,
    source: Source,
    core: Reader,
    /// The unquoted, concatenated fields of the current record, and the end offset of each.
    fields: Vec<u8>,
    ends: Vec<usize>,
    /// The names of the columns.
    columns: Vec<String>,
    /// The index of the column to read. `None` reads all as an object.
    column: Option<usize>,
}

/// The outcome of reading the next record.
enum Row {
    /// The line on which the record begins, and its number of fields.
    Fields(u64, usize),
    /// The file ends within a quoted field. The record began on this line.
    Unclosed(u64),
    End,
}

impl<'a> Csv<'a> {
    pub(super) fn open(input: &'a Input, options: &InputOptions) -> Result<Self, DataError> {
        let delimiter = match input.format {
            Format::Tsv => b'\t',
            _ => b',',
        };
        let mut this = Self {
            input,
            source: Source::open_records(input)?,
            core: ReaderBuilder::new().delimiter(delimiter).build(),
            fields: vec![0; 16 << 10],
            ends: vec![0; 64],
            columns: Vec::new(),
            column: None,
        };
        let header = match this.next_row()? {
            Row::Fields(_, count) => this.header(count)?,
            Row::Unclosed(line) => return Err(input.broken_record(line, unclosed())),
            Row::End => return Err(input.damaged(input.format.name(), "it has no header line")),
        };
        let column = header.iter().position(|name| *name == options.field);
        if column.is_none() && !options.raw_records {
            return Err(DataError::NoColumn {
                path: input.name.clone(),
                column: options.field.clone(),
                found: header,
            });
        }
        this.columns = header;
        this.column = column.filter(|_| !options.raw_records);
        Ok(this)
    }

    fn header(&self, count: usize) -> Result<Vec<String>, DataError> {
        let name = |column| utf8(self.field(column), "a column's name").map(str::to_owned);
        let names: Result<Vec<String>, String> = (0..count).map(name).collect();
        names.map_err(|reason| self.input.damaged(self.input.format.name(), reason))
    }

    fn field(&self, column: usize) -> &[u8] {
        let start = match column {
            0 => 0,
            column => self.ends[column - 1],
        };
        &self.fields[start..self.ends[column]]
    }

    /// Reads the next record into `fields` and `ends`.
    fn next_row(&mut self) -> Result<Row, DataError> {
        if !self.skip_line_breaks()? {
            return Ok(Row::End);
        }
        let line = self.core.line();
        let (mut bytes, mut count) = (0, 0);
        loop {
            let buffer = self.source.fill_buf();
            let buffer = match buffer {
                Ok(buffer) => buffer,
                Err(error) => return Err(self.source.failure(error)),
            };
            // Act as if the file ended in a line break, since the last one may be missing. If that does not end the
            // record, a quote is still open.
            let at_end = buffer.is_empty();
            let buffer = if at_end { b"\n" } else { buffer };
            let (fields, ends) = (&mut self.fields[bytes..], &mut self.ends[count..]);
            let (result, read, written, ended) = self.core.read_record(buffer, fields, ends);
            bytes += written;
            count += ended;
            if !at_end {
                self.source.consume(read);
            }
            match result {
                ReadRecordResult::Record => return Ok(Row::Fields(line, count)),
                ReadRecordResult::InputEmpty if at_end => return Ok(Row::Unclosed(line)),
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if self.fields.len() < MAX_RECORD_BYTES => {
                    self.fields.resize(self.fields.len() * 2, 0);
                }
                ReadRecordResult::OutputEndsFull if self.ends.len() < MAX_FIELDS => {
                    self.ends.resize(self.ends.len() * 2, 0);
                }
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    // The start of the next record is unknown: skipping this one would skip others.
                    return Err(self.input.broken_record(line, too_long()));
                }
                ReadRecordResult::End => return Ok(Row::End),
            }
        }
    }

    /// Skips to the beginning of the next record, so that its line number is exact. Returns false at the end of the
    /// file.
    fn skip_line_breaks(&mut self) -> Result<bool, DataError> {
        loop {
            let buffer = match self.source.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) => return Err(self.source.failure(error)),
            };
            let breaks = buffer
                .iter()
                .take_while(|byte| matches!(byte, b'\n' | b'\r'));
            let (count, lines) = breaks.fold((0, 0), |(count, lines), byte| {
                (count + 1, lines + u64::from(*byte == b'\n'))
            });
            let (found, at_end) = (count < buffer.len(), buffer.is_empty());
            self.source.consume(count);
            self.core.set_line(self.core.line() + lines);
            if found || at_end {
                return Ok(found);
            }
        }
    }

    fn text(&self, count: usize) -> Result<String, RecordFault> {
        if count != self.columns.len() {
            let plural = if count == 1 { "" } else { "s" };
            let columns = self.columns.len();
            let reason = format!("{count} field{plural}, but the header names {columns}");
            return Err(reason.into());
        }
        match self.column {
            Some(column) => Ok(utf8(self.field(column), "the field")?.to_owned()),
            None => self.object(),
        }
    }

    /// The record as a JSON object. A table has no null: an empty field is a missing one.
    fn object(&self) -> Result<String, RecordFault> {
        let mut object = Map::new();
        for (column, name) in self.columns.iter().enumerate() {
            let value = utf8(self.field(column), "a field")?;
            if !value.is_empty() {
                object.insert(name.clone(), value.into());
            }
        }
        Ok(Value::from(object).to_string())
    }
}

/// The fault of a record whose quoted field has no end.
fn unclosed() -> RecordFault {
    let reason =
        "a quote is not closed before the file ends: all lines from here on would be one record";
    RecordFault::Quote(reason.to_owned())
}

fn too_long() -> RecordFault {
    let reason = "the record has more than 64 MiB or 65,536 fields: is a quote not closed?";
    RecordFault::Quote(reason.to_owned())
}

impl ReadRecords for Csv<'_> {
    fn next_record(&mut self) -> Result<Option<Record>, DataError> {
        Ok(match self.next_row()? {
            Row::End => None,
            Row::Fields(number, count) => Some(Record {
                number,
                text: self.text(count),
            }),
            Row::Unclosed(number) => Some(Record {
                number,
                text: Err(unclosed()),
            }),
        })
    }

    fn bytes_read(&self) -> u64 {
        self.source.bytes_read()
    }
}
