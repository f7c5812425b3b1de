//! Memory-mapped safetensors files: a single file, or the shards listed in an index.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use emberlm_kernels::PackedFormat;
use emberlm_system::file_kind::FileKind;
use emberlm_system::read;
use mmap_io::{MemoryMappedFile, MmapAdvice};
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde::Deserialize;

use super::element::Element;
use super::store::{TensorStore, rows_of};
use super::unique_keys;
use crate::error::WeightsError;

/// Maximum size in bytes of a decoded run of rows. The mapped pages of a run need at most as much memory again.
const RUN_BYTES: usize = 4 << 20;

/// The tensors of safetensors files. Pages are released as soon as they have been read.
#[derive(Debug)]
pub struct SafetensorsStore {
    files: Vec<MappedFile>,
    tensors: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct MappedFile {
    path: PathBuf,
    bytes: MemoryMappedFile,
}

/// Location, type and shape of a tensor.
#[derive(Clone, Debug)]
struct Entry {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    start: u64,
    bytes: u64,
}

/// An index of shards in the format of `transformers`.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The reason that a file is not readable: its kind, if that is another one.
fn not_readable(bytes: &[u8], error: &SafeTensorError) -> String {
    match FileKind::of(bytes) {
        None | Some(FileKind::Safetensors) => error.to_string(),
        Some(kind) => format!("it is {kind}"),
    }
}

impl SafetensorsStore {
    /// Opens one file.
    ///
    /// # Errors
    /// The file cannot be read, or it is not a complete safetensors file.
    pub fn open(file: &Path) -> Result<Self, WeightsError> {
        let mut store = Self {
            files: Vec::new(),
            tensors: BTreeMap::new(),
        };
        store.add(file)?;
        Ok(store)
    }

    /// Opens an index (`model.safetensors.index.json`) and all shards that it lists, which must be in the same
    /// directory.
    ///
    /// # Errors
    /// The index or a shard cannot be read or is damaged; a tensor is in two shards, or not in the shard that the index
    /// specifies.
    pub fn open_index(index: &Path) -> Result<Self, WeightsError> {
        let text = read::read_text(index, read::DESCRIPTION_LIMIT).map_err(io(index))?;
        let error = |reason: String| WeightsError::Index {
            path: index.to_owned(),
            reason,
        };
        unique_keys::check(text.as_bytes()).map_err(|e| error(e.to_string()))?;
        let parsed: Index = serde_json::from_str(&text).map_err(|e| error(e.to_string()))?;
        let shards: BTreeSet<&String> = parsed.weight_map.values().collect();
        if shards.is_empty() {
            return Err(error("it names no tensor".to_owned()));
        }
        let mut store = Self {
            files: Vec::new(),
            tensors: BTreeMap::new(),
        };
        let folder = index.parent().unwrap_or(Path::new(""));
        for shard in shards {
            let is_file_name = Path::new(shard)
                .file_name()
                .is_some_and(|name| name == shard.as_str());
            if !is_file_name {
                return Err(error(format!(
                    "`{shard}` is not the name of a file beside it"
                )));
            }
            let path = folder.join(shard);
            if !path.exists() {
                return Err(error(format!(
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
                return Err(error(format!("tensor `{name}` is not in `{shard}`")));
            }
        }
        Ok(store)
    }

    fn add(&mut self, file: &Path) -> Result<(), WeightsError> {
        let format = |reason: String| WeightsError::Format {
            path: file.to_owned(),
            reason,
        };
        // `read::open` rejects anything but regular files.
        let opened = read::open(file).and_then(|opened| opened.metadata());
        let size = opened.map_err(io(file))?.len();
        if size == 0 {
            return Err(format("it is empty".to_owned()));
        }
        let bytes = MemoryMappedFile::open_ro(file).map_err(mapping(file))?;
        let all = bytes.as_slice_bytes(0, size).map_err(mapping(file))?;
        let (header, metadata) =
            SafeTensors::read_metadata(all).map_err(|error| format(not_readable(all, &error)))?;
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
                    reason: format!("tensor `{name}` is also in another shard"),
                });
            }
        }
        self.files.push(MappedFile {
            path: file.to_owned(),
            bytes,
        });
        Ok(())
    }

    /// Keeps only the tensors whose names begin with `prefix`, and removes the prefix.
    pub fn below(self, prefix: &str) -> Self {
        self.renamed(|name| name.strip_prefix(prefix).map(str::to_owned))
    }

    /// Gives the tensors other names. Without a name, a tensor is left out.
    pub(crate) fn renamed(mut self, new: impl Fn(&str) -> Option<String>) -> Self {
        let tensors = std::mem::take(&mut self.tensors).into_iter();
        self.tensors = tensors
            .filter_map(|(name, entry)| Some((new(&name)?, entry)))
            .collect();
        self
    }

    /// Calls `read` with the bytes of up to `at_once` rows at a time, and releases their pages.
    fn read_runs(
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
            // A failed hint costs only memory.
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
        let at_once = rows_per_run(row * size_of::<f32>());
        let mut values = Vec::with_capacity(row * at_once.min(rows.len()));
        self.read_runs(entry, rows, at_once, &mut |rows, bytes| {
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
                rule: format!("must be {dtype:?}"),
            });
        }
        let [_, row] = rows_of(&entry.shape);
        let at_once = rows_per_run(row * dtype.bitsize() / 8);
        self.read_runs(entry, rows, at_once, read)
    }

    /// Matrices of 16 bits.
    fn packed_format(&self, name: &str) -> Option<PackedFormat> {
        let entry = self.tensors.get(name)?;
        match entry.shape.len() {
            2 => Element::of(entry.dtype)?.packed_format(),
            _ => None,
        }
    }

    fn read_packed_rows(
        &self,
        name: &str,
        rows: Range<usize>,
        read: &mut dyn FnMut(Range<usize>, &[u8]),
    ) -> Result<(), WeightsError> {
        let dtype = self.find(name)?.dtype;
        self.read_bytes(name, dtype, rows, read)
    }
}

/// Number of rows of `row_bytes` bytes that fit into a run, at least one.
fn rows_per_run(row_bytes: usize) -> usize {
    (RUN_BYTES / row_bytes.max(1)).max(1)
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> WeightsError + '_ {
    move |source| WeightsError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Converts an error of the mapping library, which includes the operating system's error as text.
fn mapping<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> WeightsError + '_ {
    move |error| io(path)(std::io::Error::other(error.to_string()))
}
