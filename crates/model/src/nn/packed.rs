//! Several sequences in one pass, as consecutive rows.
//!
//! A pass maps `[1, rows, width]`, or a batch of equally long sequences, `[batch, seq, width]`. Everything but attention
//! treats each row by itself, so it reads its weights once for all rows. Attention runs span by span.

use burn::tensor::{Device, Int, Tensor, TensorData};

use emberlm_kernels::{AttentionMask, Backend, ops};

use crate::nn::adapter_rows::AdapterRows;
use crate::nn::context::{BlockMemory, FeedForwardContext};
use crate::nn::kv_cache::LayerCache;
use crate::nn::mixture::Routing;
use crate::nn::position::RotaryTable;
use crate::nn::probe::{LayerProbe, Point};

/// Consecutive rows of `count` sequences with `len` tokens each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowSpan {
    pub first: usize,
    pub count: usize,
    pub len: usize,
}

impl RowSpan {
    /// The rows of a batch `[batch, seq, width]`.
    pub fn of_batch<B: Backend>(x: &Tensor<B, 3>) -> Self {
        let [count, len, _] = x.dims();
        Self {
            first: 0,
            count,
            len,
        }
    }

    /// One span for each run of equal lengths.
    pub fn of_lengths(lengths: impl IntoIterator<Item = usize>) -> Vec<Self> {
        let mut spans: Vec<Self> = Vec::new();
        let mut first = 0;
        for len in lengths {
            match spans.last_mut() {
                Some(span) if span.len == len => span.count += 1,
                _ => spans.push(Self {
                    first,
                    count: 1,
                    len,
                }),
            }
            first += len;
        }
        spans
    }

    /// The number of rows.
    pub fn rows(self) -> usize {
        self.count * self.len
    }

    /// The span's rows of a pass, `[count, len, width]`.
    pub fn of<B: Backend>(self, rows: &Tensor<B, 3>) -> Tensor<B, 3> {
        let [batch, seq, width] = rows.dims();
        if [batch, seq] == [self.count, self.len] {
            return rows.clone();
        }
        let rows = rows.clone().narrow(1, self.first, self.rows());
        rows.reshape([self.count, self.len, width])
    }

    /// The span's rows of a pass's heads `[batch, heads, seq, head_dim]`, as `[count, heads, len, head_dim]`.
    pub fn of_heads<B: Backend>(self, heads: &Tensor<B, 4>) -> Tensor<B, 4> {
        let [batch, of_row, seq, width] = heads.dims();
        if [batch, seq] == [self.count, self.len] {
            return heads.clone();
        }
        let rows = heads.clone().narrow(2, self.first, self.rows());
        match self.count {
            1 => rows,
            count => {
                let rows = rows.reshape([of_row, count, self.len, width]);
                rows.swap_dims(0, 1)
            }
        }
    }

    /// The spans' results `[count, len, width]` as rows of a pass with the first two dimensions `shape`.
    pub fn joined<B: Backend>(
        spans: impl Iterator<Item = Tensor<B, 3>>,
        shape: [usize; 2],
    ) -> Tensor<B, 3> {
        let in_row = |x: Tensor<B, 3>, [batch, seq]: [usize; 2]| {
            let [count, len, width] = x.dims();
            match [count, len] == [batch, seq] {
                true => x,
                false => x.reshape([batch, seq, width]),
            }
        };
        let mut spans: Vec<Tensor<B, 3>> = spans.collect();
        match (spans.len(), spans.pop()) {
            (1, Some(only)) => in_row(only, shape),
            (_, last) => {
                spans.extend(last);
                let rows = spans.into_iter().map(|span| {
                    let [count, len, _] = span.dims();
                    in_row(span, [1, count * len])
                });
                Tensor::cat(rows.collect(), 1)
            }
        }
    }
}

/// The sequences of a span, with what their attentions read in addition to the rows, in one block.
#[derive(Debug)]
pub(crate) struct Span<'a, B: Backend> {
    pub rows: RowSpan,
    /// The mask of the self-attention.
    pub mask: AttentionMask<B>,
    /// Keys and values of earlier tokens; those of the rows are appended.
    pub cache: Option<&'a mut LayerCache<B>>,
    /// The memory of the cross-attention, if the block has one.
    pub memory: Option<BlockMemory<'a, B>>,
}

impl<B: Backend> Span<'_, B> {
    /// The number of cached tokens that the rows continue.
    pub fn past(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.len())
    }

    /// The angles of the rows.
    pub fn angles(&self, rotary: Option<&RotaryTable<B>>) -> Option<ops::Angles<B>> {
        rotary.map(|table| table.angles(self.past(), self.rows.len))
    }
}

/// The inputs that all spans of a pass have in common in one block.
#[derive(Debug)]
pub(crate) struct BlockPass<'p, B: Backend> {
    /// The rotation of queries and keys.
    pub rotary: Option<&'p RotaryTable<B>>,
    /// The angles of every row, if there are several spans.
    pub angles: Option<ops::Angles<B>>,
    /// The token of each row, `[batch, seq]`.
    pub ids: Option<Tensor<B, 2, Int>>,
    /// The stack's input.
    pub embedded: Option<Tensor<B, 3>>,
    /// The adapter of each row.
    pub adapters: Option<&'p AdapterRows>,
    /// Receives the routing of a mixture of experts.
    pub routings: Option<&'p mut Vec<Routing<B>>>,
    /// Sees and replaces tensors.
    pub probe: Option<LayerProbe<'p, B>>,
}

impl<'p, B: Backend> BlockPass<'p, B> {
    /// A pass of one span.
    pub fn new(rotary: Option<&'p RotaryTable<B>>) -> Self {
        Self {
            rotary,
            angles: None,
            ids: None,
            embedded: None,
            adapters: None,
            routings: None,
            probe: None,
        }
    }

    /// The inputs of the feed-forward layer.
    pub fn feed_forward(&mut self) -> FeedForwardContext<'_, B> {
        FeedForwardContext {
            routings: self.routings.as_deref_mut(),
            adapters: self.adapters,
            probe: self.probe.as_mut().map(LayerProbe::reborrowed),
        }
    }

    /// The tensor `[batch, seq, width]` with which the pass continues.
    pub fn see(&mut self, point: Point, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match &mut self.probe {
            Some(probe) => probe.rows(point, x),
            None => x,
        }
    }
}

/// The positions of every row, `[rows]`, of spans with the given numbers of cached tokens.
pub(crate) fn positions<B: Backend>(
    spans: impl IntoIterator<Item = (RowSpan, usize)>,
    device: &Device<B>,
) -> Tensor<B, 1, Int> {
    let of_span = |(span, past): (RowSpan, usize)| {
        let of_one = move |_| (past..past + span.len).map(|position| position as i64);
        (0..span.count).flat_map(of_one)
    };
    let positions: Vec<i64> = spans.into_iter().flat_map(of_span).collect();
    let shape = [positions.len()];
    Tensor::from_data(TensorData::new(positions, shape), device)
}
