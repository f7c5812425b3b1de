//! Input file formats.

use std::ffi::OsStr;
use std::path::Path;

use emberlm_system::file_kind::FileKind;

use super::source::named_compression;

emberlm_system::named! {
    /// The format of an input file. Names are lower case: `text`, `jsonl` and so on.
    #[derive(Hash)]
    pub enum Format {
        /// UTF-8 text: the file is one document.
        Text = "text",
        /// JSON Lines: a document is one string field of the object on each line.
        Jsonl = "jsonl",
        /// Comma-separated records after a header line, quoted where needed (RFC 4180). A document is one column's value.
        Csv = "csv",
        /// Like [`Format::Csv`], separated by tabs.
        Tsv = "tsv",
        /// Apache Parquet. A document is one column's value in a row.
        Parquet = "parquet",
    }
}

impl Format {
    /// The format of the file at `path`: Parquet if it is a Parquet file, otherwise that of its name.
    pub(super) fn of_file(path: &Path) -> Self {
        match FileKind::of_file(path) {
            Ok(Some(FileKind::Parquet)) => Self::Parquet,
            _ => Self::of_name(path),
        }
    }

    /// The format for a file name: decided by the extension, after removing a compression extension. Defaults to
    /// text.
    pub fn of_name(path: &Path) -> Self {
        let stem = match named_compression(path) {
            Some(_) => path.file_stem().map(Path::new),
            None => Some(path),
        };
        let extension = stem
            .and_then(Path::extension)
            .map(OsStr::to_ascii_lowercase);
        match extension.as_ref().and_then(|extension| extension.to_str()) {
            // `.json` files published for training usually have one object per line. Other JSON then causes an error
            // instead of being read as prose.
            Some("jsonl" | "ndjson" | "json") => Self::Jsonl,
            Some("csv") => Self::Csv,
            Some("tsv") => Self::Tsv,
            Some("parquet") => Self::Parquet,
            _ => Self::Text,
        }
    }

    /// Returns true if a file can hold many documents.
    pub const fn has_records(self) -> bool {
        !matches!(self, Self::Text)
    }

    /// The kind of file that the format expects, for error messages.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Jsonl => "JSON Lines",
            Self::Csv => "CSV",
            Self::Tsv => "TSV",
            Self::Parquet => "Parquet",
        }
    }

    /// The unit in which records are counted.
    pub(crate) const fn record_unit(self) -> &'static str {
        match self {
            Self::Parquet => "row",
            Self::Text | Self::Jsonl | Self::Csv | Self::Tsv => "line",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_derived_from_the_file_name() {
        let of = |name: &str| Format::of_name(Path::new(name)).name();
        for (name, format) in [
            ("a.jsonl", "jsonl"),
            ("dir.csv/a.ndjson.gz", "jsonl"),
            ("c4-train.00000-of-01024.json.gz", "jsonl"),
            ("A.CSV.ZST", "csv"),
            ("a.jsonl.bz2", "jsonl"),
            ("a.tsv.xz", "tsv"),
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
    fn names_parse_and_unknown_names_are_rejected() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        }
        assert_eq!(
            "xml".parse::<Format>().unwrap_err().to_string(),
            "unknown format `xml`: choose text, jsonl, csv, tsv or parquet"
        );
    }
}
