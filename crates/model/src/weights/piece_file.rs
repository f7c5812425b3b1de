//! Safetensors files that are written piece by piece, in any order and by any number of processes.
//!
//! The names and shapes of all tensors determine the header and with it the place of every element, so a process that
//! holds some elements can write them into a file that another process has created.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use crate::error::WeightsError;

/// The bytes of an element.
const ELEMENT: usize = size_of::<f32>();

/// The header of a safetensors file of f32 tensors, and the places of its tensors.
#[derive(Clone, Debug)]
pub struct FileLayout {
    /// The header with its length, as it is in the file.
    header: Vec<u8>,
    /// The first byte of each tensor.
    starts: Vec<u64>,
    length: u64,
}

impl FileLayout {
    /// The layout of the file that [`super::save_own`] writes of tensors with these names and shapes, which are ordered by
    /// name.
    ///
    /// # Errors
    /// The sizes overflow.
    pub fn new(
        tensors: &[(String, Vec<usize>)],
        metadata: HashMap<String, String>,
    ) -> Result<Self, io::Error> {
        let mut end = 0_usize;
        let mut infos = Vec::with_capacity(tensors.len());
        for (name, shape) in tensors {
            let sizes = shape.iter().chain([&ELEMENT]);
            let bytes = sizes.copied().try_fold(1, usize::checked_mul);
            let begin = end;
            end = bytes
                .and_then(|bytes| begin.checked_add(bytes))
                .ok_or_else(|| io::Error::other("the tensors are too large for a file"))?;
            let info = TensorInfo {
                dtype: Dtype::F32,
                shape: shape.clone(),
                data_offsets: (begin, end),
            };
            infos.push((name.clone(), info));
        }
        let begins: Vec<u64> = infos
            .iter()
            .map(|(_, info)| info.data_offsets.0 as u64)
            .collect();
        let described = Metadata::new(Some(metadata), infos).map_err(io::Error::other)?;
        let mut json = serde_json::to_vec(&described)?;
        json.resize(json.len().next_multiple_of(size_of::<u64>()), b' ');
        let header = [&(json.len() as u64).to_le_bytes()[..], &json].concat();
        let data = header.len() as u64;
        Ok(Self {
            starts: begins.into_iter().map(|begin| data + begin).collect(),
            length: data + end as u64,
            header,
        })
    }

    /// The bytes of elements of a tensor, given by its number in the list of [`FileLayout::new`]; `None` if there is no
    /// such tensor.
    pub fn place(&self, tensor: usize, elements: &Range<usize>) -> Option<Range<u64>> {
        let start = self.starts.get(tensor)?;
        let byte = |element: usize| start + (element * ELEMENT) as u64;
        Some(byte(elements.start)..byte(elements.end))
    }
}

/// A file that is written piece by piece. It is open for writing only: on a network file system, a process that had also read
/// a page of the file could write back bytes of it that others have replaced.
#[derive(Debug)]
pub struct PieceFile {
    path: PathBuf,
    file: File,
}

impl PieceFile {
    /// Creates the file, with its header and its full length. The elements of tensors are zeros.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, layout: &FileLayout) -> Result<Self, WeightsError> {
        let file = File::create(path).map_err(io_error(path))?;
        file.set_len(layout.length).map_err(io_error(path))?;
        let mut created = Self {
            path: path.to_owned(),
            file,
        };
        created.write(0, &layout.header)?;
        Ok(created)
    }

    /// Opens a file that [`PieceFile::create`] has created.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let file = File::options().write(true).open(path);
        Ok(Self {
            path: path.to_owned(),
            file: file.map_err(io_error(path))?,
        })
    }

    /// Writes bytes at a position.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, position: u64, bytes: &[u8]) -> Result<(), WeightsError> {
        let sought = self.file.seek(SeekFrom::Start(position));
        sought
            .and_then(|_| self.file.write_all(bytes))
            .map_err(io_error(&self.path))
    }

    /// Waits until everything that was written is on the disk.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn sync(&self) -> Result<(), WeightsError> {
        self.file.sync_all().map_err(io_error(&self.path))
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> WeightsError {
    let path = path.to_owned();
    move |source| WeightsError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::weights::{HostTensor, save_own};

    #[test]
    fn pieces_in_any_order_make_the_file_that_is_written_at_once() {
        let values = |count: u16| (0..count).map(|x| f32::from(x) - 3.5).collect();
        let tensor = |shape: &[usize], count| HostTensor {
            shape: shape.to_vec(),
            values: values(count),
        };
        let tensors = [
            ("a.moment1".to_owned(), tensor(&[2, 3], 6)),
            ("b.é\"".to_owned(), tensor(&[], 1)),
            ("c".to_owned(), tensor(&[0, 4], 0)),
            ("d".to_owned(), tensor(&[5], 5)),
        ];
        let metadata = HashMap::from([("format".to_owned(), "test".to_owned())]);
        let folder = tempfile::tempdir().unwrap();
        let [whole, pieces] = ["whole", "pieces"].map(|name| folder.path().join(name));
        save_own(&tensors, metadata.clone(), &whole).unwrap();
        let shapes = tensors
            .clone()
            .map(|(name, tensor)| (name, tensor.shape.clone()));
        let layout = FileLayout::new(&shapes, metadata).unwrap();
        drop(PieceFile::create(&pieces, &layout).unwrap());
        for number in (0..tensors.len()).rev() {
            let values = tensors[number].1.values.iter();
            for (element, value) in values.enumerate().rev() {
                let mut file = PieceFile::open(&pieces).unwrap();
                let place = layout.place(number, &(element..element + 1)).unwrap();
                assert_eq!(place.end - place.start, 4);
                file.write(place.start, &value.to_le_bytes()).unwrap();
                file.sync().unwrap();
            }
        }
        assert_eq!(fs::read(&whole).unwrap(), fs::read(&pieces).unwrap());
        assert_eq!(layout.place(tensors.len(), &(0..1)), None);
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let huge = [("a".to_owned(), vec![usize::MAX / 8, 4])];
        assert!(FileLayout::new(&huge, HashMap::new()).is_err());
    }
}
