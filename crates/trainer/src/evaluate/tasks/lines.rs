//! Reads JSON Lines files.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use emberlm_system::file_kind::FileKind;
use serde_json::{Map, Value};

use super::TaskError;

/// The fields of a line.
pub type Fields = Map<String, Value>;

/// Reads the first `limit` items of a file, or all. `item` parses a line's fields, given its number. Blank
/// lines are ignored.
pub fn read<T>(
    path: &Path,
    limit: Option<usize>,
    item: impl Fn(&Fields, usize) -> Result<T, String>,
) -> Result<Vec<T>, TaskError> {
    let failed = |source| TaskError::Read {
        path: path.to_owned(),
        source,
    };
    if let Ok(Some(kind)) = FileKind::of_file(path)
        && kind != FileKind::Text
    {
        let reason = format!("it is {kind}, not JSON Lines");
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, reason)));
    }
    let file = File::open(path).map_err(failed)?;
    let mut items = Vec::new();
    // Split bytes, not text, so that a line that is not UTF-8 is reported with its number.
    for (at, bytes) in BufReader::new(file).split(b'\n').enumerate() {
        if limit.is_some_and(|limit| items.len() >= limit) {
            break;
        }
        let bytes = bytes.map_err(failed)?;
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        let line = at + 1;
        let made = fields(&bytes).and_then(|fields| item(&fields, line));
        items.push(made.map_err(TaskError::line(path, line))?);
    }
    match items.is_empty() {
        true => Err(TaskError::Empty {
            path: path.to_owned(),
        }),
        false => Ok(items),
    }
}

fn fields(line: &[u8]) -> Result<Fields, String> {
    match serde_json::from_slice(line) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("it is not a JSON object".to_owned()),
        Err(error) => {
            let text = error.to_string();
            // serde_json reports a line number too, but always line 1 here.
            let reason = text.split(" at line ").next().unwrap_or(&text);
            let column = error.column();
            Err(format!("it is not JSON: {reason} at column {column}"))
        }
    }
}

/// A required string field.
pub fn text<'a>(fields: &'a Fields, name: &str) -> Result<&'a str, String> {
    let value = fields.get(name).ok_or_else(|| missing(name))?;
    value
        .as_str()
        .ok_or_else(|| format!("`{name}` is {value}: must be a string"))
}

/// A required field with a list of strings.
pub fn texts<'a>(fields: &'a Fields, name: &str) -> Result<Vec<&'a str>, String> {
    let value = fields.get(name).ok_or_else(|| missing(name))?;
    let all = value
        .as_array()
        .and_then(|list| list.iter().map(Value::as_str).collect());
    all.ok_or_else(|| format!("`{name}` must be a list of strings"))
}

fn missing(name: &str) -> String {
    format!("it has no `{name}`")
}
