//! Mapping between parameters and the tensors of published checkpoints.
//!
//! In the decoder, the weight of a linear layer is `[in, out]`. Loading and saving iterate over the same pairs of
//! element indices, so one is the inverse of the other by construction.

use std::ops::Range;

use super::pieces::{EqualPart, Pieces};
use crate::nn::attention::AttentionConfig;

/// Source of a parameter: tensors concatenated along the parameter's last dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    tensors: Vec<SourceTensor>,
    layout: Layout,
}

/// One tensor of a [`Source`].
#[derive(Clone, Debug, PartialEq, Eq)]
struct SourceTensor {
    name: String,
    /// Size along the parameter's last dimension; `None` for all of it.
    width: Option<usize>,
    /// The parameter's range of the tensor's outputs; `None` for all of them.
    part: Option<EqualPart>,
    /// The parameter has output `index` of every `count` in its range.
    every: EqualPart,
    /// The order of the tensor's outputs if it is another one, or if other parameters have some of them.
    pieces: Option<Pieces>,
    /// The order of the tensor's inputs if it is another one.
    inputs: Option<Pieces>,
    /// Elements of a head if the rows of each head are ordered by rotated pairs, `(0, d/2), (1, d/2 + 1), …`.
    paired: Option<usize>,
}

/// Layout of a matrix in a file. Those of vectors are the same without the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// The decoder's layout.
    AsIs,
    /// `[out, in]`, the layout of PyTorch's `Linear`.
    Transposed,
    /// `[out, 1, in]`, the layout of PyTorch's convolutions of separate channels.
    Channels,
    /// `[parts, in, out]`, with the matrix of each part as in the decoder.
    Stacked,
}

impl Source {
    /// One tensor in the decoder's layout.
    pub fn as_is(name: impl Into<String>) -> Self {
        Self::whole(name.into(), Layout::AsIs)
    }

    /// One matrix stored `[out, in]`, or a vector (the layer's bias).
    pub fn transposed(name: impl Into<String>) -> Self {
        Self::whole(name.into(), Layout::Transposed)
    }

    /// Queries, keys and values in three matrices stored `[out, in]`, or three vectors.
    pub fn query_key_value(attention: &AttentionConfig, names: [String; 3]) -> Self {
        let heads = [attention.heads, attention.kv_heads, attention.kv_heads];
        let widths = heads.map(|heads| heads * attention.head_dim);
        Self::side_by_side(names.into_iter().zip(widths))
    }

    /// [`Source::query_key_value`] with the rows of each head of queries and keys ordered by rotated pairs.
    pub fn paired_query_key_value(attention: &AttentionConfig, names: [String; 3]) -> Self {
        let mut source = Self::query_key_value(attention, names);
        for tensor in &mut source.tensors[..2] {
            tensor.paired = Some(attention.head_dim);
        }
        source
    }

    /// Keys and values in two matrices stored `[out, in]`.
    pub fn key_value(attention: &AttentionConfig, names: [String; 2]) -> Self {
        Self::columns(names, attention.kv_heads * attention.head_dim)
    }

    /// Queries, keys and values in one matrix stored `[out, in]`, or one vector, ordered by key-value head, each after
    /// its queries.
    pub fn fused_per_group(attention: &AttentionConfig, name: impl Into<String>) -> Self {
        let groups = attention.kv_heads;
        let queries = attention.heads / groups * attention.head_dim;
        let sizes = vec![queries, attention.head_dim, attention.head_dim];
        Self::transposed(name).ordered(Some(Pieces::in_groups(groups, sizes)), None)
    }

    /// The source with other orders of the outputs and inputs of each tensor, unless they are `None`. Other parameters may have some
    /// of the outputs.
    pub(crate) fn ordered(mut self, outputs: Option<Pieces>, inputs: Option<Pieces>) -> Self {
        for tensor in &mut self.tensors {
            tensor.pieces = outputs.clone().or(tensor.pieces.take());
            tensor.inputs.clone_from(&inputs);
        }
        self
    }

