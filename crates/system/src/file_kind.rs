//! Identification of files by their first bytes.
//!
//! Every reader that expects one kind of file and gets another uses [`FileKind`] to say which kind it is and how to
//! proceed, whatever the file's name.

use std::fmt;

mod identify;
mod unicode;

pub use unicode::{ByteOrder, TextEncoding};

/// The number of first bytes that identify a file.
pub const HEAD_BYTES: usize = 8192;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// UTF-8 text of no other kind.
    Text,
    /// A web page.
    Html,
    /// An XML document.
    Xml,
    /// The text that Git keeps in place of a large file.
    LfsPointer,
    /// UTF-16 or UTF-32 text.
    Unicode(TextEncoding),
    /// A compressed file.
    Compressed(Compression),
    /// A tar archive.
    Tar,
    /// A ZIP archive.
    Zip(ZipKind),
    /// A 7z archive.
    SevenZip,
    /// A RAR archive.
    Rar,
    /// A Parquet file.
    Parquet,
    /// An Arrow IPC file, which Feather files are too.
    Arrow,
    /// An Arrow IPC stream, as the `datasets` library stores.
    ArrowStream,
    /// An ORC file.
    Orc,
    /// An Avro file.
    Avro,
    /// An HDF5 file.
    Hdf5,
    /// A SQLite database.
    Sqlite,
    /// A NumPy array.
    NumPy,
    /// A Python pickle.
    Pickle,
    /// Weights as safetensors.
    Safetensors,
    /// A GGUF file.
    Gguf,
    /// A PDF document.
    Pdf,
    /// An RTF document.
    Rtf,
    /// A document or table of earlier versions of Microsoft Office.
    Office,
    /// A program or a library.
    Executable,
    /// An image.
    Image,
    /// A sound or a film.
    Media,
}

/// A compression format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
    /// bzip2.
    Bzip2,
    /// xz.
    Xz,
    /// The format of `lzma`, before xz.
    Lzma,
    /// LZ4 frames.
    Lz4,
    /// The format of `compress`.
    Compress,
}

/// The content of a ZIP archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZipKind {
    /// Any files.
    Files,
    /// A Word document.
    Word,
    /// An Excel table.
    Excel,
    /// A PowerPoint presentation.
    PowerPoint,
    /// An OpenDocument file.
    OpenDocument,
    /// An EPUB book.
    Epub,
    /// NumPy arrays.
    NumPy,
    /// A PyTorch checkpoint.
    PyTorch,
}

impl FileKind {
    /// Returns true if the file is UTF-8 text. A Git LFS pointer is not, since it stands for another file.
    pub fn is_utf8(self) -> bool {
        matches!(self, Self::Text | Self::Html | Self::Xml)
    }

    /// Advice to a user whose file `name`, quoted for a shell, has this kind and is not readable as another one. `None` for
    /// plain text.
    pub fn advice(self, name: &str) -> Option<String> {
        let unpack =
            |command: &str| format!("unpack it and give the files in it: {command} {name}");
        let advice = match self {
            Self::Text => return None,
            Self::Html | Self::Xml => {
                "a server may have answered with a page, such as a login or an error, in place of the file: open it to read the reason, then download the file again"
                    .to_owned()
            }
            Self::LfsPointer => {
                "the repository was cloned without Git LFS: run `git lfs install` and `git lfs pull` in it, or download the file itself"
                    .to_owned()
            }
            Self::Unicode(encoding) => format!(
                "convert it to UTF-8: iconv -f {} -t UTF-8 {name} > NEW",
                encoding.iconv_name()
            ),
            Self::Compressed(compression) => {
                format!("decompress it: {} {name}", compression.command())
            }
            Self::Tar => unpack("tar -xf"),
            Self::SevenZip => unpack("7z x"),
            Self::Rar => unpack("unrar x"),
            Self::Zip(kind) => return Some(kind.advice(name)),
            Self::Parquet => {
                "`prepare` reads it as such: leave out --format, or pass --format parquet".to_owned()
            }
            Self::Arrow => to_parquet(&format!("pyarrow.feather.read_table('{}')", bare(name))),
            Self::ArrowStream => to_parquet(&format!(
                "pyarrow.ipc.open_stream('{}').read_all()",
                bare(name)
            )),
            Self::Orc => to_parquet(&format!("pyarrow.orc.read_table('{}')", bare(name))),
            Self::Avro | Self::Hdf5 | Self::Sqlite => {
                "export its records to JSON Lines, CSV or Parquet with the program that made it".to_owned()
            }
            Self::NumPy => {
                "of text, write JSON Lines; of token ids, a file of `tofile` in a folder that `emberlm data adopt` reads"
                    .to_owned()
            }
            Self::Pickle => PICKLE.to_owned(),
            Self::Safetensors | Self::Gguf => {
                "it has a model's weights: give it, or its folder, where a command takes a MODEL".to_owned()
            }
            Self::Pdf => format!("extract its text: pdftotext {name} TEXT.txt"),
            Self::Rtf | Self::Office => "save it as plain text (UTF-8) or CSV in an office program".to_owned(),
            Self::Executable | Self::Image | Self::Media => "give another file, or leave it out".to_owned(),
        };
        Some(advice)
    }
}

