//! The corpus of the `prepare` benchmark.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::{
    error::Error,
    tidy::{below, read},
};

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
        fs::create_dir_all(folder).map_err(Error::write(folder))?;
        let text = match text {
            Some(path) => read(path)?,
            None => own_text(root)?,
        };
        let this = Self {
            records: folder.join("records.jsonl"),
            text: folder.join("text.txt"),
        };
        write(&this.text, documents(&text, bytes), |out, document| {
            out.write_all(document.as_bytes())
        })?;
        write(&this.records, documents(&text, bytes), |out, document| {
            writeln!(out, "{}", json!({ "text": document }))
        })?;
        Ok(this)
    }
}

fn write(
    path: &Path,
    mut documents: impl Iterator<Item = String>,
    each: impl Fn(&mut BufWriter<File>, &str) -> std::io::Result<()>,
) -> Result<(), Error> {
    let mut all = || {
        let mut out = BufWriter::new(File::create(path)?);
        documents.try_for_each(|document| each(&mut out, &document))?;
        out.flush()
    };
    all().map_err(Error::write(path))
}

/// The project's documentation and source, sorted by path.
fn own_text(root: &Path) -> Result<String, Error> {
    let mut paths = below(&root.join("docs"), &|_| true)?;
    paths.extend(below(&root.join("crates"), &|_| true)?);
    let is_text = |path: &&PathBuf| {
        let extension = path.extension().unwrap_or_default();
        ["md", "rs", "py"].iter().any(|text| extension == *text)
    };
    paths.sort();
    paths
        .iter()
        .filter(is_text)
        .map(|path| read(path))
        .collect()
}

/// Documents of 1 to 6 KB up to a total number of bytes. Each has a number, so that all differ.
fn documents(text: &str, bytes: u64) -> impl Iterator<Item = String> {
    let (mut at, mut left) = (0, bytes);
    (1_u64..).map_while(move |number| {
        if left == 0 || text.is_empty() {
            return None;
        }
        let wanted = 1000 + (number * 7919 % 5000) as usize;
        let end = text.ceil_char_boundary((at + wanted).min(text.len()));
        let document = format!("Document {number}.\n{}\n", &text[at..end]);
        at = if end == text.len() { 0 } else { end };
        left = left.saturating_sub(document.len() as u64);
        Some(document)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_different_and_as_many_as_asked_for() {
        let text = "größe ".repeat(2000);
        let documents: Vec<String> = documents(&text, 100_000).collect();
        let bytes: usize = documents.iter().map(String::len).sum();
        assert!((100_000..107_000).contains(&bytes), "{bytes}");
        let mut different = documents.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), documents.len());
    }
}
