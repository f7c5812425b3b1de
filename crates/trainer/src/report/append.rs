//! An append-only file of records. Records that cannot be written, for example because the disk is full, are
//! buffered and retried with the next one. Partial writes are rolled back.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::TrainError;

/// An append-only file of records.
#[derive(Debug)]
pub(crate) struct AppendFile {
    path: PathBuf,
    file: File,
    /// The length in bytes of the complete records in the file.
    complete: u64,
    /// Records that are not in the file yet.
    buffered: Vec<u8>,
}

impl AppendFile {
    /// Creates an empty file in place of any existing one. A FIFO or device at the path is removed, not written
    /// to.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(crate) fn create(path: &Path) -> Result<Self, TrainError> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(TrainError::file("replace", path)(error));
            }
            _ => {}
        }
        File::create_new(path).map_err(TrainError::file("create", path))?;
        Self::open(path)
    }

    /// Opens an existing file for appending.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn open(path: &Path) -> Result<Self, TrainError> {
        // Append mode continues at the current end, even after a partial write was rolled back.
        let opened = File::options().append(true).open(path);
        let file = opened.map_err(TrainError::file("open", path))?;
        let metadata = file.metadata().map_err(TrainError::file("read", path))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            complete: metadata.len(),
            buffered: Vec::new(),
        })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// The file cannot be written. The record stays buffered.
    pub(crate) fn append(&mut self, record: &[u8]) -> Result<(), TrainError> {
        self.buffered.extend_from_slice(record);
        self.flush()
    }

    /// Writes the buffered records.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn flush(&mut self) -> Result<(), TrainError> {
        let written = self.file.write_all(&self.buffered);
        self.settle(written)
    }

    fn settle(&mut self, written: io::Result<()>) -> Result<(), TrainError> {
        if let Err(error) = written {
            // Report the write error; an error of the rollback adds nothing.
            let _ = self.file.set_len(self.complete);
            return Err(TrainError::file("write", &self.path)(error));
        }
        self.complete += self.buffered.len() as u64;
        self.buffered.clear();
        Ok(())
    }

    /// Another handle of the file, for syncing it.
    pub(crate) fn handle(&self) -> Option<File> {
        self.file.try_clone().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_write_is_rolled_back_and_retried() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for begin in [AppendFile::create, AppendFile::open] {
            let mut file = begin(&path).unwrap();
            let before = fs::read(&path).unwrap();
            file.append(b"one\n").unwrap();
            // The state left by a full disk.
            file.buffered.extend_from_slice(b"two\n");
            file.file.write_all(b"tw").unwrap();
            let full = io::ErrorKind::StorageFull.into();
            assert!(file.settle(Err(full)).is_err());
            assert_eq!(fs::read(&path).unwrap(), [&before[..], b"one\n"].concat());
            file.append(b"three\n").unwrap();
            let expected = [&before[..], b"one\ntwo\nthree\n"].concat();
            assert_eq!(fs::read(&path).unwrap(), expected);
        }
    }
}
