//! Which tokens of a shard are to be learnt: a file of one byte per token, beside the shard.

use std::path::{Path, PathBuf};

use mmap_io::MemoryMappedFile;

use super::read::map_error;
use crate::DataError;

/// The byte of a token that is to be learnt; 0 is that of one that is only read.
pub(crate) const LEARNT: u8 = 1;

/// A memory-mapped mask, whose length has been checked.
pub struct Mask {
    path: PathBuf,
    map: MemoryMappedFile,
}

impl Mask {
    /// Opens the mask `path` of a shard of `tokens` tokens.
    ///
    /// # Errors
    /// Where it cannot be opened, or has not one byte per token.
    pub fn open(path: &Path, tokens: u64) -> Result<Self, DataError> {
        let map = MemoryMappedFile::open_ro(path).map_err(|error| map_error(path, error))?;
        let path = path.to_owned();
        if map.len() != tokens {
            let reason = format!("{} bytes, but its shard has {tokens} tokens", map.len());
            return Err(DataError::Shard { path, reason });
        }
        Ok(Self { path, map })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether each of `len` tokens from `start` on is to be learnt.
    ///
    /// # Errors
    /// Where there are not as many, or where a byte is neither 0 nor 1.
    pub fn read_into(&self, start: u64, len: u64, out: &mut Vec<bool>) -> Result<(), DataError> {
        let total = self.map.len();
        if start.checked_add(len).is_none_or(|end| end > total) {
            return Err(DataError::OutOfBounds { start, len, total });
        }
        let bytes = self.map.as_slice_bytes(start, len);
        let bytes = bytes.map_err(|error| map_error(&self.path, error))?;
        if let Some(at) = bytes.iter().position(|&byte| byte > LEARNT) {
            let reason = format!(
                "byte {} at {}: only 0 and 1 are allowed",
                bytes[at],
                start + at as u64
            );
            let path = self.path.clone();
            return Err(DataError::Shard { path, reason });
        }
        out.extend(bytes.iter().map(|&byte| byte == LEARNT));
        Ok(())
    }
}