const PICKLE: &str = "opening a pickle can run any program, so none is read: in Python, where you trust it, save weights as safetensors, or records as JSON Lines or Parquet";

fn to_parquet(read: &str) -> String {
    let module: Vec<&str> = read.split('.').take(2).collect();
    let module = module.join(".");
    format!(
        "convert it to Parquet in Python: import {module}, pyarrow.parquet; pyarrow.parquet.write_table({read}, 'NEW.parquet')"
    )
}

/// A quoted name without its quotes.
fn bare(name: &str) -> &str {
    name.trim_matches('\'')
}

impl ZipKind {
    fn advice(self, name: &str) -> String {
        match self {
            Self::Files => format!("unpack it and give the files in it: unzip {name}"),
            Self::Word | Self::OpenDocument | Self::Epub => {
                format!("convert it to text: pandoc {name} -t plain -o TEXT.txt")
            }
            Self::Excel => "save its table as CSV (UTF-8)".to_owned(),
            Self::PowerPoint => "save its text as plain text (UTF-8)".to_owned(),
            Self::NumPy => {
                "of text, write JSON Lines; of token ids, files of `tofile` in a folder that `emberlm data adopt` reads"
                    .to_owned()
            }
            Self::PyTorch => PICKLE.to_owned(),
        }
    }
}

impl Compression {
    /// The name of the format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
            Self::Lzma => "lzma",
            Self::Lz4 => "LZ4",
            Self::Compress => "compress (.Z)",
        }
    }

    const fn command(self) -> &'static str {
        match self {
            Self::Gzip | Self::Compress => "gzip -dk",
            Self::Zstd => "zstd -d",
            Self::Bzip2 => "bzip2 -dk",
            Self::Xz | Self::Lzma => "xz -dk",
            Self::Lz4 => "lz4 -dk",
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "a text file",
            Self::Html => "an HTML page",
            Self::Xml => "an XML document",
            Self::LfsPointer => "a Git LFS pointer (the file itself was not downloaded)",
            Self::Unicode(encoding) => return write!(f, "{encoding} text"),
            Self::Compressed(compression) => {
                return write!(f, "a file compressed with {}", compression.name());
            }
            Self::Tar => "a tar archive",
            Self::Zip(ZipKind::Files) => "a ZIP archive",
            Self::Zip(ZipKind::Word) => "a Word document (a ZIP archive)",
            Self::Zip(ZipKind::Excel) => "an Excel table (a ZIP archive)",
            Self::Zip(ZipKind::PowerPoint) => "a PowerPoint presentation (a ZIP archive)",
            Self::Zip(ZipKind::OpenDocument) => "an OpenDocument file (a ZIP archive)",
            Self::Zip(ZipKind::Epub) => "an EPUB book (a ZIP archive)",
            Self::Zip(ZipKind::NumPy) => "an archive of NumPy arrays (npz)",
            Self::Zip(ZipKind::PyTorch) => "a PyTorch checkpoint (a pickle in a ZIP archive)",
            Self::SevenZip => "a 7z archive",
            Self::Rar => "a RAR archive",
            Self::Parquet => "a Parquet file",
            Self::Arrow => "an Arrow IPC (Feather) file",
            Self::ArrowStream => "an Arrow IPC stream",
            Self::Orc => "an ORC file",
            Self::Avro => "an Avro file",
            Self::Hdf5 => "an HDF5 file",
            Self::Sqlite => "a SQLite database",
            Self::NumPy => "a NumPy array",
            Self::Pickle => "a Python pickle",
            Self::Safetensors => "a safetensors file",
            Self::Gguf => "a GGUF file",
            Self::Pdf => "a PDF document",
            Self::Rtf => "an RTF document",
            Self::Office => "a Microsoft Office document",
            Self::Executable => "a program or library",
            Self::Image => "an image",
            Self::Media => "a sound or video file",
        })
    }
}
