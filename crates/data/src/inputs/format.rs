//! The formats of files that hold documents.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::source::Compression;
use crate::DataError;

/// The format of a file that holds documents; written in lower case wherever it is named: `text`, `jsonl`, ….
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// UTF-8 text: the file is one document.
    Text,
    /// A JSON object a line: a document is one of its strings.
    Jsonl,
    /// Records of fields separated by commas, quoted where needed (RFC 4180), after a header that names them.
    Csv,
    /// As [`Format::Csv`], separated by tabs.
    Tsv,
    /// Apache Parquet: a document is a column's value.
    Parquet,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Text, Self::Jsonl, Self::Csv, Self::Tsv, Self::Parquet];

    /// The format's name, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Parquet => "parquet",
        }
    }

    /// The format that the file's name states: its extension, after that of a compression; text where it states none.
    pub fn of_name(path: &Path) -> Self {
        let stem = match Compression::of_name(path) {
            Some(_) => path.file_stem().map(Path::new),
            None => Some(path),
        };
        let extension = stem
            .and_then(Path::extension)
            .map(OsStr::to_ascii_lowercase);
        match extension.as_ref().and_then(|extension| extension.to_str()) {
            // What is published as `.json` for training is a line per object as a rule; an array of them, or a file of
            // another purpose, is then reported and not read as prose.
            Some("jsonl" | "ndjson" | "json") => Self::Jsonl,
            Some("csv") => Self::Csv,
            Some("tsv") => Self::Tsv,
            Some("parquet") => Self::Parquet,
            _ => Self::Text,
        }
    }

    /// Returns true if a file holds many documents.
    pub const fn has_records(self) -> bool {
        !matches!(self, Self::Text)
    }

    /// The unit of a record's number.
    pub(crate) const fn record_unit(self) -> &'static str {
        match self {
            Self::Parquet => "row",
            Self::Text | Self::Jsonl | Self::Csv | Self::Tsv => "line",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| DataError::UnknownFormat {
                name: name.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_name_says_its_format() {
        let of = |name: &str| Format::of_name(Path::new(name)).name();
        for (name, format) in [
            ("a.jsonl", "jsonl"),
            ("dir.csv/a.ndjson.gz", "jsonl"),
            ("c4-train.00000-of-01024.json.gz", "jsonl"),
            ("A.CSV.ZST", "csv"),
            ("größe 1.tsv", "tsv"),
            ("train-00000-of-00001.parquet", "parquet"),
            ("notes.txt.gz", "text"),
            ("a.gz", "text"),
            ("jsonl", "text"),
            (".csv", "text"),
            ("a.jsonl.bak", "text"),
        ] {
            assert_eq!(of(name), format, "{name}");
        }
    }

    #[test]
    fn names_are_read_back_and_others_refused() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        }
        assert_eq!(
            "xml".parse::<Format>().unwrap_err().to_string(),
            "unknown format `xml`: choose text, jsonl, csv, tsv or parquet"
        );
    }
}
