//! The heads and the inputs, and the places of a head in them.

use std::ops::Range;

/// The number of tokens that are processed at once.
pub const CHUNK: usize = 64;

/// The heads of the gated delta rule. Each head of queries and keys serves `heads / key_heads` consecutive heads of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaRuleHeads {
    /// Heads of values.
    pub heads: usize,
    /// Heads of queries and of keys.
    pub key_heads: usize,
    /// Width of a query or key.
    pub key_dim: usize,
    /// Width of a value.
    pub value_dim: usize,
}

impl DeltaRuleHeads {
    /// The width of the queries, or of the keys, of all heads.
    pub fn keys(self) -> usize {
        self.key_heads * self.key_dim
    }

    /// The width of the values of all heads.
    pub fn values(self) -> usize {
        self.heads * self.value_dim
    }

    /// The width of queries, keys and values side by side.
    pub fn channels(self) -> usize {
        2 * self.keys() + self.values()
    }

    /// The elements of a head's memory.
    pub(crate) fn memory(self) -> usize {
        self.key_dim * self.value_dim
    }

    /// The heads of values that a head of keys serves.
    pub(super) fn served(self, key_head: usize) -> Range<usize> {
        let group = self.heads / self.key_heads;
        key_head * group..(key_head + 1) * group
    }

    /// The columns of a head's queries, and of its keys, among the channels.
    pub(super) fn key_columns(self, key_head: usize) -> [Range<usize>; 2] {
        [0, self.keys()].map(|first| {
            let first = first + key_head * self.key_dim;
            first..first + self.key_dim
        })
    }

    /// The columns of a head's values among the channels.
    pub(super) fn value_columns(self, head: usize) -> Range<usize> {
        let first = 2 * self.keys() + head * self.value_dim;
        first..first + self.value_dim
    }

    /// The columns of a head's outputs.
    pub(super) fn output_columns(self, head: usize) -> Range<usize> {
        head * self.value_dim..(head + 1) * self.value_dim
    }
}

/// The inputs, in row-major order.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The heads.
    pub heads: DeltaRuleHeads,
    /// The number of sequences, and of the tokens of each.
    pub tokens: [usize; 2],
    /// `[batch, seq, channels]`.
    pub qkv: &'a [f32],
    /// `[batch, seq, heads]`.
    pub decay: &'a [f32],
    /// `[batch, seq, heads]`.
    pub rate: &'a [f32],
    /// `[batch, heads, key_dim, value_dim]`.
    pub memory: Option<&'a [f32]>,
}

impl<'a> Inputs<'a> {
    pub(super) fn check(&self) {
        let DeltaRuleHeads {
            heads, key_heads, ..
        } = self.heads;
        let [batch, seq] = self.tokens;
        let rows = batch * seq;
        assert!(
            key_heads > 0
                && heads.is_multiple_of(key_heads)
                && self.qkv.len() == rows * self.heads.channels()
                && self.decay.len() == rows * heads
                && self.rate.len() == rows * heads
                && self
                    .memory
                    .is_none_or(|memory| memory.len() == batch * heads * self.heads.memory()),
            "the sizes do not fit"
        );
    }

    /// The tasks: a sequence and a head of keys each.
    pub(super) fn task(&self, number: usize) -> Task {
        Task {
            sequence: number / self.heads.key_heads,
            key_head: number % self.heads.key_heads,
        }
    }

    pub(super) fn tasks(&self) -> usize {
        self.tokens[0] * self.heads.key_heads
    }

    /// A token's queries, keys and values.
    #[inline(always)]
    pub(super) fn channels(&self, row: usize) -> &'a [f32] {
        let channels = self.heads.channels();
        &self.qkv[row * channels..][..channels]
    }

    /// A token's rate of a head.
    #[inline(always)]
    pub(super) fn rate(&self, row: usize, head: usize) -> f32 {
        self.rate[row * self.heads.heads + head]
    }

    /// A token's decay of a head.
    #[inline(always)]
    pub(super) fn decay(&self, row: usize, head: usize) -> f32 {
        self.decay[row * self.heads.heads + head]
    }

    /// The rows of a sequence's tokens.
    pub(super) fn rows(&self, sequence: usize) -> Range<usize> {
        sequence * self.tokens[1]..(sequence + 1) * self.tokens[1]
    }

    /// Writes the memory before the tokens.
    pub(super) fn start(&self, sequence: usize, head: usize, memory: &mut [f32]) {
        match self.memory {
            Some(given) => memory.copy_from_slice(&given[self.memory_of(sequence, head)]),
            None => memory.fill(0.0),
        }
    }

    /// The range of a head's memory.
    pub(super) fn memory_of(&self, sequence: usize, head: usize) -> Range<usize> {
        let first = sequence * self.heads.heads + head;
        first * self.heads.memory()..(first + 1) * self.heads.memory()
    }
}

/// A head of keys of a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) sequence: usize,
    pub(super) key_head: usize,
}
