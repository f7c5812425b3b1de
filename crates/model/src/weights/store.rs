//! The tensors of one safetensors file, or of the shards that an index names, mapped into memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use emberlm_system::read;
use mmap_io::{MemoryMappedFile, MmapAdvice};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use super::element::Element;
use super::unique_keys;
use crate::error::WeightsError;

/// Bytes of a file that are held in memory at once while they are read.
const WINDOW: usize = 8 << 20;

/// Tensors by name. A file's pages are given back as soon as they have been read.
#[derive(Debug)]
pub struct TensorStore {
    files: Vec<Mapped>,
    tensors: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Mapped {
    path: PathBuf,
    bytes: MemoryMappedFile,
}

/// A tensor's place.
#[derive(Clone, Debug)]
struct Entry {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    start: u64,
    bytes: u64,
}

/// An index of shards, as `transformers` writes it.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl TensorStore {
    /// The tensors of one file.
    ///
    /// # Errors
    /// It cannot be read, or is not a whole safetensors file.
    pub fn open(file: &Path) -> Result<Self, WeightsError> {
        let mut store = Self {
            files: Vec::new(),
            tensors: BTreeMap::new(),
        };
        store.add(file)?;
        Ok(store)
    }

    /// The tensors of all the shards that an index (`model.safetensors.index.json`) names, which lie beside it.
    ///
    /// # Errors
    /// The index or a shard cannot be read or is damaged; a tensor is not in the shard that the index says, or is in
    /// two.
    pub fn open_index(index: &Path) -> Result<Self, WeightsError> {
        let text = read::read_text(index, read::DESCRIPTION_LIMIT).map_err(io(index))?;
        let wrong = |reason: String| WeightsError::Index {
            path: index.to_owned(),
            reason,
        };
        unique_keys::check(text.as_bytes()).map_err(|e| wrong(e.to_string()))?;
        let parsed: Index = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        let shards: BTreeSet<&String> = parsed.weight_map.values().collect();
        if shards.is_empty() {
            return Err(wrong("it names no tensor".to_owned()));
        }
        let mut store = Self {
            files: Vec::new(),
            tensors: BTreeMap::new(),
        };
        let folder = index.parent().unwrap_or(Path::new(""));
        for shard in shards {
            let plain = Path::new(shard)
                .file_name()
                .is_some_and(|name| name == shard.as_str());
            if !plain {
                return Err(wrong(format!(
                    "`{shard}` is not the name of a file beside it"
                )));
            }
            let path = folder.join(shard);
            if !path.exists() {
                return Err(wrong(format!(
                    "it names the shard `{shard}`, which is not there"
                )));
            }
            store.add(&path)?;
        }
        for (name, shard) in &parsed.weight_map {
            let found = store
                .tensors
                .get(name)
                .map(|entry| &store.files[entry.file].path);
            if found.and_then(|path| path.file_name()) != Some(shard.as_ref()) {
                return Err(wrong(format!("tensor `{name}` is not in `{shard}`")));
            }
        }
        Ok(store)
    }

    fn add(&mut self, file: &Path) -> Result<(), WeightsError> {
        let format = |reason: String| WeightsError::Format {
            path: file.to_owned(),
            reason,
        };
        // Only a regular file is mapped.
        let opened = read::open(file).and_then(|opened| opened.metadata());
        let size = opened.map_err(io(file))?.len();
        if size == 0 {
            return Err(format("it is empty".to_owned()));
        }
        let bytes = MemoryMappedFile::open_ro(file).map_err(mapping(file))?;
        let all = bytes.as_slice_bytes(0, size).map_err(mapping(file))?;
        let (header, metadata) =
            SafeTensors::read_metadata(all).map_err(|error| format(error.to_string()))?;
        let json = all.get(8..8 + header).unwrap_or_default();
        unique_keys::check(json).map_err(|error| format(format!("its header: {error}")))?;
        let data = 8 + header as u64;
        let file_number = self.files.len();
        for (name, info) in metadata.tensors() {
            let (start, end) = info.data_offsets;
            let entry = Entry {
                file: file_number,
                dtype: info.dtype,
                shape: info.shape.clone(),
                start: data + start as u64,
                bytes: (end - start) as u64,
            };
            if self.tensors.insert(name.clone(), entry).is_some() {
                return Err(WeightsError::Index {
                    path: file.to_owned(),
                    reason: format!("tensor `{name}` is in another shard too"),
                });
            }
        }
        self.files.push(Mapped {
            path: file.to_owned(),
            bytes,
        });
        Ok(())
    }

