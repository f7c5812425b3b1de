//! Errors for files whose readers and decoders are in the feature `file-formats`.

use std::io::{self, BufRead, Read};

use emberlm_system::file_kind::Compression;

/// The reason that a file cannot be read.
pub(super) const NOT_BUILT: &str =
    "this program was built without the feature `file-formats` of emberlm-data";

/// Returns an error for a compression that the feature supports, and `None` for any other.
pub(super) fn decompressed(
    compression: Compression,
    _file: impl BufRead + Send + 'static,
) -> io::Result<Option<Box<dyn Read + Send>>> {
    match compression {
        Compression::Bzip2 | Compression::Xz | Compression::Zstd => {
            Err(io::Error::new(io::ErrorKind::Unsupported, NOT_BUILT))
        }
        _ => Ok(None),
    }
}