    /// [`Source::query_key_value`], where each head of the queries is followed by that of a gate in the first tensor.
    pub(crate) fn query_key_value_beside_gate(
        attention: &AttentionConfig,
        names: [String; 3],
    ) -> Self {
        let mut source = Self::query_key_value(attention, names);
        source.tensors[0].pieces = Some(Pieces {
            own: 0..1,
            ..Pieces::in_groups(attention.heads, vec![attention.head_dim; 2])
        });
        source
    }

    /// Matrices stored `[out, in]`, or vectors, of `width` outputs each.
    pub(crate) fn columns(names: impl IntoIterator<Item = String>, width: usize) -> Self {
        Self::side_by_side(names.into_iter().map(|name| (name, width)))
    }

    /// Matrices stored `[out, in]`, or vectors, each with its number of outputs.
    pub(crate) fn side_by_side(parts: impl IntoIterator<Item = (String, usize)>) -> Self {
        let tensors = parts.into_iter().map(|(name, width)| SourceTensor {
            width: Some(width),
            ..SourceTensor::whole(name)
        });
        Self {
            tensors: tensors.collect(),
            layout: Layout::Transposed,
        }
    }

    /// The convolutions of separate channels, stored `[channels, 1, taps]`; the decoder has `[taps, channels]`.
    pub(crate) fn channels(name: impl Into<String>) -> Self {
        Self::whole(name.into(), Layout::Channels)
    }

    /// A part of a matrix stored `[out, in]`, or of a vector, that several parameters of one shape share.
    pub fn part_of(name: impl Into<String>, part: EqualPart) -> Self {
        let tensor = SourceTensor {
            part: Some(part),
            ..SourceTensor::whole(name.into())
        };
        Self {
            tensors: vec![tensor],
            layout: Layout::Transposed,
        }
    }

    /// A layer of one of several experts in a tensor `[experts, in, n · out]`, or `[experts, n · out]` for vectors, of which it
    /// has every n-th output.
    pub fn stacked(name: impl Into<String>, expert: EqualPart, every: EqualPart) -> Self {
        let tensor = SourceTensor {
            part: Some(expert),
            every,
            ..SourceTensor::whole(name.into())
        };
        Self {
            tensors: vec![tensor],
            layout: Layout::Stacked,
        }
    }

    /// The source of a matrix of [`Source::stacked`] in a file that has the tensor as `[experts · n · out, in]`.
    pub(crate) fn unstacked(mut self) -> Self {
        if self.layout == Layout::Stacked {
            self.layout = Layout::Transposed;
        }
        self
    }

    fn whole(name: String, layout: Layout) -> Self {
        let tensors = vec![SourceTensor::whole(name)];
        Self { tensors, layout }
    }

    /// Returns true if a matrix is stored `[out, in]`.
    pub(crate) fn is_outputs_first(&self) -> bool {
        !matches!(self.layout, Layout::AsIs | Layout::Stacked)
    }

    /// Splits the source of a matrix with `columns` outputs into one source per tensor, each with the columns of its
    /// tensor. They are in the layout of PyTorch's `Linear`, with the outputs in the order of the file.
    pub(crate) fn split_columns(&self, columns: usize) -> Vec<(Self, Range<usize>)> {
        let layout = Layout::Transposed;
        let mut start = 0;
        let split = self.tensors.iter().map(|tensor| {
            let first = start;
            start += tensor.width.unwrap_or(columns);
            let whole = SourceTensor {
                width: None,
                ..tensor.clone()
            };
            let tensors = vec![whole];
            (Self { tensors, layout }, first..start)
        });
        split.collect()
    }

    /// True if the parameter is in a tensor of [`Source::stacked`].
    pub(crate) fn is_stacked(&self) -> bool {
        self.layout == Layout::Stacked
    }

    /// The source with another name for its tensors.
    pub(crate) fn renamed(mut self, name: &str) -> Self {
        for tensor in &mut self.tensors {
            name.clone_into(&mut tensor.name);
        }
        self
    }

