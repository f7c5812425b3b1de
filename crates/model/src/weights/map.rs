//! The place and the layout of a parameter in a published checkpoint.
//!
//! A map's weight is `[in, out]` here. Reading and writing walk the same pairs of places, so that each is the other's
//! inverse by construction.

use std::ops::Range;

use crate::checked::DecoderConfig;

/// The place of a parameter: tensors put side by side along its last dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    tensors: Vec<SourceTensor>,
    layout: Layout,
}

/// One tensor of a [`Source`].
#[derive(Clone, Debug, PartialEq, Eq)]
struct SourceTensor {
    name: String,
    /// The length of the parameter's last dimension that it covers; none for all of it.
    width: Option<usize>,
    /// The parameter's place in it; none for all of it.
    part: Option<EqualPart>,
}

/// One of several parameters of the same shape whose outputs are in one tensor, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EqualPart {
    /// The parameter's index.
    pub index: usize,
    /// The number of parameters.
    pub count: usize,
}

/// The layout of a tensor's part of a matrix; vectors have one layout but for [`Layout::FusedPerGroup`]'s order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Row by row as here.
    AsIs,
    /// `[out, in]`, as PyTorch's `Linear` keeps its weight.
    Transposed,
    /// `[out, in]`, its rows in the order group by group: the queries of a group's heads, its key and its value; here
    /// all queries come first, then all keys, then all values.
    FusedPerGroup { groups: usize, queries: usize },
}

impl Source {
    /// One tensor as it is.
    pub fn as_is(name: impl Into<String>) -> Self {
        Self::whole(name.into(), Layout::AsIs)
    }

    /// One matrix stored `[out, in]`, or a vector.
    pub fn transposed(name: impl Into<String>) -> Self {
        Self::whole(name.into(), Layout::Transposed)
    }

    /// Queries, keys and values in three tensors, stored `[out, in]`, or their vectors.
    pub fn query_key_value(config: &DecoderConfig, names: [String; 3]) -> Self {
        let heads = [config.heads(), config.kv_heads(), config.kv_heads()];
        let tensors = names.into_iter().zip(heads);
        Self {
            tensors: tensors
                .map(|(name, heads)| SourceTensor {
                    name,
                    width: Some(heads * config.head_dim()),
                    part: None,
                })
                .collect(),
            layout: Layout::Transposed,
        }
    }

    /// Queries, keys and values in one tensor stored `[out, in]`, key-value head by key-value head, each after its
    /// queries, or their vector.
    pub fn fused_per_group(config: &DecoderConfig, name: impl Into<String>) -> Self {
        let groups = config.kv_heads();
        let queries = config.heads() / groups;
        Self::whole(name.into(), Layout::FusedPerGroup { groups, queries })
    }

    /// A part of a matrix stored `[out, in]`, or of a vector, which several parameters of one shape share.
    pub fn part_of(name: impl Into<String>, part: EqualPart) -> Self {
        let mut source = Self::transposed(name);
        for tensor in &mut source.tensors {
            tensor.part = Some(part);
        }
        source
    }

    fn whole(name: String, layout: Layout) -> Self {
        let tensors = vec![SourceTensor {
            name,
            width: None,
            part: None,
        }];
        Self { tensors, layout }
    }

    /// Returns true if a matrix is stored `[out, in]`.
    pub(crate) fn is_outputs_first(&self) -> bool {
        self.layout != Layout::AsIs
    }

    /// The names of the tensors it is made of.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|tensor| tensor.name.as_str())
    }

    /// Its tensors, for a parameter of `shape`.
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
                part: tensor.part.unwrap_or(EqualPart { index: 0, count: 1 }),
                layout: self.layout,
            };
            start += width;
            stored
        });
        stored.collect()
    }
}

/// A tensor of a file and the places that its elements have in the parameter.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) name: String,
    /// The parameter's rows; none for a vector.
    rows: Option<usize>,
    /// The parameter's last dimension.
    columns: usize,
    /// The start of this tensor's part in it.
    start: usize,
    width: usize,
    /// Its place in the tensor, which has `count` times the outputs.
    part: EqualPart,
    layout: Layout,
}

