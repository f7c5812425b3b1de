//! Reader for the rows of a Parquet file as JSON objects.

use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use serde_json::{Map, Number, Value};

use super::parquet::{bytes_read, guarded, open};
use super::records::{ReadRecords, Record};
use super::{Input, MAX_RECORD_BYTES};
use crate::{DataError, RecordFault};

/// Reads rows with all their columns. A null is a missing field, at every level.
pub(super) struct ParquetRows<'a> {
    input: &'a Input,
    iter: RowIter<'static>,
    /// The number of rows read so far, and the total.
    row: u64,
    rows: u64,
}

impl<'a> ParquetRows<'a> {
    pub(super) fn open(input: &'a Input) -> Result<Self, DataError> {
        let (file, rows) = open(input)?;
        let iter = guarded(input, || Ok(RowIter::from_file_into(Box::new(file))))?;
        Ok(Self {
            input,
            iter,
            row: 0,
            rows,
        })
    }
}

impl ReadRecords for ParquetRows<'_> {
    fn next_record(&mut self) -> Result<Option<Record>, DataError> {
        let Some(row) = guarded(self.input, || self.iter.next().transpose())? else {
            return match self.row == self.rows {
                true => Ok(None),
                false => {
                    let reason = format!("it has {} of {} rows", self.row, self.rows);
                    Err(self.input.damaged("Parquet", reason))
                }
            };
        };
        self.row += 1;
        Ok(Some(Record {
            number: self.row,
            text: text(&row),
        }))
    }

    fn bytes_read(&self) -> u64 {
        bytes_read(self.input, self.row, self.rows)
    }
}

fn text(row: &Row) -> Result<String, RecordFault> {
    let text = Value::from(object(row)).to_string();
    match text.len() <= MAX_RECORD_BYTES {
        true => Ok(text),
        false => {
            let most = MAX_RECORD_BYTES >> 20;
            Err(format!("the row is longer than {most} MiB").into())
        }
    }
}

fn object(row: &Row) -> Map<String, Value> {
    let columns = row.get_column_iter();
    let columns = columns.map(|(name, field)| (name.clone(), value(field)));
    columns.filter(|(_, value)| !value.is_null()).collect()
}

/// The value of a field. Values that JSON does not have, such as bytes that are not UTF-8, are null.
fn value(field: &Field) -> Value {
    let float = |number: f64| Number::from_f64(number).map_or(Value::Null, Value::Number);
    match field {
        Field::Null => Value::Null,
        Field::Bool(value) => (*value).into(),
        Field::Byte(number) => (*number).into(),
        Field::Short(number) => (*number).into(),
        Field::Int(number) | Field::Date(number) | Field::TimeMillis(number) => (*number).into(),
        Field::Long(number)
        | Field::TimeMicros(number)
        | Field::TimestampMillis(number)
        | Field::TimestampMicros(number) => (*number).into(),
        Field::UByte(number) => (*number).into(),
        Field::UShort(number) => (*number).into(),
        Field::UInt(number) => (*number).into(),
        Field::ULong(number) => (*number).into(),
        Field::Float16(number) => float(number.to_f64()),
        Field::Float(number) => float((*number).into()),
        Field::Double(number) => float(*number),
        Field::Decimal(_) => field.to_string().into(),
        Field::Str(text) => text.as_str().into(),
        Field::Bytes(bytes) => str::from_utf8(bytes.data()).map_or(Value::Null, Value::from),
        Field::Group(row) => object(row).into(),
        Field::ListInternal(list) => list.elements().iter().map(value).collect(),
        Field::MapInternal(map) => {
            let entries = map.entries().iter().map(|(key, entry)| {
                let name = match key {
                    Field::Str(name) => name.clone(),
                    key => key.to_string(),
                };
                (name, value(entry))
            });
            let entries: Map<_, _> = entries.filter(|(_, value)| !value.is_null()).collect();
            entries.into()
        }
    }
}