    /// The source with other names for its tensors.
    pub(crate) fn map_names(mut self, mut renamed: impl FnMut(&str) -> String) -> Self {
        for tensor in &mut self.tensors {
            tensor.name = renamed(&tensor.name);
        }
        self
    }

    /// True if other parameters are stored in the same tensor.
    pub(crate) fn is_part(&self) -> bool {
        let pieces = |tensor: &SourceTensor| tensor.pieces.as_ref().is_some_and(Pieces::is_part);
        let mut tensors = self.tensors.iter();
        tensors.any(|tensor| tensor.part.is_some() || pieces(tensor))
    }

    /// The names of the tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|tensor| tensor.name.as_str())
    }

    /// Returns the tensors that make up a parameter of `shape`.
    pub(crate) fn stored(&self, shape: &[usize]) -> Vec<Stored> {
        let (rows, columns) = match *shape {
            [columns] => (None, columns),
            [rows, columns] => (Some(rows), columns),
            _ => (None, shape.iter().product()),
        };
        let mut start = 0;
        let stored = self.tensors.iter().map(|tensor| {
            let width = tensor.width.unwrap_or(columns);
            let stored = Stored {
                name: tensor.name.clone(),
                rows,
                columns,
                start,
                width,
                part: tensor.part.unwrap_or(EqualPart::WHOLE),
                every: tensor.every,
                pieces: tensor.pieces.clone(),
                inputs: tensor.inputs.clone(),
                paired: tensor.paired,
                layout: self.layout,
            };
            start += width;
            stored
        });
        stored.collect()
    }
}

impl SourceTensor {
    /// A tensor with the outputs of one parameter.
    const fn whole(name: String) -> Self {
        Self {
            name,
            width: None,
            part: None,
            every: EqualPart::WHOLE,
            pieces: None,
            inputs: None,
            paired: None,
        }
    }
}

/// A tensor in a file, with the mapping from its elements to those of a parameter.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) name: String,
    /// Rows of the parameter; `None` for a vector.
    rows: Option<usize>,
    /// Size of the parameter's last dimension.
    columns: usize,
    /// First column of this tensor in the parameter.
    start: usize,
    /// Number of columns of this tensor in the parameter.
    width: usize,
    /// See [`SourceTensor`].
    part: EqualPart,
    /// See [`SourceTensor`].
    every: EqualPart,
    /// See [`SourceTensor`].
    pieces: Option<Pieces>,
    /// See [`SourceTensor`].
    pub(crate) inputs: Option<Pieces>,
    /// Elements of a head if the rows of each head are ordered by rotated pairs.
    paired: Option<usize>,
    layout: Layout,
}

/// Rows per block of a transposed copy: 16 f32 elements fill a cache line.
const TRANSPOSED_ROWS: usize = 16;

impl Stored {
    /// Shape of the tensor in the file.
    pub(crate) fn shape(&self) -> Vec<usize> {
        match (self.rows, self.layout) {
            (rows, Layout::Stacked) => {
                let of_part = rows.into_iter().chain([self.part_outputs()]);
                [self.part.count].into_iter().chain(of_part).collect()
            }
            (None, _) => vec![self.outputs()],
            (Some(rows), Layout::AsIs) => vec![rows, self.width],
            (Some(rows), Layout::Transposed) => vec![self.outputs(), rows],
            (Some(rows), Layout::Channels) => vec![self.outputs(), 1, rows],
        }
    }

    /// Number of outputs in the range of the tensor that has those of the parameter.
    fn part_outputs(&self) -> usize {
        match &self.pieces {
            Some(pieces) => pieces.outputs(),
            None => self.width * self.every.count,
        }
    }

    /// Number of outputs in the tensor, including those of other parameters.
    fn outputs(&self) -> usize {
        self.part_outputs() * self.part.count
    }

    /// The range of the tensor's outputs that has those of the parameter.
    fn own_outputs(&self) -> Range<usize> {
        let first = self.part_outputs() * self.part.index;
        first..first + self.part_outputs()
    }

