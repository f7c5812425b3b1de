//! The corpus of the `prepare` benchmark.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::error::Error;

/// The form of the corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// JSON lines with a document per line.
    Records,
    /// A single text file.
    Text,
}

impl Form {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Records => "prepare, JSON lines",
            Self::Text => "prepare, one text",
        }
    }
}

/// The files of the corpus: the same text as records and as a single text.
pub struct Corpus {
    records: PathBuf,
    text: PathBuf,
}

impl Corpus {
    /// The path of a form.
    pub fn path(&self, form: Form) -> &Path {
        match form {
            Form::Records => &self.records,
            Form::Text => &self.text,
        }
    }

    /// Writes both forms into `folder`. Repeats the text of a file, or of the project itself, up to `bytes`
    /// bytes.
    pub fn make(
        text: Option<&Path>,
        bytes: u64,
        root: &Path,
        folder: &Path,
    ) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|source| Error::Write {
            path: folder.to_owned(),
            source,
        })?;
        let text = match text {
            Some(path) => read(path)?,
            None => own_text(root)?,
        };
        let this = Self {
            records: folder.join("records.jsonl"),
            text: folder.join("text.txt"),
        };
        let documents = Documents::new(&text, bytes);
        write(&this.text, documents.clone(), |out, document| {
            out.write_all(document.as_bytes())
        })?;
        write(&this.records, documents, |out, document| {
            writeln!(out, "{}", json!({ "text": document }))
        })?;
        Ok(this)
    }
}

fn write(
    path: &Path,
    documents: Documents,
    each: impl Fn(&mut BufWriter<File>, &str) -> std::io::Result<()>,
) -> Result<(), Error> {
    let all = || {
        let mut out = BufWriter::new(File::create(path)?);
        documents
            .into_iter()
            .try_for_each(|document| each(&mut out, &document))?;
        out.flush()
    };
    all().map_err(|source| Error::Write {
        path: path.to_owned(),
        source,
    })
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}

/// The project's documentation and source, sorted by path.
fn own_text(root: &Path) -> Result<String, Error> {
    let mut paths = Vec::new();
    let mut folders = vec![root.join("docs"), root.join("crates")];
    while let Some(folder) = folders.pop() {
        for path in crate::tidy::entries(&folder)? {
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("md" | "rs" | "py") => paths.push(path),
                None if path.is_dir() => folders.push(path),
                _ => {}
            }
        }
    }
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

/// Documents of 1 to 6 KB up to a total number of bytes. Each has a number, so that all differ.
#[derive(Clone)]
struct Documents<'a> {
    text: &'a str,
    at: usize,
    number: u64,
    left: u64,
}

impl<'a> Documents<'a> {
    fn new(text: &'a str, bytes: u64) -> Self {
        Self {
            text,
            at: 0,
            number: 0,
            left: bytes,
        }
    }
}

impl Iterator for Documents<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        if self.left == 0 || self.text.is_empty() {
            return None;
        }
        self.number += 1;
        let wanted = 1000 + (self.number * 7919 % 5000) as usize;
        let end = (self.at + wanted).min(self.text.len());
        let end = self.text.ceil_char_boundary(end);
        let document = format!("Document {}.\n{}\n", self.number, &self.text[self.at..end]);
        self.at = if end == self.text.len() { 0 } else { end };
        self.left = self.left.saturating_sub(document.len() as u64);
        Some(document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_different_and_as_many_as_asked_for() {
        let text = "größe ".repeat(2000);
        let documents: Vec<String> = Documents::new(&text, 100_000).collect();
        let bytes: usize = documents.iter().map(String::len).sum();
        assert!((100_000..107_000).contains(&bytes), "{bytes}");
        let mut different = documents.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), documents.len());
    }
}
