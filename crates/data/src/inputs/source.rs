//! A file's decompressed bytes, with a count of the bytes read for a progress bar.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use super::Input;
use crate::DataError;

/// Bytes per read.
const BUFFER_BYTES: usize = 128 << 10;

/// The base-2 logarithm of the largest supported zstd window, as produced by `zstd --long=31`. Decompression needs as
/// much memory as the window.
const ZSTD_WINDOW_LOG: u32 = 31;

/// The byte order mark that some programs write at the beginning of UTF-8 files.
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// The compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// The compression that the file name states.
    pub(crate) fn of_name(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_ascii_lowercase();
        match extension.to_str()? {
            "gz" => Some(Self::Gzip),
            "zst" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The compression that the file's first bytes show. A zstd file may begin with a skippable frame (RFC 8878,
    /// section 3.1.2).
    fn of_bytes(head: &[u8]) -> Option<Self> {
        match head {
            [0x1F, 0x8B, ..] => Some(Self::Gzip),
            [0x28, 0xB5, 0x2F, 0xFD, ..] | [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// The decompressed contents of a file.
pub(crate) struct Source {
    reader: BufReader<Box<dyn Read + Send>>,
    /// The operation named in errors: "read" or "decompress".
    action: &'static str,
    name: PathBuf,
    read: Arc<AtomicU64>,
}

impl Source {
    /// Opens the input's file. Compression is detected from the first bytes, so that standard input needs no name. A
    /// compression extension that does not match the bytes is an error: such a file would not be readable as text
    /// either.
    pub(crate) fn open(input: &Input) -> Result<Self, DataError> {
        let (head, file, compression) = detect(input)?;
        let read = file.read.clone();
        let file = Cursor::new(head).chain(file);
        let buffered = |file| BufReader::with_capacity(BUFFER_BYTES, file);
        let reader: Box<dyn Read + Send> = match compression {
            None => Box::new(file),
            Some(Compression::Gzip) => Box::new(MultiGzDecoder::new(buffered(file))),
            Some(Compression::Zstd) => {
                let decoder = zstd::Decoder::with_buffer(buffered(file));
                let widened = decoder.and_then(|mut decoder| {
                    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                    Ok(decoder)
                });
                Box::new(widened.map_err(DataError::io("decompress", &input.name))?)
            }
        };
        Ok(Self {
            reader: BufReader::with_capacity(BUFFER_BYTES, reader),
            action: match compression {
                None => "read",
                Some(_) => "decompress",
            },
            name: input.name.clone(),
            read,
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
        DataError::io(self.action, &self.name)(error)
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
pub(crate) fn is_compressed(input: &Input) -> Result<bool, DataError> {
    let (_, _, compression) = detect(input)?;
    Ok(compression.is_some())
}

/// Opens the file and detects its compression. Returns the first bytes, the rest of the file and the compression.
fn detect(input: &Input) -> Result<(Vec<u8>, CountingFile, Option<Compression>), DataError> {
    let file = File::open(&input.path).map_err(DataError::io("read", &input.name))?;
    let read = Arc::new(AtomicU64::new(0));
    let mut file = CountingFile { file, read };
    let head = first_bytes(&mut file, 4).map_err(DataError::io("read", &input.name))?;
    let compression = Compression::of_bytes(&head);
    if let Some(claimed) = Compression::of_name(&input.name)
        && compression != Some(claimed)
    {
        let reason = "it does not begin as such a file does";
        return Err(input.damaged(claimed.name(), reason));
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