    /// Only the tensors whose names begin with `prefix`, without it.
    pub fn below(mut self, prefix: &str) -> Self {
        let tensors = std::mem::take(&mut self.tensors).into_iter();
        self.tensors = tensors
            .filter_map(|(name, entry)| Some((name.strip_prefix(prefix)?.to_owned(), entry)))
            .collect();
        self
    }

    /// The tensors' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The widest type among the tensors whose names are chosen, of those that weights can have.
    pub fn element(&self, chosen: impl Fn(&str) -> bool) -> Option<Element> {
        let entries = self.tensors.iter().filter(|(name, _)| chosen(name));
        entries
            .filter_map(|(_, entry)| Element::of(entry.dtype))
            .max()
    }

    /// The bytes of all tensors.
    pub fn total_bytes(&self) -> u64 {
        self.tensors.values().map(|entry| entry.bytes).sum()
    }

    /// A tensor's shape.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|entry| entry.shape.as_slice())
    }

    /// Reads rows of a tensor of `shape`, `row` elements each that lie beside each other, in runs of them: `read(element, rows,
    /// bytes)`.
    pub(super) fn read(
        &self,
        name: &str,
        shape: &[usize],
        row: usize,
        rows: std::ops::Range<usize>,
        mut read: impl FnMut(Element, std::ops::Range<usize>, &[u8]),
    ) -> Result<(), WeightsError> {
        let entry = self.find(name)?;
        if entry.shape != shape {
            return Err(WeightsError::Shape {
                name: name.to_owned(),
                found: entry.shape.clone(),
                expected: shape.to_vec(),
            });
        }
        let element = Element::of(entry.dtype).ok_or_else(|| WeightsError::Type {
            name: name.to_owned(),
            found: format!("{:?}", entry.dtype),
        })?;
        let file = &self.files[entry.file];
        let row_bytes = row * element.size();
        let at_once = (WINDOW / row_bytes.max(1)).max(1);
        for first in rows.clone().step_by(at_once) {
            let last = rows.end.min(first + at_once);
            let start = entry.start + (first * row_bytes) as u64;
            let len = ((last - first) * row_bytes) as u64;
            let bytes = file
                .bytes
                .as_slice_bytes(start, len)
                .map_err(mapping(&file.path))?;
            read(element, first..last, bytes);
            // Only a hint: a system that ignores it holds more of the file than it needs to.
            let _ = file.bytes.advise(start, len, MmapAdvice::DontNeed);
        }
        Ok(())
    }

    /// Whether two tensors are the same bytes in the same shape.
    pub(super) fn equal(&self, one: &str, other: &str) -> Result<bool, WeightsError> {
        let (one, other) = (self.find(one)?, self.find(other)?);
        let bytes = |entry: &Entry| {
            let file = &self.files[entry.file];
            let bytes = file.bytes.as_slice_bytes(entry.start, entry.bytes);
            bytes.map_err(mapping(&file.path))
        };
        Ok(one.dtype == other.dtype && one.shape == other.shape && bytes(one)? == bytes(other)?)
    }

    fn find(&self, name: &str) -> Result<&Entry, WeightsError> {
        self.tensors.get(name).ok_or_else(|| WeightsError::Missing {
            name: name.to_owned(),
        })
    }
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> WeightsError + '_ {
    move |source| WeightsError::Io {
        path: path.to_owned(),
        source,
    }
}

/// An error of the library that maps files, which has the system's as text.
fn mapping<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> WeightsError + '_ {
    move |error| io(path)(std::io::Error::other(error.to_string()))
}
