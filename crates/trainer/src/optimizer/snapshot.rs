//! The optimizer's state between two updates, and the file of it in a checkpoint.
//!
//! The file has whole tensors, ordered by name, and does not depend on the number of ranks. Each rank holds pieces of the
//! tensors and knows the places of all pieces:
//!
//! ```text
//! file      [ header | PATH.moment1                | PATH.moment2                | … ]
//! pieces             [ rank 0      | rank 1        ] [ rank 0      | rank 1      ]
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, Tensor, TensorMetadata, TensorPrimitive};
use emberlm_checkpoint::write::metadata;
use emberlm_kernels::Backend;
use emberlm_model::WeightsError;
use emberlm_model::weights::{FileLayout, PieceFile, part_of};

use super::Optimizer;
use super::state::StateKind;
use crate::peers::{Piece, Rank};

/// The most bytes of a snapshot that a process copies to the host at a time, or that all ranks together send.
pub(crate) const BLOCK: usize = 16 << 20;

/// The state of an optimizer between two updates. Tensors are handles, so training can continue while they are written.
#[derive(Clone)]
pub struct Snapshot<B: BurnBackend> {
    /// The number of updates made.
    pub updates: u64,
    /// The names and shapes of all tensors in the file, ordered by name.
    tensors: Vec<(String, Vec<usize>)>,
    /// The pieces of each rank: the number of the tensor, and elements of it.
    pieces: Vec<Vec<(usize, Range<usize>)>>,
    /// The index of this process's rank.
    own: usize,
    /// The pieces of this process.
    held: Vec<Tensor<B, 1>>,
}

/// One of the tensors of a parameter's state, of all ranks.
pub(super) struct StateTensor<'a, B: BurnBackend> {
    /// The parameter's path.
    pub(super) path: &'a str,
    pub(super) kind: StateKind,
    pub(super) shape: Vec<usize>,
    pub(super) pieces: Vec<Piece>,
    /// This process's piece, if it has one.
    pub(super) held: Option<FloatTensor<B>>,
}

impl<B: Backend> Optimizer<B> {
    /// The current state of a single process, as tensor handles rather than copies, so that another thread can write it.
    pub fn snapshot(&self) -> Snapshot<B> {
        let tensors = self.moments.iter().flat_map(|(path, moments)| {
            let tensor = move |kind: StateKind| {
                let held = moments.get(kind)?.clone();
                let shape = held.shape();
                let elements = 0..shape.num_elements();
                Some(StateTensor {
                    path,
                    kind,
                    shape: shape.to_vec(),
                    pieces: vec![Piece { owner: 0, elements }],
                    held: Some(held),
                })
            };
            StateKind::ALL.into_iter().filter_map(tensor)
        });
        Snapshot::new(self.updates, Rank::SINGLE, tensors.collect())
    }
}

impl<B: BurnBackend> Snapshot<B> {
    /// A snapshot of `tensors`. The parts of a split parameter are joined.
    pub(super) fn new(updates: u64, rank: Rank, tensors: Vec<StateTensor<'_, B>>) -> Self {
        let named = tensors.into_iter().map(|tensor| {
            let (whole, part) = part_of(tensor.path).unwrap_or((tensor.path, 0));
            (format!("{whole}{}", tensor.kind.suffix()), part, tensor)
        });
        let mut named: Vec<_> = named.collect();
        named.sort_unstable_by(|(a, part, _), (b, other, _)| (a, part).cmp(&(b, other)));
        let mut snapshot = Self {
            updates,
            tensors: Vec::new(),
            pieces: vec![Vec::new(); rank.world_size()],
            own: rank.index(),
            held: Vec::new(),
        };
        for (name, part, tensor) in named {
            let before = snapshot.add_rows(name, part, tensor.shape);
            let number = snapshot.tensors.len() - 1;
            for Piece { owner, elements } in tensor.pieces {
                let elements = before + elements.start..before + elements.end;
                snapshot.pieces[owner].push((number, elements));
            }
            snapshot.held.extend(tensor.held.map(flat));
        }
        snapshot
    }