    /// Number of elements in the tensor.
    pub(crate) fn len(&self) -> usize {
        self.outputs() * self.rows.unwrap_or(1)
    }

    /// Number of rows of the tensor in the file and elements per row. Each element of a vector is a row.
    pub(crate) fn file_rows(&self) -> [usize; 2] {
        match (self.rows, self.layout) {
            (rows, Layout::Stacked) => [self.part.count, rows.unwrap_or(1) * self.part_outputs()],
            (None, _) => [self.outputs(), 1],
            (Some(rows), Layout::AsIs) => [rows, self.width],
            (Some(rows), Layout::Transposed | Layout::Channels) => [self.outputs(), rows],
        }
    }

    /// Returns the rows of the tensor that contain the given rows of the parameter, and possibly others.
    pub(crate) fn file_rows_with(&self, rows: Range<usize>) -> Range<usize> {
        match (self.rows, self.layout) {
            (Some(_), Layout::AsIs) => rows,
            (_, Layout::Stacked) => self.part.index..self.part.index + 1,
            _ => self.own_outputs(),
        }
    }

    /// Calls `visit(index in the parameter, index in the tensor)` for every element of the parameter in the given rows
    /// of the tensor.
    pub(crate) fn for_each_element(
        &self,
        file_rows: Range<usize>,
        mut visit: impl FnMut(usize, usize),
    ) {
        let own_outputs = self.own_outputs();
        let own_rows = file_rows.start.max(own_outputs.start)..file_rows.end.min(own_outputs.end);
        match (self.rows, self.layout) {
            (rows, Layout::Stacked) => {
                if !file_rows.contains(&self.part.index) {
                    return;
                }
                let rows = rows.unwrap_or(1);
                let first = self.part.index * rows;
                for row in 0..rows {
                    let (own, stored) =
                        (row * self.columns + self.start, (first + row) * self.width);
                    for column in 0..self.width {
                        let stored = (stored + column) * self.every.count + self.every.index;
                        visit(own + column, stored);
                    }
                }
            }
            (None, _) => {
                for index in own_rows {
                    if let Some(column) = self.own_column(index - own_outputs.start) {
                        visit(self.start + column, index);
                    }
                }
            }
            (Some(_), Layout::AsIs) => {
                for row in file_rows {
                    let (own, stored) = (row * self.columns + self.start, row * self.width);
                    for column in 0..self.width {
                        visit(own + column, stored + column);
                    }
                }
            }
            (Some(fan_in), Layout::Transposed | Layout::Channels) => {
                let mut first = own_rows.start;
                while first < own_rows.end {
                    let last = own_rows.end.min(first + TRANSPOSED_ROWS);
                    let column = |row: usize| self.own_column(row - own_outputs.start);
                    let columns: Vec<Option<usize>> = (first..last).map(column).collect();
                    for i in 0..fan_in {
                        let own = self.own_row(i) * self.columns + self.start;
                        for (row, column) in (first..last).zip(&columns) {
                            if let Some(column) = column {
                                visit(own + column, row * fan_in + i);
                            }
                        }
                    }
                    first = last;
                }
            }
        }
    }

    /// Maps the index of an input in a matrix `[out, in]` to its row in the parameter.
    pub(crate) fn own_row(&self, input: usize) -> usize {
        let row = self.inputs.as_ref().map(|order| order.column(input));
        row.flatten().unwrap_or(input)
    }

    /// Maps the index of an output in the range of [`Stored::own_outputs`] to its column in the parameter, relative to
    /// [`Stored::start`]; `None` for an output of another parameter.
    fn own_column(&self, output: usize) -> Option<usize> {
        let EqualPart { index, count } = self.every;
        if count > 1 {
            return (output % count == index).then_some(output / count);
        }
        if let Some(head_dim) = self.paired {
            let within = output % head_dim;
            return Some(output - within + within / 2 + within % 2 * (head_dim / 2));
        }
        match &self.pieces {
            Some(pieces) => pieces.column(output),
            None => Some(output),
        }
    }
}
