//! Divided vectors in the memory of the host.

use std::ops::Range;

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::read_sync;

use super::divided::{Divided, Segment};

/// Vectors whose elements are read. Each is copied to the host when it is reached, and freed after its last element. A
/// backend whose memory is that of the host hands over its memory instead.
pub(super) struct HostVectors<B: BurnBackend>(Vec<HostVector<B>>);

struct HostVector<B: BurnBackend> {
    memory: Memory<B>,
    /// The number of elements that were not freed.
    left: usize,
}

enum Memory<B: BurnBackend> {
    OnDevice(FloatTensor<B>),
    OnHost(Vec<f32>),
}

impl<B: BurnBackend> HostVectors<B> {
    pub(super) fn new(vectors: Vec<Divided<FloatTensor<B>>>) -> Self {
        let vectors = vectors.into_iter().map(|vector| HostVector {
            left: length(&vector),
            memory: Memory::OnDevice(vector.value),
        });
        Self(vectors.collect())
    }

    /// The elements of a segment.
    pub(super) fn elements(&mut self, segment: &Segment) -> Result<&[f32], String> {
        let memory = &mut self.0[segment.vector].memory;
        if let Memory::OnDevice(_) = memory {
            let vector = std::mem::replace(memory, Memory::OnHost(Vec::new()));
            if let Memory::OnDevice(vector) = vector {
                *memory = Memory::OnHost(on_host::<B>(vector)?);
            }
        }
        let found = match memory {
            Memory::OnHost(elements) => elements.get(segment.elements.clone()),
            Memory::OnDevice(_) => None,
        };
        found.ok_or_else(|| "a vector is shorter than its pieces".to_owned())
    }

    /// Frees a segment, which is not read again.
    pub(super) fn free(&mut self, segment: &Segment) {
        let vector = &mut self.0[segment.vector];
        vector.left -= segment.elements.len().min(vector.left);
        if vector.left == 0 {
            vector.memory = Memory::OnHost(Vec::new());
        }
    }
}

/// A vector that is complete when the pieces of all ranks are in their places.
pub(super) struct PlacedVector {
    pub(super) elements: Vec<f32>,
}

impl PlacedVector {
    /// A vector with the piece of the rank `own`, which is present if the rank has one.
    pub(super) fn new<B: BurnBackend>(
        vector: Divided<Option<FloatTensor<B>>>,
        own: usize,
    ) -> Result<Self, String> {
        let length = length(&vector);
        let Divided { value, pieces } = vector;
        let piece = pieces.into_iter().find(|piece| piece.owner == own);
        let unexpected = || "its pieces do not have the expected lengths".to_owned();
        match (value, piece) {
            (None, None) => Ok(Self {
                elements: Vec::with_capacity(length),
            }),
            (Some(value), Some(piece)) => {
                let own = on_host::<B>(value)?;
                if own.len() != piece.elements.len() {
                    return Err(unexpected());
                }
                if own.len() == length {
                    return Ok(Self { elements: own });
                }
                let mut vector = Self {
                    elements: Vec::with_capacity(length),
                };
                vector.place(&piece.elements, &own);
                Ok(vector)
            }
            _ => Err(unexpected()),
        }
    }

    /// Puts the values of a piece into their place, in any order of pieces.
    pub(super) fn place(&mut self, elements: &Range<usize>, values: &[f32]) {
        if self.elements.len() < elements.start {
            self.elements.resize(elements.start, 0.0);
        }
        match self.elements.get_mut(elements.clone()) {
            Some(place) => place.copy_from_slice(values),
            None => self.elements.extend_from_slice(values),
        }
    }
}

fn length<T>(vector: &Divided<T>) -> usize {
    vector.pieces.last().map_or(0, |piece| piece.elements.end)
}

fn on_host<B: BurnBackend>(vector: FloatTensor<B>) -> Result<Vec<f32>, String> {
    let data = read_sync(B::float_into_data(vector)).map_err(|error| error.to_string())?;
    let host = data.convert::<f32>().into_vec::<f32>();
    host.map_err(|error| format!("{error:?}"))
}
