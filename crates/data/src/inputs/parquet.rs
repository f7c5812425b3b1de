//! Reader for one column of a Parquet file.

use std::fs::File;
use std::io::Read;

use emberlm_system::file_kind::FileKind;
use parquet::basic::{LogicalType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{AsBytes, ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::panics::caught;
use super::records::{ReadRecords, Record, utf8};
use super::source::{Source, is_compressed};
use super::{Input, InputOptions, MAX_RECORD_BYTES};
use crate::{DataError, RecordFault};

const KIND: &str = "Parquet";

/// The mark at both ends of a file.
const MARK: &[u8] = b"PAR1";

/// Reads the values of one column, one page at a time.
pub(super) struct Parquet<'a> {
    input: &'a Input,
    file: SerializedFileReader<File>,
    /// The column's index among the leaves of the schema, and its name.
    column: usize,
    field: String,
    /// True if the column has Arrow's null type, so that it has no values.
    is_null: bool,
    /// The index of the next row group.
    next_group: usize,
    group: Option<Group>,
    /// The number of rows read so far, and the total.
    row: u64,
    rows: u64,
    value: Vec<ByteArray>,
    levels: Vec<i16>,
}

/// A row group being read.
struct Group {
    values: ColumnReaderImpl<ByteArrayType>,
    /// The number of rows left, according to its metadata.
    rows_left: u64,
}

impl<'a> Parquet<'a> {
    pub(super) fn open(input: &'a Input, options: &InputOptions) -> Result<Self, DataError> {
        let (file, rows) = open(input)?;
        let schema = file.metadata().file_metadata().schema_descr();
        let name = |column: usize| schema.column(column).path().string();
        let texts = (0..schema.num_columns()).filter(|&column| {
            let leaf = schema.column(column);
            leaf.physical_type() == Type::BYTE_ARRAY && leaf.max_rep_level() == 0
        });
        let texts: Vec<usize> = texts.collect();
        let is_null = |column: &usize| {
            let leaf = schema.column(*column);
            leaf.logical_type_ref() == Some(&LogicalType::Unknown) && leaf.max_rep_level() == 0
        };
        let nulls = (0..schema.num_columns()).filter(is_null);
        let mut columns = texts.iter().copied().chain(nulls);
        let Some(column) = columns.find(|&column| name(column) == options.field) else {
            return Err(DataError::NoColumn {
                path: input.name.clone(),
                column: options.field.clone(),
                found: texts.into_iter().map(name).collect(),
            });
        };
        Ok(Self {
            input,
            is_null: is_null(&column),
            column,
            field: options.field.clone(),
            next_group: 0,
            group: None,
            row: 0,
            rows,
            value: Vec::new(),
            levels: Vec::new(),
            file,
        })
    }

    /// Opens the next row group, if there is one.
    fn open_group(&mut self) -> Result<Option<Group>, DataError> {
        let metadata = self.file.metadata();
        if self.next_group >= metadata.num_row_groups() {
            return Ok(None);
        }
        let rows = metadata.row_group(self.next_group).num_rows();
        let rows_left = u64::try_from(rows).map_err(|_| {
            self.input
                .damaged(KIND, "a row group has less than no rows")
        })?;
        let descriptor = metadata.file_metadata().schema_descr().column(self.column);
        let reader = guarded(self.input, || {
            let group = self.file.get_row_group(self.next_group)?;
            let pages = group.get_column_page_reader(self.column)?;
            Ok(get_column_reader(descriptor, pages))
        })?;
        let ColumnReader::ByteArrayColumnReader(values) = reader else {
            return Err(self.input.damaged(KIND, "a column changes its type"));
        };
        self.next_group += 1;
        Ok(Some(Group { values, rows_left }))
    }

    fn text(&self) -> Result<String, RecordFault> {
        match self.value.first() {
            Some(value) if value.len() > MAX_RECORD_BYTES => {
                let most = MAX_RECORD_BYTES >> 20;
                Err(format!("the value is longer than {most} MiB").into())
            }
            Some(value) => Ok(utf8(value.as_bytes(), "the value")?.to_owned()),
            None => Err(RecordFault::Field(format!("`{}` is null", self.field))),
        }
    }
}

impl ReadRecords for Parquet<'_> {
    fn next_record(&mut self) -> Result<Option<Record>, DataError> {
        if self.is_null {
            let number = self.row + 1;
            self.row = number.min(self.rows);
            return Ok((number <= self.rows).then(|| Record {
                number,
                text: self.text(),
            }));
        }
        let group = loop {
            match &mut self.group {
                Some(group) if group.rows_left > 0 => break group,
                _ => match self.open_group()? {
                    Some(group) => self.group = Some(group),
                    None => return Ok(None),
                },
            }
        };
        self.value.clear();
        self.levels.clear();
        // One at a time, since a row can be of any length. The reader decodes whole pages anyway.
        let (rows, ..) = guarded(self.input, || {
            group
                .values
                .read_records(1, Some(&mut self.levels), None, &mut self.value)
        })?;
        if rows == 0 {
            let reason = format!(
                "row group {} lacks {} rows",
                self.next_group, group.rows_left
            );
            return Err(self.input.damaged(KIND, reason));
        }
        group.rows_left -= 1;
        self.row += 1;
        Ok(Some(Record {
            number: self.row,
            text: self.text(),
        }))
    }

    fn bytes_read(&self) -> u64 {
        bytes_read(self.input, self.row, self.rows)
    }
}

