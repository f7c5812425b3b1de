//! BLAKE3 of a file.

use std::fs::File;
use std::path::Path;

use crate::DataError;

/// BLAKE3 of the whole file, in hexadecimal. It is read through a buffer and not through a memory map, whose pages
/// would count as this process's memory.
pub(crate) fn blake3(path: &Path) -> Result<String, DataError> {
    let hash = || {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(File::open(path)?)?;
        Ok(hasher.finalize().to_hex().to_string())
    };
    hash().map_err(DataError::io("read", path))
}
