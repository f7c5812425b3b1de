//! The bytes that kinds of files begin with.

use super::{Compression, FileKind, HEAD_BYTES, TextEncoding, ZipKind};

/// The text at the beginning of a Git LFS pointer.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// The length of a tar header, with the position of its checksum.
const TAR_HEADER: usize = 512;
const TAR_CHECKSUM: std::ops::Range<usize> = 148..156;

impl FileKind {
    /// Identifies a file by its first bytes, of which [`HEAD_BYTES`] are enough. `None` for binary files of an unknown
    /// kind and for empty ones.
    pub fn of(head: &[u8]) -> Option<Self> {
        let head = &head[..head.len().min(HEAD_BYTES)];
        if head.is_empty() {
            return None;
        }
        if let Some(kind) = of_text(head) {
            return Some(kind);
        }
        if is_safetensors(head) {
            return Some(FileKind::Safetensors);
        }
        if let Some(compression) = Compression::of(head) {
            return Some(FileKind::Compressed(compression));
        }
        if is_tar(head) {
            return Some(FileKind::Tar);
        }
        by_signature(head).or_else(|| TextEncoding::of(head).map(FileKind::Unicode))
    }
}

/// The kind of a text, which has valid UTF-8 without NULs as far as `head` shows. Texts that begin like a binary file, such
/// as an article about "GGUF", are texts.
fn of_text(head: &[u8]) -> Option<FileKind> {
    let start = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
    let start = start.trim_ascii_start();
    let begins = |with: &[u8]| {
        start
            .get(..with.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(with))
    };
    let is_text = match str::from_utf8(head) {
        Ok(_) => true,
        // The head may end within a character.
        Err(error) => error.error_len().is_none() && error.valid_up_to() > 0,
    };
    // A page may have another encoding.
    if begins(b"<!doctype html") || begins(b"<html") {
        return Some(FileKind::Html);
    }
    if matches!(start, [b'%', b'P', b'D', b'F', b'-', b'0'..=b'9', b'.', ..]) {
        return Some(FileKind::Pdf);
    }
    if start.starts_with(b"{\\rtf1") {
        return Some(FileKind::Rtf);
    }
    if !is_text || head.contains(&0) {
        return None;
    }
    Some(match () {
        () if start.starts_with(LFS_POINTER) => FileKind::LfsPointer,
        () if begins(b"<?xml") => FileKind::Xml,
        () => FileKind::Text,
    })
}

