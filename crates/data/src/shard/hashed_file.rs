//! A file read from its beginning to its end, and hashed on the way.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::DataError;

/// How much is read at a time.
const BLOCK_BYTES: u64 = 4 << 20;

/// Reads a file in blocks through a buffer of its own: a memory map's pages would count as this process's memory.
pub(crate) struct HashedFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    left: u64,
    hasher: blake3::Hasher,
    block: Vec<u8>,
}

impl HashedFile {
    /// Opens the regular file `path`, or what a link of this name leads to.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let file = File::open(path).map_err(DataError::io("read", path))?;
        let metadata = file.metadata().map_err(DataError::io("read", path))?;
        let path = path.to_owned();
        if !metadata.is_file() {
            return Err(DataError::NotAFile { path });
        }
        let bytes = metadata.len();
        Ok(Self {
            path,
            file,
            bytes,
            left: bytes,
            hasher: blake3::Hasher::new(),
            block: Vec::new(),
        })
    }

    /// How long the file is.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next bytes, at most `most` of them; none at the end.
    pub(crate) fn next(&mut self, most: u64) -> Result<&[u8], DataError> {
        let len = self.left.min(most).min(BLOCK_BYTES);
        self.block.resize(len as usize, 0);
        if let Err(source) = self.file.read_exact(&mut self.block) {
            let path = self.path.clone();
            return Err(match source.kind() {
                ErrorKind::UnexpectedEof => DataError::FileChanged { path },
                _ => DataError::io("read", &path)(source),
            });
        }
        self.left -= len;
        self.hasher.update_rayon(&self.block);
        Ok(&self.block)
    }

    /// BLAKE3 of what has been read, in hexadecimal.
    pub(crate) fn blake3(&self) -> String {
        self.hasher.finalize().to_hex().to_string()
    }
}

/// BLAKE3 of the whole file, in hexadecimal.
pub(crate) fn file_blake3(path: &Path) -> Result<String, DataError> {
    let mut file = HashedFile::open(path)?;
    while !file.next(BLOCK_BYTES)?.is_empty() {}
    Ok(file.blake3())
}
