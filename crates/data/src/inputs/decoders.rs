//! The decoders of the feature `file-formats`.

use std::io::{self, BufRead, Read};

use bzip2::bufread::MultiBzDecoder;
use emberlm_system::file_kind::Compression;
use lzma_rust2::XzReader;

/// The base-2 logarithm of the largest supported zstd window, as produced by `zstd --long=31`. Decompression needs as
/// much memory as the window.
const ZSTD_WINDOW_LOG: u32 = 31;

/// The memory limit of xz in KiB: a dictionary as large as zstd's window, and the decoder.
const XZ_MEMORY_KIB: u32 = (2 << 20) + (1 << 10);

/// Decompresses `file`. Returns `None` for a compression that is not supported.
pub(super) fn decompressed(
    compression: Compression,
    file: impl BufRead + Send + 'static,
) -> io::Result<Option<Box<dyn Read + Send>>> {
    Ok(Some(match compression {
        Compression::Bzip2 => Box::new(MultiBzDecoder::new(file)),
        Compression::Xz => Box::new(XzReader::new_mem_limit(file, true, XZ_MEMORY_KIB)),
        Compression::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(file)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            Box::new(decoder)
        }
        _ => return Ok(None),
    }))
}