impl Compression {
    /// The compression that the first bytes show. A zstd file may begin with a skippable frame (RFC 8878, section 3.1.2).
    pub fn of(head: &[u8]) -> Option<Self> {
        Some(match head {
            [0x1F, 0x8B, ..] => Self::Gzip,
            [0x28, 0xB5, 0x2F, 0xFD, ..] | [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..] => Self::Zstd,
            // The header, then the first block, or the end of an empty stream.
            [
                b'B',
                b'Z',
                b'h',
                b'1'..=b'9',
                0x31,
                0x41,
                0x59,
                0x26,
                0x53,
                0x59,
                ..,
            ]
            | [
                b'B',
                b'Z',
                b'h',
                b'1'..=b'9',
                0x17,
                0x72,
                0x45,
                0x38,
                0x50,
                0x90,
                ..,
            ] => Self::Bzip2,
            [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [0x04, 0x22, 0x4D, 0x18, ..] => Self::Lz4,
            [0x1F, 0x9D, ..] => Self::Compress,
            // The usual properties, a dictionary of a power of two, and an unknown or plausible length.
            [0x5D, 0, 0, size, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, ..]
            | [0x5D, 0, 0, 0, size, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, ..]
                if size.is_power_of_two() =>
            {
                Self::Lzma
            }
            _ => return None,
        })
    }
}

/// Returns true if a header of plausible length begins with a JSON object.
fn is_safetensors(head: &[u8]) -> bool {
    let Some((length, json)) = head.split_first_chunk::<8>() else {
        return false;
    };
    let length = u64::from_le_bytes(*length);
    (2..=100_000_000).contains(&length) && json.trim_ascii_start().starts_with(b"{\"")
        || (length == 2 && json.starts_with(b"{}"))
}

/// Returns true if `head` begins with a tar header, whose checksum is right. The oldest format has no other mark.
fn is_tar(head: &[u8]) -> bool {
    let Some(header) = head.get(..TAR_HEADER) else {
        return false;
    };
    let digits = header[TAR_CHECKSUM].iter();
    let digits = digits.skip_while(|byte| **byte == b' ');
    let digits = digits.take_while(|byte| (b'0'..=b'7').contains(*byte));
    let stated = digits.fold(0u32, |sum, digit| sum * 8 + u32::from(digit - b'0'));
    let bytes = header.iter().enumerate();
    let found = bytes.map(|(place, &byte)| match TAR_CHECKSUM.contains(&place) {
        true => u32::from(b' '),
        false => byte.into(),
    });
    header[0] != 0 && stated == found.sum::<u32>()
}

fn by_signature(head: &[u8]) -> Option<FileKind> {
    const SIGNATURES: [(&[u8], FileKind); 37] = [
        (b"PAR1", FileKind::Parquet),
        (b"PARE", FileKind::Parquet),
        (b"ARROW1", FileKind::Arrow),
        (b"FEA1", FileKind::Arrow),
        (b"ORC", FileKind::Orc),
        (b"Obj\x01", FileKind::Avro),
        (b"\x89HDF\r\n\x1a\n", FileKind::Hdf5),
        (b"SQLite format 3\0", FileKind::Sqlite),
        (b"\x93NUMPY", FileKind::NumPy),
        (b"GGUF", FileKind::Gguf),
        (b"\x80\x02", FileKind::Pickle),
        (b"\x80\x03", FileKind::Pickle),
        (b"\x80\x04\x95", FileKind::Pickle),
        (b"\x80\x05\x95", FileKind::Pickle),
        (b"7z\xBC\xAF\x27\x1C", FileKind::SevenZip),
        (b"Rar!\x1a\x07", FileKind::Rar),
        (b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", FileKind::Office),
        (b"\x7fELF", FileKind::Executable),
        (b"MZ", FileKind::Executable),
        (b"\0asm", FileKind::Executable),
        (b"\xCF\xFA\xED\xFE", FileKind::Executable),
        (b"\xCA\xFE\xBA\xBE", FileKind::Executable),
        (b"\x89PNG\r\n\x1a\n", FileKind::Image),
        (b"\xFF\xD8\xFF", FileKind::Image),
        (b"GIF87a", FileKind::Image),
        (b"GIF89a", FileKind::Image),
        (b"II*\0", FileKind::Image),
        (b"MM\0*", FileKind::Image),
        (b"BM", FileKind::Image),
        (b"OggS", FileKind::Media),
        (b"ID3", FileKind::Media),
        (b"fLaC", FileKind::Media),
        (b"\x1A\x45\xDF\xA3", FileKind::Media),
        (b"PK\x03\x04", FileKind::Zip(ZipKind::Files)),
        (b"PK\x05\x06", FileKind::Zip(ZipKind::Files)),
        (b"RIFF", FileKind::Media),
        (b"%PDF-", FileKind::Pdf),
    ];
    let found = SIGNATURES.iter().find(|(start, _)| head.starts_with(start));
    match found {
        Some((_, FileKind::Zip(_))) => Some(FileKind::Zip(zip_kind(head))),
        Some((b"RIFF", _)) if head.get(8..12) == Some(b"WEBP") => Some(FileKind::Image),
        // Two bytes identify a file only with others.
        Some((b"MZ", _)) if !contains(head, b"PE\0\0") => None,
        Some((b"BM", _)) if head.get(6..10) != Some(&[0; 4]) => None,
        Some((_, kind)) => Some(*kind),
        None if head.get(4..8) == Some(b"ftyp") => Some(FileKind::Media),
        None if is_arrow_stream(head) => Some(FileKind::ArrowStream),
        None => None,
    }
}

/// Returns true if `head` begins with a message of the Arrow IPC format: a continuation mark, and the length of a
/// flatbuffer.
fn is_arrow_stream(head: &[u8]) -> bool {
    let length = head.get(4..8).and_then(|length| length.try_into().ok());
    let length = length.map_or(0, u32::from_le_bytes);
    head.starts_with(&[0xFF; 4]) && length > 0 && length < 1 << 24 && length.is_multiple_of(8)
}

/// The content of a ZIP archive, from the names of its first files.
fn zip_kind(head: &[u8]) -> ZipKind {
    let holds = |name: &str| contains(head, name.as_bytes());
    match () {
        () if holds("mimetypeapplication/epub+zip") => ZipKind::Epub,
        () if holds("mimetypeapplication/vnd.oasis.opendocument") => ZipKind::OpenDocument,
        () if holds("/data.pkl") => ZipKind::PyTorch,
        () if holds("word/") => ZipKind::Word,
        () if holds("xl/") => ZipKind::Excel,
        () if holds("ppt/") => ZipKind::PowerPoint,
        () if first_name(head).is_some_and(|name| name.ends_with(b".npy")) => ZipKind::NumPy,
        () => ZipKind::Files,
    }
}

/// The name of the first file of a ZIP archive.
fn first_name(head: &[u8]) -> Option<&[u8]> {
    let length = u16::from_le_bytes(*head.get(26..)?.first_chunk()?);
    head.get(30..30 + usize::from(length))
}

fn contains(head: &[u8], part: &[u8]) -> bool {
    head.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tar header for a file of four bytes.
    pub(crate) fn tar() -> Vec<u8> {
        let mut header = vec![0; TAR_HEADER];
        header[..5].copy_from_slice(b"a.txt");
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(b"00000000004");
        header[TAR_CHECKSUM].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        header.extend(b"text");
        header.resize(TAR_HEADER * 4, 0);
        header
    }

    fn kind(head: &[u8]) -> String {
        FileKind::of(head).map_or_else(|| "unknown".to_owned(), |kind| kind.to_string())
    }

    #[test]
    fn files_are_identified_by_their_first_bytes() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
        let zip = |name: &str| {
            let mut bytes = b"PK\x03\x04\x14\0\0\0\0\0".to_vec();
            bytes.resize(26, 0);
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend([0, 0]);
            bytes.extend(name.as_bytes());
            bytes
        };
        for (head, name) in [
            (
                &pointer[..],
                "a Git LFS pointer (the file itself was not downloaded)",
            ),
            (b"\n <!DOCTYPE html>\n<html><body>404", "an HTML page"),
            (b"<html lang=\"en\">caf\xe9", "an HTML page"),
            (b"<?xml version=\"1.0\"?><Error/>", "an XML document"),
            (b"%PDF-1.7\n%\xe2\xe3", "a PDF document"),
            (b"{\\rtf1\\ansi text}", "an RTF document"),
            (&tar(), "a tar archive"),
            (&zip("a.txt"), "a ZIP archive"),
            (
                &zip("[Content_Types].xml PK word/document.xml"),
                "a Word document (a ZIP archive)",
            ),
            (&zip("arr_0.npy"), "an archive of NumPy arrays (npz)"),
            (
                &zip("archive/data.pkl"),
                "a PyTorch checkpoint (a pickle in a ZIP archive)",
            ),
            (
                &zip("mimetypeapplication/epub+zip"),
                "an EPUB book (a ZIP archive)",
            ),
            (b"\x1F\x8B\x08\0", "a file compressed with gzip"),
            (b"BZh91AY&SY\0\0", "a file compressed with bzip2"),
            (b"\xFD7zXZ\0\0\x04", "a file compressed with xz"),
            (b"\x28\xB5\x2F\xFD\x04", "a file compressed with zstd"),
            (
                b"\x5D\0\0\x80\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0",
                "a file compressed with lzma",
            ),
            (b"7z\xBC\xAF\x27\x1C\0\x04", "a 7z archive"),
            (b"PAR1\x15\x04\x15\0", "a Parquet file"),
            (b"ARROW1\0\0\xFF\xFF\xFF\xFF", "an Arrow IPC (Feather) file"),
            (
                b"\xFF\xFF\xFF\xFF\x78\0\0\0\x10\0\0\0",
                "an Arrow IPC stream",
            ),
            (b"SQLite format 3\0\x10\0", "a SQLite database"),
            (b"\x7fELF\x02\x01\x01\0", "a program or library"),
            (b"\x89PNG\r\n\x1a\n\0\0", "an image"),
            (b"\xFF\xD8\xFF\xE0\0\x10JFIF", "an image"),
            (b"\x93NUMPY\x01\0v\0{'descr'", "a NumPy array"),
            (b"\x80\x04\x95\x0b\0\0\0\0\0\0\0", "a Python pickle"),
            (b"\x89HDF\r\n\x1a\n\0", "an HDF5 file"),
            (b"GGUF\x03\0\0\0\0", "a GGUF file"),
            (b"\x40\0\0\0\0\0\0\0{\"__metadata__\"", "a safetensors file"),
            (b"\xFF\xFEa\0b\0", "UTF-16 (little-endian) text"),
            (b"\x81\xff\0\x03", "unknown"),
            (b"", "unknown"),
        ] {
            assert_eq!(kind(head), name);
        }
    }

    #[test]
    fn texts_that_begin_like_other_files_are_texts() {
        for text in [
            "GGUF is a format of files",
            "ORC files",
            "PAR1",
            "MZ is the signature of a program",
            "BM",
            "RIFF on a theme",
            "GIF89a is a format",
            "PK",
            "BZh9 is how it begins",
            "ID3 tags",
            "%PDF is a mark",
            "[Content]",
            "{\"a\": 1}",
            "version https://example.org",
            "漢字",
            "html",
            "7z",
        ] {
            assert_eq!(kind(text.as_bytes()), "a text file", "{text}");
        }
        // The head ends within a character.
        assert_eq!(kind(&"漢字".as_bytes()[..5]), "a text file");
    }
}
