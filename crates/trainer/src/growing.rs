//! A file that grows by whole pieces. What cannot be written, as where the disk is full, waits in memory and is written
//! with the next; a partial write of it is removed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::TrainError;

/// A file to which pieces are added.
#[derive(Debug)]
pub(crate) struct GrowingFile {
    path: PathBuf,
    file: File,
    /// Bytes of the file that are whole pieces.
    whole: u64,
    /// Pieces that are not in the file yet.
    waiting: Vec<u8>,
}

impl GrowingFile {
    /// An empty file, in the place of whatever is there: a FIFO or a device is not written to.
    ///
    /// # Errors
    /// It cannot be created.
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

    /// A file that is there, to add to.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open(path: &Path) -> Result<Self, TrainError> {
        // Appending continues at the current end, also after a partial write was removed.
        let opened = File::options().append(true).open(path);
        let file = opened.map_err(TrainError::file("open", path))?;
        let metadata = file.metadata().map_err(TrainError::file("read", path))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            whole: metadata.len(),
            waiting: Vec::new(),
        })
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// The file cannot be written; the piece waits.
    pub(crate) fn add(&mut self, piece: &[u8]) -> Result<(), TrainError> {
        self.waiting.extend_from_slice(piece);
        self.flush()
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn flush(&mut self) -> Result<(), TrainError> {
        let written = self.file.write_all(&self.waiting);
        self.settle(written)
    }

    fn settle(&mut self, written: io::Result<()>) -> Result<(), TrainError> {
        if let Err(error) = written {
            // The first error is what the user needs to hear of.
            let _ = self.file.set_len(self.whole);
            return Err(TrainError::file("write", &self.path)(error));
        }
        self.whole += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    /// Another handle of the file, to sync it by.
    pub(crate) fn handle(&self) -> Option<File> {
        self.file.try_clone().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_written_in_part_is_taken_back_and_written_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for begin in [GrowingFile::create, GrowingFile::open] {
            let mut file = begin(&path).unwrap();
            let before = fs::read(&path).unwrap();
            file.add(b"one\n").unwrap();
            // As a disk that is full leaves it.
            file.waiting.extend_from_slice(b"two\n");
            file.file.write_all(b"tw").unwrap();
            let full = io::ErrorKind::StorageFull.into();
            assert!(file.settle(Err(full)).is_err());
            assert_eq!(fs::read(&path).unwrap(), [&before[..], b"one\n"].concat());
            file.add(b"three\n").unwrap();
            let expected = [&before[..], b"one\ntwo\nthree\n"].concat();
            assert_eq!(fs::read(&path).unwrap(), expected);
        }
    }
}
