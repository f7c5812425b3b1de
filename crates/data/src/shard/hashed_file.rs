//! A file that is hashed while it is read sequentially.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use emberlm_system::read;

use super::blocks::{BlockHasher, FileHashes};
use crate::DataError;

/// The maximum number of bytes per read.
const READ_BYTES: u64 = 4 << 20;

/// Reads a file in blocks into a buffer. It is not memory-mapped, because the pages of a map would count as memory of
/// this process.
pub(crate) struct HashedFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    left: u64,
    hasher: BlockHasher,
    block: Vec<u8>,
}

impl HashedFile {
    /// Opens the regular file `path`. Follows symbolic links.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let found = fs::metadata(path).map_err(DataError::io("read", path))?;
        if !found.is_file() {
            let path = path.to_owned();
            return Err(DataError::NotAFile { path });
        }
        let file = read::open(path).map_err(DataError::io("read", path))?;
        let metadata = file.metadata().map_err(DataError::io("read", path))?;
        let path = path.to_owned();
        let bytes = metadata.len();
        Ok(Self {
            path,
            file,
            bytes,
            left: bytes,
            hasher: BlockHasher::default(),
            block: Vec::new(),
        })
    }

    /// The length of the file in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the next bytes, at most `most` of them. Returns an empty slice at the end.
    pub(crate) fn next(&mut self, most: u64) -> Result<&[u8], DataError> {
        let len = self.left.min(most).min(READ_BYTES);
        self.block.resize(len as usize, 0);
        if let Err(source) = self.file.read_exact(&mut self.block) {
            let path = self.path.clone();
            return Err(match source.kind() {
                ErrorKind::UnexpectedEof => DataError::FileChanged { path },
                _ => DataError::io("read", &path)(source),
            });
        }
        self.left -= len;
        self.hasher.update(&self.block);
        Ok(&self.block)
    }

    /// The hashes of the bytes read so far.
    pub(crate) fn hashes(&self) -> FileHashes {
        self.hasher.finish()
    }
}

/// Reads a whole file and returns its hashes.
pub(crate) fn file_hashes(path: &Path) -> Result<FileHashes, DataError> {
    let mut file = HashedFile::open(path)?;
    while !file.next(READ_BYTES)?.is_empty() {}
    Ok(file.hashes())
}