    /// Adds a tensor, or the rows of a further part to the last one. Returns the elements before the added ones.
    fn add_rows(&mut self, name: String, part: usize, shape: Vec<usize>) -> usize {
        match self.tensors.last_mut() {
            Some((last, rows)) if part > 0 && *last == name => {
                let before = rows.iter().product();
                rows[0] += shape[0];
                before
            }
            _ => {
                self.tensors.push((name, shape));
                0
            }
        }
    }

    /// Writes the file, if this process holds all pieces.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), WeightsError> {
        self.create_file(path)?;
        self.write_own_pieces(path)
    }

    /// Creates the file without its pieces.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn create_file(&self, path: &Path) -> Result<(), WeightsError> {
        PieceFile::create(path, &self.layout(path)?).map(drop)
    }

    /// Writes this process's pieces into the file, and waits until they are on the disk.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write_own_pieces(&self, path: &Path) -> Result<(), WeightsError> {
        let mut file = PieceFile::open(path)?;
        let mut places = self.places(path)?.swap_remove(self.own);
        let mut own = self.read();
        loop {
            let block = own.next_block(BLOCK);
            if block.is_empty() {
                return file.sync();
            }
            places.write(&mut file, &block)?;
        }
    }

    /// Reads the bytes of this process's pieces.
    pub(crate) fn read(&self) -> PieceReader<B> {
        PieceReader {
            left: self.held.clone().into(),
            read: 0,
        }
    }

    /// The places of each rank's pieces in the file.
    ///
    /// # Errors
    /// The sizes overflow.
    pub(crate) fn places(&self, path: &Path) -> Result<Vec<PiecePlaces>, WeightsError> {
        let layout = self.layout(path)?;
        let places = self.pieces.iter().map(|of_rank| {
            let places = of_rank
                .iter()
                .filter_map(|(tensor, elements)| layout.place(*tensor, elements));
            PiecePlaces(places.collect())
        });
        Ok(places.collect())
    }

    /// The bytes of the rank with the most.
    pub(crate) fn longest(&self) -> usize {
        let lengths = self.pieces.iter().map(|of_rank| bytes_of(of_rank));
        lengths.max().unwrap_or_default()
    }

    /// The bytes that this process holds.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        bytes_of(&self.pieces[self.own])
    }

    fn layout(&self, path: &Path) -> Result<FileLayout, WeightsError> {
        FileLayout::new(&self.tensors, metadata()).map_err(|source| WeightsError::Io {
            path: path.to_owned(),
            source,
        })
    }
}

fn flat<B: BurnBackend>(tensor: FloatTensor<B>) -> Tensor<B, 1> {
    let shape = Shape::new([tensor.shape().num_elements()]);
    Tensor::from_primitive(TensorPrimitive::Float(B::float_reshape(tensor, shape)))
}

fn bytes_of(pieces: &[(usize, Range<usize>)]) -> usize {
    let elements = pieces.iter().map(|(_, elements)| elements.len());
    size_of::<f32>() * elements.sum::<usize>()
}

/// Reads the bytes of a rank's pieces, one after another. A block of bounded length is copied to the host at a time.
pub(crate) struct PieceReader<B: BurnBackend> {
    left: VecDeque<Tensor<B, 1>>,
    /// The elements of the first piece that were read.
    read: usize,
}

impl<B: BurnBackend> PieceReader<B> {
    /// The next `count` bytes, a multiple of 4, or all that are left.
    pub(crate) fn next_block(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < count
            && let Some(piece) = self.left.front()
        {
            let [length] = piece.dims();
            let elements = ((count - bytes.len()) / size_of::<f32>()).min(length - self.read);
            let block = match elements == length {
                true => piece.clone(),
                false => piece.clone().narrow(0, self.read, elements),
            };
            let data = block.into_data();
            match data.as_slice::<f32>() {
                Ok(values) => add_bytes(&mut bytes, values),
                Err(_) => add_bytes(&mut bytes, &data.iter::<f32>().collect::<Vec<_>>()),
            }
            self.read += elements;
            if self.read == length {
                self.left.pop_front();
                self.read = 0;
            }
        }
        bytes
    }
}

fn add_bytes(bytes: &mut Vec<u8>, values: &[f32]) {
    let before = bytes.len();
    bytes.resize(before + size_of_val(values), 0);
    let (added, _) = bytes[before..].as_chunks_mut();
    for (to, value) in added.iter_mut().zip(values) {
        *to = value.to_le_bytes();
    }
}