/// The number of rows that are walked side by side where one side is transposed: enough for whole cache lines of f32.
const ROWS_TOGETHER: usize = 16;

impl Stored {
    /// The shape of the tensor in the file.
    pub(crate) fn shape(&self) -> Vec<usize> {
        match (self.rows, self.layout) {
            (None, _) => vec![self.outputs()],
            (Some(rows), Layout::AsIs) => vec![rows, self.width],
            (Some(rows), Layout::Transposed | Layout::FusedPerGroup { .. }) => {
                vec![self.outputs(), rows]
            }
        }
    }

    /// The outputs in the tensor, those of other parameters among them.
    fn outputs(&self) -> usize {
        self.width * self.part.count
    }

    /// The outputs of the tensor that are this parameter's.
    fn own_outputs(&self) -> Range<usize> {
        let first = self.width * self.part.index;
        first..first + self.width
    }

    /// Elements in the tensor.
    pub(crate) fn len(&self) -> usize {
        self.outputs() * self.rows.unwrap_or(1)
    }

    /// Rows of the tensor in the file and the elements of each; a vector's rows are its elements.
    pub(crate) fn file_rows(&self) -> [usize; 2] {
        match (self.rows, self.layout) {
            (None, _) => [self.outputs(), 1],
            (Some(rows), Layout::AsIs) => [rows, self.width],
            (Some(rows), Layout::Transposed | Layout::FusedPerGroup { .. }) => {
                [self.outputs(), rows]
            }
        }
    }

    /// The tensor's rows that hold some rows of the parameter, and maybe others.
    pub(crate) fn file_rows_with(&self, rows: Range<usize>) -> Range<usize> {
        match (self.rows, self.layout) {
            (Some(_), Layout::AsIs) => rows,
            _ => self.own_outputs(),
        }
    }

    /// Calls `visit(place in the parameter, place in the tensor)` for every element of the parameter in some of the tensor's
    /// rows.
    pub(crate) fn places(&self, file_rows: Range<usize>, mut visit: impl FnMut(usize, usize)) {
        let turned = self.rows.filter(|_| self.layout != Layout::AsIs);
        let own = self.own_outputs();
        let own_rows = file_rows.start.max(own.start)..file_rows.end.min(own.end);
        match (self.rows, turned) {
            (None, _) => {
                for place in own_rows {
                    visit(self.start + self.own_column(place - own.start), place);
                }
            }
            (Some(_), None) => {
                for row in file_rows {
                    let (own, stored) = (row * self.columns + self.start, row * self.width);
                    for column in 0..self.width {
                        visit(own + column, stored + column);
                    }
                }
            }
            (Some(_), Some(fan_in)) => {
                let mut first = own_rows.start;
                while first < own_rows.end {
                    let last = own_rows.end.min(first + ROWS_TOGETHER);
                    for i in 0..fan_in {
                        let column = i * self.columns + self.start;
                        for row in first..last {
                            visit(column + self.own_column(row - own.start), row * fan_in + i);
                        }
                    }
                    first = last;
                }
            }
        }
    }

    /// The column here, within this tensor's part, of one of the parameter's outputs in the file.
    fn own_column(&self, output: usize) -> usize {
        match self.layout {
            Layout::AsIs | Layout::Transposed => output,
            Layout::FusedPerGroup { groups, queries } => {
                let head_dim = self.width / ((queries + 2) * groups);
                let (head, element) = (output / head_dim, output % head_dim);
                let (group, within) = (head / (queries + 2), head % (queries + 2));
                let head = match within.checked_sub(queries) {
                    None => group * queries + within,
                    Some(part) => (queries + part) * groups + group,
                };
                head * head_dim + element
            }
        }
    }
}

/// The block's number and the rest of a path `blocks.N.rest`.
pub fn block_path(path: &str) -> Option<(usize, &str)> {
    let (number, rest) = path.strip_prefix("blocks.")?.split_once('.')?;
    Some((number.parse().ok()?, rest))
}
