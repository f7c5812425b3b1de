//! Tables of fields separated by commas or tabs.

use std::io::BufRead;

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

use super::records::{ReadRecords, Record, utf8};
use super::source::Source;
use super::{Format, Input, InputOptions, MAX_RECORD_BYTES, RecordFault};
use crate::DataError;

/// The most fields of a record.
const MAX_FIELDS: usize = 1 << 16;

/// A table's records: RFC 4180 with LF, CR LF or CR at a record's end, and blank lines left out.
pub(super) struct Csv<'a> {
    input: &'a Input,
    source: Source,
    core: Reader,
    /// The unquoted fields of the present record, one after the other, and where each ends.
    fields: Vec<u8>,
    ends: Vec<usize>,
    /// The number of fields that the header names, and the one that is read.
    columns: usize,
    column: usize,
}

/// The next record, or the reason why there is none.
enum Row {
    /// The line that it begins in, and how many fields it has.
    Fields(u64, usize),
    /// The file ends in a quoted field that began in this line or later.
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
            columns: 0,
            column: 0,
        };
        let header = match this.next_row()? {
            Row::Fields(_, count) => this.header(count)?,
            Row::Unclosed(line) => return Err(input.broken_record(line, UNCLOSED)),
            Row::End => return Err(input.damaged(input.format.name(), "it has no header line")),
        };
        this.columns = header.len();
        this.column = match header.iter().position(|name| *name == options.field) {
            Some(column) => column,
            None => {
                return Err(DataError::NoColumn {
                    path: input.name.clone(),
                    column: options.field.clone(),
                    found: header,
                });
            }
        };
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
            // The last record may lack its line break; one that a line break does not end is in a quoted field.
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
                    return Err(self.input.broken_record(line, TOO_LONG));
                }
                ReadRecordResult::End => return Ok(Row::End),
            }
        }
    }

    /// Goes to where the next record begins, which is what its line is counted by. Whether there is one.
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
        if count != self.columns {
            let plural = if count == 1 { "" } else { "s" };
            let columns = self.columns;
            let reason = format!("{count} field{plural}, but the header names {columns}");
            return Err(reason.into());
        }
        Ok(utf8(self.field(self.column), "the field")?.to_owned())
    }
}

const UNCLOSED: &str = "a quote is not closed before the file ends";
const TOO_LONG: &str = "the record has more than 64 MiB or 65,536 fields: is a quote not closed?";

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
                text: Err(UNCLOSED.into()),
            }),
        })
    }

    fn bytes_read(&self) -> u64 {
        self.source.bytes_read()
    }
}
