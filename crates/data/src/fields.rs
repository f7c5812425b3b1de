//! Reads several fields of each record of JSON Lines, CSV, TSV and Parquet files, for labelled texts and pairs of texts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::{DataError, Format, Input, InputOptions, RecordFault, expand};

/// A field to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordField {
    /// The name of the JSON field or of the column.
    pub name: String,
    /// True if records may lack it.
    pub optional: bool,
}

/// The fields of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRecord {
    /// The position of the record in its file, from 1.
    pub number: u64,
    /// The values in the order of the requested fields; `None` for an optional one that is missing or empty.
    pub values: Vec<Option<String>>,
}

/// Reads `fields` of every record of `inputs`, in order. Numbers and booleans are read as JSON writes them; the columns of CSV
/// and TSV tables are text. A field that is empty or null counts as missing. Dots in a name lead into nested fields, unless
/// a name itself contains them.
///
/// # Errors
/// An input cannot be read, is a plain text file or has no records; a record is broken or lacks a field that is not
/// optional.
pub fn read_fields(
    inputs: &[PathBuf],
    fields: &[RecordField],
) -> Result<Vec<FieldRecord>, DataError> {
    let mut records = Vec::new();
    for input in expand(inputs, &InputOptions::default())? {
        let before = records.len();
        match input.format {
            Format::Jsonl | Format::Parquet => read_objects(&input, fields, &mut records)?,
            Format::Csv | Format::Tsv => read_columns(&input, fields, &mut records)?,
            Format::Text => {
                return Err(DataError::DamagedInput {
                    path: input.name,
                    kind: "records",
                    reason: "a text has no fields; give .jsonl, .csv, .tsv or .parquet".to_owned(),
                });
            }
        }
        if records.len() == before {
            return Err(DataError::EmptyFile { path: input.name });
        }
    }
    Ok(records)
}

fn read_objects(
    input: &Input,
    fields: &[RecordField],
    records: &mut Vec<FieldRecord>,
) -> Result<(), DataError> {
    input.for_each_object(|number, object| {
        let values = fields.iter().map(|field| value(object, field));
        let values = values.collect::<Result<_, _>>()?;
        records.push(FieldRecord { number, values });
        Ok(())
    })
}

/// The value of an object's field.
fn value(object: &Map<String, Value>, field: &RecordField) -> Result<Option<String>, RecordFault> {
    let name = &field.name;
    let kind = match nested(object, name) {
        Some(Value::String(text)) if !text.is_empty() => return Ok(Some(text.clone())),
        Some(number @ (Value::Number(_) | Value::Bool(_))) => return Ok(Some(number.to_string())),
        None | Some(Value::Null | Value::String(_)) => return missing(field),
        Some(Value::Array(_)) => "an array",
        Some(Value::Object(_)) => "an object",
    };
    Err(RecordFault::Field(format!(
        "`{name}` is {kind}, not a text"
    )))
}

/// The value at a path.
fn nested<'a>(object: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    object.get(path).or_else(|| {
        let dots = path.match_indices('.');
        dots.filter_map(|(at, _)| {
            let inner = object.get(&path[..at])?.as_object()?;
            nested(inner, &path[at + 1..])
        })
        .next()
    })
}

fn missing(field: &RecordField) -> Result<Option<String>, RecordFault> {
    match field.optional {
        true => Ok(None),
        false => Err(RecordFault::Field(format!(
            "`{}` is missing or empty",
            field.name
        ))),
    }
}

/// Reads a table column by column.
fn read_columns(
    input: &Input,
    fields: &[RecordField],
    records: &mut Vec<FieldRecord>,
) -> Result<(), DataError> {
    let mut rows: BTreeMap<u64, Vec<Option<String>>> = BTreeMap::new();
    for (column, field) in fields.iter().enumerate() {
        let options = InputOptions {
            field: field.name.clone(),
            ..InputOptions::default()
        };
        let mut cells = match input.open(&options, None) {
            Err(DataError::NoColumn { .. }) if field.optional => continue,
            opened => opened?,
        };
        while let Some(cell) = cells.next_chunk()? {
            let row = rows.entry(cell.record);
            row.or_insert_with(|| vec![None; fields.len()])[column] = Some(cell.text);
        }
    }
    for (number, mut values) in rows {
        for (value, field) in values.iter_mut().zip(fields) {
            if value.is_none() {
                *value = missing(field).map_err(|fault| input.broken_record(number, fault))?;
            }
        }
        records.push(FieldRecord { number, values });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tables::check_table;

    fn fields() -> Vec<RecordField> {
        [("text", false), ("label", false), ("pair", true)]
            .map(|(name, optional)| RecordField {
                name: name.to_owned(),
                optional,
            })
            .to_vec()
    }

    fn read(name: &str, contents: &str) -> Result<Vec<Vec<Option<String>>>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, contents).unwrap();
        match read_fields(&[path], &fields()) {
            Ok(records) => Ok(records.into_iter().map(|record| record.values).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn fields_of_lines_and_tables_are_the_same() {
        let some = |text: &str| Some(text.to_owned());
        let expected = vec![
            vec![some("a, b"), some("1"), None],
            vec![some("c"), some("no"), some("d")],
        ];
        let lines = "{\"text\": \"a, b\", \"label\": 1}\n\n{\"label\": \"no\", \"text\": \"c\", \"pair\": \"d\"}\n";
        assert_eq!(read("x.jsonl", lines), Ok(expected.clone()));
        let table = "label,pair,text\n1,,\"a, b\"\nno,d,c\n";
        assert_eq!(read("x.csv", table), Ok(expected.clone()));
        let without = vec![vec![some("a"), some("b"), None]];
        assert_eq!(read("x.tsv", "text\tlabel\na\tb\n"), Ok(without));
    }

    #[test]
    fn broken_records_are_errors_with_line_and_reason() {
        check_table("records/fields", |row| {
            let (name, contents) = row.split_once(' ').unwrap();
            read(name, &serde_json::from_str::<String>(contents).unwrap()).unwrap_err()
        });
    }
}