/// The number of rows in the file, if the file's metadata agrees with its row groups.
fn count_rows(metadata: &ParquetMetaData) -> Result<u64, String> {
    let groups = metadata.row_groups().iter();
    let counts: Option<Vec<u64>> = groups
        .map(|group| u64::try_from(group.num_rows()).ok())
        .collect();
    let sum = counts.and_then(|counts| counts.into_iter().try_fold(0, u64::checked_add));
    let rows = metadata.file_metadata().num_rows();
    sum.filter(|sum| u64::try_from(rows) == Ok(*sum))
        .ok_or_else(|| format!("its {rows} rows are not its row groups' sum"))
}

/// Opens the file, and counts its rows.
pub(super) fn open(input: &Input) -> Result<(SerializedFileReader<File>, u64), DataError> {
    let file = seekable(input)?;
    let file = guarded(input, || SerializedFileReader::new(file))?;
    let rows = count_rows(file.metadata()).map_err(|reason| input.damaged(KIND, reason))?;
    Ok((file, rows))
}

/// The bytes of `input` that `row` of `rows` rows stand for. A file without rows counts as completely read.
pub(super) fn bytes_read(input: &Input, row: u64, rows: u64) -> u64 {
    let bytes = u128::from(input.bytes);
    let read = (bytes * u128::from(row)).checked_div(u128::from(rows));
    let read = read.map(|read| u64::try_from(read).unwrap_or(input.bytes));
    read.unwrap_or(input.bytes)
}

/// Opens the file for random access. If it is compressed as a whole, decompresses it to an unnamed temporary file.
fn seekable(input: &Input) -> Result<File, DataError> {
    let kind = FileKind::of_file(&input.path).map_err(DataError::io("read", &input.name))?;
    match kind {
        Some(FileKind::Parquet | FileKind::Compressed(_)) | None => {}
        Some(FileKind::Text) if is_cut_off(input) => {}
        Some(kind) => return Err(input.other_kind(kind, None)),
    }
    if !is_compressed(input)? {
        return File::open(&input.path).map_err(DataError::io("read", &input.name));
    }
    let mut source = Source::decompress(input)?;
    let mut copy = tempfile::tempfile().map_err(DataError::io("decompress", &input.name))?;
    std::io::copy(&mut source, &mut copy).map_err(|error| source.failure(error))?;
    Ok(copy)
}

/// Returns true if a file without binary numbers is the beginning of a Parquet file.
fn is_cut_off(input: &Input) -> bool {
    let mut head = Vec::new();
    let file = File::open(&input.path).map(|file| file.take(MARK.len() as u64));
    let read = file.and_then(|mut file| file.read_to_end(&mut head));
    read.is_ok() && MARK.starts_with(&head)
}

/// Returns the result of `work`. The `parquet` crate panics on some inconsistent metadata, which cannot be checked
/// beforehand. A panic is reported like any other damage.
pub(super) fn guarded<T>(
    input: &Input,
    work: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, DataError> {
    match caught(work) {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => {
            let reason = error.to_string();
            let reason = reason.strip_prefix("Parquet error: ").unwrap_or(&reason);
            Err(input.damaged(KIND, reason))
        }
        None => Err(input.damaged(KIND, "its numbers contradict each other")),
    }
}