/// The places in the file of a rank's next bytes.
pub(crate) struct PiecePlaces(VecDeque<Range<u64>>);

impl PiecePlaces {
    /// Writes the rank's next bytes to their places.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(
        &mut self,
        file: &mut PieceFile,
        mut bytes: &[u8],
    ) -> Result<(), WeightsError> {
        while let (false, Some(place)) = (bytes.is_empty(), self.0.front_mut()) {
            let count = bytes.len().min((place.end - place.start) as usize);
            let (own, rest) = bytes.split_at(count);
            file.write(place.start, own)?;
            place.start += count as u64;
            if place.is_empty() {
                self.0.pop_front();
            }
            bytes = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use burn_flex::Flex;

    use super::*;

    /// Two parts of a table with rows 0 to 2 and 3 to 4, and a gain, of which `rank` of two holds its pieces.
    fn snapshot(rank: Rank) -> Snapshot<Flex> {
        let pieces = |cut: usize, length: usize| match rank.world_size() {
            1 => vec![Piece {
                owner: 0,
                elements: 0..length,
            }],
            // The rank that holds the first elements of a tensor is not always the same.
            _ => {
                let (first, second) = (length % 2, 1 - length % 2);
                [(first, 0..cut), (second, cut..length)]
                    .map(|(owner, elements)| Piece { owner, elements })
                    .to_vec()
            }
        };
        let tensor = |path, first: u8, shape: &[usize], cut| {
            let length: usize = shape.iter().product();
            let pieces = pieces(cut, length);
            let held = pieces.iter().find(|piece| piece.owner == rank.index());
            let held = held.map(|piece| {
                let elements = piece.elements.clone();
                let values: Vec<f32> = elements.map(|at| f32::from(first) + at as f32).collect();
                let held = Tensor::<Flex, 1>::from_floats(&values[..], &Default::default());
                held.into_primitive().tensor()
            });
            StateTensor {
                path,
                kind: StateKind::Momentum,
                shape: shape.to_vec(),
                pieces,
                held,
            }
        };
        // Not in the order of the file.
        let tensors = vec![
            tensor("tokens.parts.1", 6, &[2, 2], 3),
            tensor("gain", 10, &[3], 1),
            tensor("tokens.parts.0", 0, &[3, 2], 1),
        ];
        Snapshot::new(7, rank, tensors)
    }

    #[test]
    fn pieces_of_split_parameters_make_the_file_of_one_process() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        snapshot(Rank::SINGLE).save(&one).unwrap();
        let ranks = [0, 1].map(|index| snapshot(Rank::new(index, 2).unwrap()));
        ranks[0].create_file(&two).unwrap();
        for rank in ranks.iter().rev() {
            rank.write_own_pieces(&two).unwrap();
        }
        let expected = fs::read(&one).unwrap();
        assert_eq!(fs::read(&two).unwrap(), expected);
        let tensors = emberlm_model::weights::read_tensors(&one).unwrap();
        let tensors: Vec<_> = tensors.map(Result::unwrap).collect();
        let counted = |numbers: Range<u8>| numbers.map(f32::from).collect::<Vec<_>>();
        assert_eq!(tensors[0].0, "gain.momentum");
        assert_eq!(tensors[0].1.values, counted(10..13));
        assert_eq!(tensors[1].0, "tokens.momentum");
        assert_eq!(tensors[1].1.shape, [5, 2]);
        assert_eq!(tensors[1].1.values, counted(0..10));
    }

    #[test]
    fn blocks_of_any_length_have_the_bytes_of_all_pieces() {
        let whole = snapshot(Rank::SINGLE).read().next_block(BLOCK);
        assert_eq!(whole.len(), 4 * 13);
        for length in [4, 12, 20] {
            let mut reader = snapshot(Rank::SINGLE).read();
            let blocks = std::iter::from_fn(|| {
                let block = reader.next_block(length);
                assert!(block.len() <= length);
                (!block.is_empty()).then_some(block)
            });
            assert_eq!(blocks.collect::<Vec<_>>().concat(), whole);
        }
    }
}
