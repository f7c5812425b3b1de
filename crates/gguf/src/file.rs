//! Memory-mapped files.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use emberlm_system::file_kind::FileKind;
use emberlm_system::read;
use mmap_io::{MemoryMappedFile, MmapAdvice};

use crate::MAGIC;
use crate::error::GgufError;
use crate::metadata::Metadata;
use crate::reader::{Header, read_header};
use crate::tensor::TensorInfo;

/// Keys of the number of files of a split model, and of a file's index.
const SPLIT_COUNT: &str = "split.count";
const SPLIT_INDEX: &str = "split.no";
/// Digits of the numbers in the names of split files.
const SPLIT_DIGITS: usize = 5;

/// A memory-mapped GGUF file, or all files of a split model.
#[derive(Debug)]
pub struct GgufFile {
    metadata: Metadata,
    tensors: BTreeMap<String, TensorInfo>,
    files: Vec<MappedFile>,
}

#[derive(Debug)]
struct MappedFile {
    path: PathBuf,
    bytes: MemoryMappedFile,
    /// In bytes.
    size: u64,
}

impl MappedFile {
    /// Releases the pages that have been read, and those that the system read ahead.
    fn release(&self) {
        // A failed hint costs only memory.
        let _ = self.bytes.advise(0, self.size, MmapAdvice::DontNeed);
    }
}

/// Returns true if a path has the extension of GGUF files.
pub fn is_gguf(path: &Path) -> bool {
    let extension = path.extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

impl GgufFile {
    /// Opens a file. For the first file of a split model (`NAME-00001-of-0000N.gguf`), also opens the others, which
    /// must be in the same directory.
    ///
    /// # Errors
    /// A file cannot be read or is damaged; `path` is not the first file of a split model; the files do not belong
    /// together.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let (header, mapped) = map(path)?;
        let mut file = Self {
            metadata: header.metadata,
            tensors: BTreeMap::new(),
            files: Vec::new(),
        };
        let split = |reason: String| GgufError::Split {
            path: path.to_owned(),
            reason,
        };
        let count = file.metadata.count(SPLIT_COUNT)?.unwrap_or(1);
        file.add(header.tensors, mapped)?;
        if count <= 1 {
            return Ok(file);
        }
        if file.metadata.count(SPLIT_INDEX)?.unwrap_or(0) != 0 {
            let reason = "it is not the first file of a split model: give the first one";
            return Err(split(reason.to_owned()));
        }
        let Some(base) = split_base(path, count) else {
            return Err(split(format!(
                "the first of {count} files of a split model must be named \
                 NAME-00001-of-{count:0SPLIT_DIGITS$}.gguf"
            )));
        };
        for index in 1..count {
            let other = path.with_file_name(split_name(&base, index, count));
            if !other.exists() {
                let reason = format!("it is file {} of {count}, which is not there", index + 1);
                return Err(GgufError::Split {
                    path: other,
                    reason,
                });
            }
            let (header, mapped) = map(&other)?;
            let found = [
                header.metadata.count(SPLIT_INDEX)?,
                header.metadata.count(SPLIT_COUNT)?,
            ];
            if found != [Some(index), Some(count)] {
                let reason = format!(
                    "its metadata must say that it is file {} of {count}",
                    index + 1
                );
                return Err(GgufError::Split {
                    path: other,
                    reason,
                });
            }
            file.add(header.tensors, mapped)?;
        }
        Ok(file)
    }

    fn add(&mut self, tensors: Vec<TensorInfo>, mapped: MappedFile) -> Result<(), GgufError> {
        let file = self.files.len();
        for tensor in tensors {
            let name = tensor.name.clone();
            if self
                .tensors
                .insert(name.clone(), TensorInfo { file, ..tensor })
                .is_some()
            {
                return Err(GgufError::Split {
                    path: mapped.path,
                    reason: format!("tensor `{name}` is also in another file"),
                });
            }
        }
        self.files.push(mapped);
        Ok(())
    }

    /// The path of the first file.
    pub fn path(&self) -> &Path {
        self.files.first().map_or(Path::new(""), |file| &file.path)
    }

    /// The metadata of the first file.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors by name.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.tensors.values()
    }

    /// Finds a tensor.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// Calls `read` with the bytes of up to `at_once` rows at a time, in order, and releases their pages.
    ///
    /// # Errors
    /// The rows are outside of the tensor, or cannot be read.
    pub fn read_rows(
        &self,
        tensor: &TensorInfo,
        rows: Range<usize>,
        at_once: usize,
        read: &mut dyn FnMut(Range<usize>, &[u8]),
    ) -> Result<(), GgufError> {
        let (Some(file), true) = (self.files.get(tensor.file), rows.end <= tensor.rows()) else {
            return Err(GgufError::Tensor {
                name: tensor.name.clone(),
                reason: format!("it has no rows {rows:?}"),
            });
        };
        let row_bytes = tensor.row_bytes() as u64;
        for first in rows.clone().step_by(at_once.max(1)) {
            let last = rows.end.min(first.saturating_add(at_once.max(1)));
            let start = tensor.start + first as u64 * row_bytes;
            let len = (last - first) as u64 * row_bytes;
            let bytes = file.bytes.as_slice_bytes(start, len);
            read(first..last, bytes.map_err(mapping(&file.path))?);
            file.release();
        }
        Ok(())
    }
}

/// Maps one file and parses its header.
fn map(path: &Path) -> Result<(Header, MappedFile), GgufError> {
    let format = |reason: String| GgufError::Format {
        path: path.to_owned(),
        reason,
    };
    // `read::open` rejects anything but regular files.
    let opened = read::open(path).and_then(|opened| opened.metadata());
    let size = opened.map_err(io(path))?.len();
    if size == 0 {
        return Err(format("it is empty".to_owned()));
    }
    let bytes = MemoryMappedFile::open_ro(path).map_err(mapping(path))?;
    let all = bytes.as_slice_bytes(0, size).map_err(mapping(path))?;
    let header = read_header(all).map_err(|reason| match FileKind::of(all) {
        Some(kind) if !MAGIC.starts_with(&all[..all.len().min(MAGIC.len())]) => {
            format(format!("it is {kind}"))
        }
        _ => format(reason),
    })?;
    let mapped = MappedFile {
        path: path.to_owned(),
        bytes,
        size,
    };
    mapped.release();
    Ok((header, mapped))
}

/// The name before `-00001-of-0000N.gguf`.
fn split_base(path: &Path, count: u64) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let end = split_name("", 0, count);
    let at = name.len().checked_sub(end.len())?;
    let is_split = name.is_char_boundary(at) && name[at..].eq_ignore_ascii_case(&end);
    is_split.then(|| name[..at].to_owned())
}

fn split_name(base: &str, index: u64, count: u64) -> String {
    let number = index + 1;
    format!("{base}-{number:0SPLIT_DIGITS$}-of-{count:0SPLIT_DIGITS$}.gguf")
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> GgufError + '_ {
    move |source| GgufError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Converts an error of the mapping library, which includes the operating system's error as text.
fn mapping<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> GgufError + '_ {
    move |error| io(path)(std::io::Error::other(error.to_string()))
}
