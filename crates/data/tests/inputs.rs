//! Files of every format are read like Python's libraries read them, and unreadable files cause a clear error.

mod broken;
mod damaged;
mod kinds;
mod paths;
mod references;

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_data::{DataError, Format, Input, InputOptions, LeftOut, OnError};

pub struct Read {
    /// The record number and text of each document.
    pub documents: Vec<(u64, String)>,
    pub left_out: LeftOut,
    pub bytes: u64,
}

/// Reads a file to the end.
pub fn read(path: &Path, options: &InputOptions) -> Result<Read, DataError> {
    let input = Input::detect(path, path, options)?;
    let mut reader = input.open(options, None)?;
    let mut documents: Vec<(u64, String)> = Vec::new();
    let mut bytes = 0;
    while let Some(chunk) = reader.next_chunk()? {
        assert!(reader.bytes_read() >= bytes && reader.bytes_read() <= input.bytes);
        bytes = reader.bytes_read();
        match documents.last_mut() {
            Some((_, text)) if !chunk.begins => text.push_str(&chunk.text),
            _ => documents.push((chunk.record, chunk.text)),
        }
    }
    Ok(Read {
        documents,
        left_out: reader.left_out().clone(),
        bytes: reader.bytes_read(),
    })
}

/// A temporary folder for input files.
pub struct Workspace(tempfile::TempDir);

impl Workspace {
    pub fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }
}

/// Options that stop at the first broken record.
pub fn stop() -> InputOptions {
    InputOptions::default()
}

/// Options that skip broken records.
pub fn skip() -> InputOptions {
    InputOptions {
        on_error: OnError::Skip,
        ..stop()
    }
}

pub fn field(name: &str) -> InputOptions {
    InputOptions {
        field: name.to_owned(),
        ..stop()
    }
}

pub fn format(format: Format) -> InputOptions {
    InputOptions {
        format: Some(format),
        ..stop()
    }
}

/// The error message for a file, without its path.
pub fn error_message(path: &Path, options: &InputOptions) -> String {
    let message = read(path, options).err().unwrap().to_string();
    let name = path.display().to_string();
    assert!(message.contains(&name), "{message}");
    message.replace(&name, "FILE")
}

pub fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fixtures.join("inputs").join(name)
}
