//! Writes packed weights in the format that [`super::quantized`] reads.

use std::borrow::Cow;

use burn::tensor::backend::Backend;
use emberlm_kernels::PackedWeight;
use emberlm_kernels::cpu::packed::split_int8;
use safetensors::{Dtype, View};

use super::map::{Source, Stored};
use super::quantized::{
    OFFSET, QuantizedLayout, VALUES_PER_WORD, scales_name, shape_name, values_name,
};

/// A tensor of an int8 matrix in a published checkpoint. Its bytes are computed only when it is written.
#[derive(Clone, Debug)]
pub(crate) struct PublishedPacked<B: Backend> {
    name: String,
    content: Content,
    shape: Vec<usize>,
    rows: usize,
    /// Matrices that share the tensor, usually one. Each has parts with consecutive rows.
    matrices: Vec<(Stored, Vec<PackedWeight<B>>)>,
    columns: usize,
}

/// Content of a tensor of a packed matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// int8 values in words.
    Words,
    /// One scale per row.
    Scales,
    /// Shape of the matrix.
    Shape,
}

impl<B: Backend> PublishedPacked<B> {
    /// Name in the file.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Dimensions in the file.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.shape
    }

    /// Builds the tensors of a matrix `[out, in]`, given its parts.
    pub(crate) fn of(source: &Source, parts: &[PackedWeight<B>]) -> Vec<Self> {
        let outputs = parts.iter().map(|part| part.shape()[0]).sum();
        let columns = parts.first().map_or(0, |part| part.shape()[1]);
        let mut tensors = Vec::new();
        for stored in source.stored(&[outputs]) {
            let (name, rows) = (&stored.name, stored.len());
            for (content, name, shape) in [
                (
                    Content::Words,
                    values_name(QuantizedLayout::Words, name),
                    vec![rows, columns.div_ceil(VALUES_PER_WORD)],
                ),
                (Content::Scales, scales_name(name), vec![rows, 1]),
                (Content::Shape, shape_name(name), vec![2]),
            ] {
                tensors.push(Self {
                    name,
                    content,
                    shape,
                    rows,
                    matrices: vec![(stored.clone(), parts.to_vec())],
                    columns,
                });
            }
        }
        tensors
    }

    /// Adds the matrices of another tensor of the same name.
    pub(crate) fn add(&mut self, other: Self) {
        self.matrices.extend(other.matrices);
    }

    /// Calls `write(row in the file, values, scale)` for each row.
    fn rows(&self, mut write: impl FnMut(usize, &[u8], f32)) {
        for (stored, parts) in &self.matrices {
            let mut first = 0;
            for part in parts {
                let matrix = part.to_host();
                let rows = first..first + matrix.shape()[0];
                stored.for_each_element(0..stored.len(), |own, row| {
                    if rows.contains(&own) {
                        let (scale, values) = split_int8(matrix.view().row(own - rows.start));
                        write(row, values, scale);
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
                let row_bytes = self.columns.div_ceil(VALUES_PER_WORD) * VALUES_PER_WORD;
                self.rows(|row, values, _| {
                    let to = &mut data[row * row_bytes..][..values.len()];
                    for (to, value) in to.iter_mut().zip(values) {
                        *to = value ^ OFFSET;
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
