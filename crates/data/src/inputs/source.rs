//! A file's decompressed bytes, with a count of the bytes read for a progress bar.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use emberlm_system::file_kind::{Compression, FileKind, HEAD_BYTES};
use flate2::bufread::MultiGzDecoder;

use super::utf16::Utf16Reader;
use super::{Format, Input, decompressed};
use crate::DataError;

/// Bytes per read.
const BUFFER_BYTES: usize = 128 << 10;

/// The byte order mark that some programs write at the beginning of UTF-8 files.
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// The compression that a file name states.
pub(super) fn named_compression(path: &Path) -> Option<Compression> {
    let extension = path.extension()?.to_ascii_lowercase();
    match extension.to_str()? {
        "gz" => Some(Compression::Gzip),
        "zst" => Some(Compression::Zstd),
        "bz2" => Some(Compression::Bzip2),
        "xz" => Some(Compression::Xz),
        _ => None,
    }
}

/// The decompressed contents of a file.
pub(crate) struct Source {
    reader: BufReader<Box<dyn Read + Send>>,
    compression: Option<Compression>,
    name: PathBuf,
    read: Arc<AtomicU64>,
}

impl Source {
    /// Opens the input's file and decompresses it. Compression is detected from the first bytes, whatever the file's name.
    pub(super) fn decompress(input: &Input) -> Result<Self, DataError> {
        let (head, file, compression) = detect(input)?;
        let read = file.read.clone();
        let file = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(head).chain(file));
        let reader: Box<dyn Read + Send> = match compression {
            None => Box::new(file),
            Some(Compression::Gzip) => Box::new(MultiGzDecoder::new(file)),
            Some(compression) => decompressed(compression, file)
                .map_err(DataError::io("decompress", &input.name))?
                .ok_or_else(|| input.other_kind(FileKind::Compressed(compression), None))?,
        };
        Ok(Self {
            reader: BufReader::with_capacity(BUFFER_BYTES, reader),
            compression,
            name: input.name.clone(),
            read,
        })
    }

    /// Opens the input's file as UTF-8 text. UTF-16 with a byte order mark is converted.
    ///
    /// # Errors
    /// The file cannot be read, or is of another kind than the input's format.
    pub(crate) fn open(input: &Input) -> Result<Self, DataError> {
        let mut source = Self::decompress(input)?;
        let head =
            first_bytes(&mut source.reader, HEAD_BYTES).map_err(|error| source.failure(error))?;
        let kind = FileKind::of(&head);
        let whole = Cursor::new(head).chain(source.reader);
        let reader: Box<dyn Read + Send> = match kind {
            Some(FileKind::Unicode(encoding)) if encoding.is_marked && encoding.unit == 2 => {
                Box::new(Utf16Reader::new(whole, encoding.order))
            }
            None | Some(FileKind::Text) => Box::new(whole),
            // A page can be a document, but not records.
            Some(FileKind::Html | FileKind::Xml) if input.format == Format::Text => Box::new(whole),
            Some(kind) => return Err(input.other_kind(kind, source.compression)),
        };
        Ok(Self {
            reader: BufReader::with_capacity(BUFFER_BYTES, reader),
            ..source
        })
    }

    /// Like [`Source::open`], but skips a byte order mark, which would otherwise become part of the first record.
    pub(crate) fn open_records(input: &Input) -> Result<Self, DataError> {
        let mut source = Self::open(input)?;
        let mut head = first_bytes(&mut source.reader, BYTE_ORDER_MARK.len())
            .map_err(|error| source.failure(error))?;
        if head == BYTE_ORDER_MARK {
            head.clear();
        }
        let rest = Box::new(Cursor::new(head).chain(source.reader));
        Ok(Self {
            reader: BufReader::with_capacity(BUFFER_BYTES, rest),
            ..source
        })
    }

    /// The number of bytes read from the file, before decompression.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Converts an error of reading from this source.
    pub(crate) fn failure(&self, error: io::Error) -> DataError {
        let action = match self.compression {
            None => "read",
            Some(_) => "decompress",
        };
        DataError::io(action, &self.name)(error)
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl BufRead for Source {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.reader.consume(amount);
    }
}

/// Returns true if the input's file is compressed as a whole.
#[cfg(feature = "file-formats")]
pub(crate) fn is_compressed(input: &Input) -> Result<bool, DataError> {
    let (_, _, compression) = detect(input)?;
    Ok(compression.is_some())
}

/// Opens the file and detects its compression. Returns the first bytes, the rest of the file and the compression.
///
/// A text whose name ends like that of a compressed file is read as it is: programs that download files often decompress
/// them and keep the name.
fn detect(input: &Input) -> Result<(Vec<u8>, CountingFile, Option<Compression>), DataError> {
    let file = File::open(&input.path).map_err(DataError::io("read", &input.name))?;
    let read = Arc::new(AtomicU64::new(0));
    let mut file = CountingFile { file, read };
    let head = first_bytes(&mut file, HEAD_BYTES).map_err(DataError::io("read", &input.name))?;
    let mut compression = Compression::of(&head);
    if compression.is_none()
        && let Some(claimed) = named_compression(&input.name)
    {
        let is_cut_off = match claimed {
            Compression::Bzip2 => head.starts_with(b"BZh"),
            Compression::Xz => head.starts_with(b"\xFD7z"),
            _ => false,
        };
        match FileKind::of(&head) {
            _ if is_cut_off => compression = Some(claimed),
            Some(FileKind::Text | FileKind::Parquet | FileKind::Unicode(_)) => {}
            Some(kind) => {
                return Err(DataError::OtherKind {
                    path: input.name.clone(),
                    expected: claimed.name(),
                    found: kind,
                    inside: None,
                });
            }
            None => {
                let reason = "it does not begin as such a file does";
                return Err(input.damaged(claimed.name(), reason));
            }
        }
    }
    Ok((head, file, compression))
}

/// A file that counts the bytes read.
struct CountingFile {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for CountingFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

fn first_bytes(reader: &mut impl Read, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(count as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}
