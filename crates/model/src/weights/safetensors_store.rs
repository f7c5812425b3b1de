//! The tensors of one safetensors file, or of the shards that an index names, memory-mapped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use emberlm_system::read;
use mmap_io::{MemoryMappedFile, MmapAdvice};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use super::element::Element;
use super::store::{TensorStore, rows_of};
use super::unique_keys;
use crate::error::WeightsError;

/// Bytes of f32 that are held in memory at once while they are read, beside as many of the file or fewer.
const WINDOW: usize = 4 << 20;

/// The tensors of safetensors files. A file's pages are given back as soon as they have been read.
#[derive(Debug)]
pub struct SafetensorsStore {
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

impl SafetensorsStore {
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

    /// Calls `read` with the bytes of `at_once` rows at a time, and gives their pages back.
    fn windows(
        &self,
        entry: &Entry,
        rows: Range<usize>,
        at_once: usize,
        read: &mut dyn FnMut(Range<usize>, &[u8]),
    ) -> Result<(), WeightsError> {
        let [all, row] = rows_of(&entry.shape);
        if all == 0 || row == 0 {
            return Ok(());
        }
        let file = &self.files[entry.file];
        let row_bytes = entry.bytes / all as u64;
        for first in rows.clone().step_by(at_once) {
            let last = rows.end.min(first + at_once);
            let start = entry.start + first as u64 * row_bytes;
            let len = (last - first) as u64 * row_bytes;
            let bytes = file
                .bytes
                .as_slice_bytes(start, len)
                .map_err(mapping(&file.path))?;
            read(first..last, bytes);
            // Only a hint: a system that ignores it holds more of the file than it needs to.
            let _ = file.bytes.advise(start, len, MmapAdvice::DontNeed);
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<&Entry, WeightsError> {
        self.tensors.get(name).ok_or_else(|| WeightsError::Missing {
            name: name.to_owned(),
        })
    }
}

impl TensorStore for SafetensorsStore {
    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.tensors.keys().map(String::as_str))
    }

    fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|entry| entry.shape.as_slice())
    }

    fn element(&self, name: &str) -> Option<Element> {
        Element::of(self.tensors.get(name)?.dtype)
    }

    fn total_bytes(&self) -> u64 {
        self.tensors.values().map(|entry| entry.bytes).sum()
    }

    fn read_rows(
        &self,
        name: &str,
        rows: Range<usize>,
        read: &mut dyn FnMut(Range<usize>, &[f32]),
    ) -> Result<(), WeightsError> {
        let entry = self.find(name)?;
        let element = Element::of(entry.dtype).ok_or_else(|| WeightsError::Type {
            name: name.to_owned(),
            found: format!("{:?}", entry.dtype),
            rule: "only F32, F16 and BF16 are read".to_owned(),
        })?;
        let [_, row] = rows_of(&entry.shape);
        let at_once = at_once(row * size_of::<f32>());
        let mut values = Vec::with_capacity(row * at_once.min(rows.len()));
        self.windows(entry, rows, at_once, &mut |rows, bytes| {
            values.clear();
            element.decode(bytes, &mut values);
            read(rows, &values);
        })
    }

    fn read_bytes(
        &self,
        name: &str,
        dtype: Dtype,
        rows: Range<usize>,
        read: &mut dyn FnMut(Range<usize>, &[u8]),
    ) -> Result<(), WeightsError> {
        let entry = self.find(name)?;
        if entry.dtype != dtype {
            return Err(WeightsError::Type {
                name: name.to_owned(),
                found: format!("{:?}", entry.dtype),
                rule: format!("it must be {dtype:?}"),
            });
        }
        let [_, row] = rows_of(&entry.shape);
        self.windows(entry, rows, at_once(row * dtype.bitsize() / 8), read)
    }
}

/// Rows of so many bytes in a window.
fn at_once(row_bytes: usize) -> usize {
    (WINDOW / row_bytes.max(1)).max(1)
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
