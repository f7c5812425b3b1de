//! Divided vectors in the memory of the host.

use std::ops::Range;

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, TensorData, read_sync};

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
    OnHost(TensorData),
    Freed,
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
        *memory = match std::mem::replace(memory, Memory::Freed) {
            Memory::OnDevice(vector) => Memory::OnHost(on_host::<B>(vector)?),
            other => other,
        };
        match memory {
            Memory::OnHost(data) => elements(data)?.get(segment.elements.clone()),
            Memory::OnDevice(_) | Memory::Freed => None,
        }
        .ok_or_else(|| "a vector is shorter than its pieces".to_owned())
    }

    /// Frees a segment, which is not read again.
    pub(super) fn free(&mut self, segment: &Segment) {
        let vector = &mut self.0[segment.vector];
        vector.left -= segment.elements.len().min(vector.left);
        if vector.left == 0 {
            vector.memory = Memory::Freed;
        }
    }
}

/// A vector that is complete when the pieces of all ranks are in their places.
pub(super) enum PlacedVector {
    /// It belongs to this rank.
    Own(TensorData),
    /// It has pieces of others.
    Placed(Vec<f32>),
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
        let mut vector = Self::Placed(Vec::new());
        match (value, piece) {
            (None, None) => {}
            (Some(value), Some(piece)) => {
                let data = on_host::<B>(value)?;
                let own = elements(&data)?;
                if own.len() != piece.elements.len() {
                    return Err(unexpected());
                }
                if own.len() == length {
                    return Ok(Self::Own(data));
                }
                vector.reserve(length);
                vector.place(&piece.elements, own);
            }
            _ => return Err(unexpected()),
        }
        vector.reserve(length);
        Ok(vector)
    }

    fn reserve(&mut self, length: usize) {
        if let Self::Placed(values) = self {
            values.reserve_exact(length.saturating_sub(values.len()));
        }
    }

    /// The elements of a piece that is in its place.
    pub(super) fn elements(&self, piece: Range<usize>) -> Result<&[f32], String> {
        let all = match self {
            Self::Own(data) => elements(data)?,
            Self::Placed(values) => values,
        };
        all.get(piece)
            .ok_or_else(|| "a piece is missing".to_owned())
    }

    /// Puts the values of a piece of another rank into their place, in any order of pieces.
    pub(super) fn place(&mut self, elements: &Range<usize>, values: &[f32]) {
        let Self::Placed(all) = self else {
            return;
        };
        if all.len() < elements.start {
            all.resize(elements.start, 0.0);
        }
        match all.get_mut(elements.clone()) {
            Some(place) => place.copy_from_slice(values),
            None => all.extend_from_slice(values),
        }
    }

    /// The whole vector.
    pub(super) fn into_tensor<B: BurnBackend>(self, device: &Device<B>) -> FloatTensor<B> {
        let data = match self {
            Self::Own(data) => data,
            Self::Placed(values) => {
                let length = values.len();
                TensorData::new(values, [length])
            }
        };
        B::float_from_data(data, device)
    }
}

fn length<T>(vector: &Divided<T>) -> usize {
    vector.pieces.last().map_or(0, |piece| piece.elements.end)
}

fn on_host<B: BurnBackend>(vector: FloatTensor<B>) -> Result<TensorData, String> {
    let data = read_sync(B::float_into_data(vector)).map_err(|error| error.to_string())?;
    Ok(data.convert::<f32>())
}

/// The elements of f32. A conversion to a vector would copy memory that was aligned for a backend.
fn elements(data: &TensorData) -> Result<&[f32], String> {
    data.as_slice().map_err(|error| format!("{error:?}"))
}
