//! Writing packed weights, as [`super::quantized`] reads them.

use std::borrow::Cow;

use burn::tensor::backend::Backend;
use emberlm_kernels::PackedWeight;
use emberlm_kernels::cpu::packed::PackedMatrix;
use safetensors::{Dtype, View};

use super::map::{Source, Stored};
use super::quantized::{IN_WORD, OFFSET, QuantizedLayout, scales_name, shape_name, values_name};

/// A tensor of a packed matrix as a published checkpoint has it, made of the matrix when it is written and not before.
#[derive(Clone, Debug)]
pub(crate) struct PublishedPacked<B: Backend> {
    name: String,
    content: Content,
    shape: Vec<usize>,
    rows: usize,
    /// The matrices in it; one, unless several share the tensor. The rows of each are in parts, one after the other.
    matrices: Vec<(Stored, Vec<PackedWeight<B>>)>,
    columns: usize,
}

/// The numbers of a packed matrix that a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// The int8 values, in words.
    Words,
    Scales,
    Shape,
}

impl<B: Backend> PublishedPacked<B> {
    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its dimensions in the file.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.shape
    }

    /// The tensors of a matrix `[out, in]` whose rows are in `parts`.
    pub(crate) fn of(source: &Source, parts: &[PackedWeight<B>]) -> Vec<Self> {
        let outputs = parts.iter().map(|part| part.shape()[0]).sum();
        let columns = parts.first().map_or(0, |part| part.shape()[1]);
        let mut made = Vec::new();
        for stored in source.stored(&[outputs]) {
            let (name, rows) = (&stored.name, stored.len());
            for (content, name, shape) in [
                (
                    Content::Words,
                    values_name(QuantizedLayout::Words, name),
                    vec![rows, columns.div_ceil(IN_WORD)],
                ),
                (Content::Scales, scales_name(name), vec![rows, 1]),
                (Content::Shape, shape_name(name), vec![2]),
            ] {
                made.push(Self {
                    name,
                    content,
                    shape,
                    rows,
                    matrices: vec![(stored.clone(), parts.to_vec())],
                    columns,
                });
            }
        }
        made
    }

    /// Adds the matrices of another tensor of the same name.
    pub(crate) fn add(&mut self, other: Self) {
        self.matrices.extend(other.matrices);
    }

    /// Calls `write` with the row of the file, the bytes and the scale of each of its rows.
    fn rows(&self, mut write: impl FnMut(usize, &[i8], f32)) {
        for (stored, parts) in &self.matrices {
            let mut first = 0;
            for part in parts {
                let matrix: PackedMatrix = part.to_host();
                let rows = first..first + matrix.scales.len();
                stored.places(0..stored.len(), |own, row| {
                    if rows.contains(&own) {
                        let at = own - rows.start;
                        let bytes = &matrix.bytes[at * self.columns..(at + 1) * self.columns];
                        write(row, bytes, matrix.scales[at]);
                    }
                });
                first = rows.end;
            }
        }
    }
}

impl<B: Backend> View for &PublishedPacked<B> {
    fn dtype(&self) -> Dtype {
        match self.content {
            Content::Words => Dtype::I32,
            Content::Scales => Dtype::F32,
            Content::Shape => Dtype::I64,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut data = vec![0u8; self.data_len()];
        match self.content {
            Content::Words => {
                let row_bytes = self.columns.div_ceil(IN_WORD) * IN_WORD;
                self.rows(|row, values, _| {
                    let to = &mut data[row * row_bytes..][..values.len()];
                    for (to, value) in to.iter_mut().zip(values) {
                        *to = value.cast_unsigned() ^ OFFSET;
                    }
                });
            }
            Content::Scales => self.rows(|row, _, scale| {
                data[row * 4..row * 4 + 4].copy_from_slice(&scale.to_le_bytes());
            }),
            Content::Shape => {
                for (to, size) in data.chunks_mut(8).zip([self.rows, self.columns]) {
                    to.copy_from_slice(&(size as i64).to_le_bytes());
                }
            }
        }
        Cow::Owned(data)
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype().bitsize() / 8
    }
}
