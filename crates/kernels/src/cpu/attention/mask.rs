//! Which keys a query sees.

use std::ops::Range;

use super::AttentionShape;
use crate::AttentionOptions;

/// Queries of a block: as many as fill a few vectors of any processor.
pub const QUERIES: usize = 64;

/// Queries that are masked and left out together, as many as the widest vector holds.
pub const LANES: usize = 16;

/// Keys of a piece.
pub const KEYS: usize = 128;

/// Keys that are masked and left out together.
pub const ROWS: usize = 4;

/// The keys that one query sees: `first..global_end` and `near..end`, its own among the latter.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub first: i32,
    pub global_end: i32,
    pub near: i32,
    pub end: i32,
}

impl Seen {
    /// Of query `i` of sequence `b`. A document that begins after its query, or before all keys, is no document: the
    /// query then sees itself alone, or all. It sees itself with a window of none also.
    pub fn new(
        shape: &AttentionShape,
        options: &AttentionOptions,
        documents: Option<&[i32]>,
        b: usize,
        i: usize,
    ) -> Self {
        let position = (shape.k_len - shape.q_len + i) as i32;
        let first = documents.map_or(0, |first| first[b * shape.q_len + i].clamp(0, position));
        let near = match options.window {
            Some(window) => {
                let window = window.clamp(1, position as usize + 1) as i32;
                first.max(position + 1 - window)
            }
            None => first,
        };
        let tokens = options.global_tokens.min(near as usize) as i32;
        Self {
            first,
            global_end: (first + tokens).min(near),
            near,
            end: position + 1,
        }
    }

    /// Not to be seen by anything.
    const NONE: Self = Self {
        first: 0,
        global_end: 0,
        near: 0,
        end: 0,
    };

    /// Whether it sees the key.
    #[inline(always)]
    pub fn sees(&self, key: i32) -> bool {
        key < self.end && (key >= self.near || (key >= self.first && key < self.global_end))
    }

    /// Within `keys`: from the first key seen to just after the last.
    #[inline(always)]
    fn within(&self, keys: &Range<usize>) -> Range<i32> {
        let (start, end) = (keys.start as i32, keys.end as i32);
        let last = if self.end > start && self.near < end {
            self.end.min(end)
        } else {
            self.global_end.min(end)
        };
        let from = if self.global_end > start && self.first < self.global_end {
            self.first
        } else {
            self.near
        };
        let from = from.max(start);
        from..last.max(from)
    }
}

/// What a block of queries sees, and how its place in a piece of keys is cut.
pub struct Block {
    /// How many queries there are; what stands after them sees nothing.
    pub count: usize,
    seen: [Seen; QUERIES],
    columns: [[[i32; LANES]; QUERIES / LANES]; 4],
}

impl Block {
    /// Queries `from..` of sequence `b`, at most [`QUERIES`].
    pub fn new(
        shape: &AttentionShape,
        options: &AttentionOptions,
        documents: Option<&[i32]>,
        b: usize,
        from: usize,
    ) -> Self {
        let count = QUERIES.min(shape.q_len - from);
        let mut seen = [Seen::NONE; QUERIES];
        let mut columns = [[[0; LANES]; QUERIES / LANES]; 4];
        for i in 0..count {
            let of = Seen::new(shape, options, documents, b, from + i);
            seen[i] = of;
            columns[0][i / LANES][i % LANES] = of.first;
            columns[1][i / LANES][i % LANES] = of.global_end;
            columns[2][i / LANES][i % LANES] = of.near;
            columns[3][i / LANES][i % LANES] = of.end;
        }
        Self {
            count,
            seen,
            columns,
        }
    }

    /// From the first key that any of the queries sees to just after the last.
    pub fn keys(&self) -> Range<usize> {
        let seen = &self.seen[..self.count];
        let start = seen.iter().map(|seen| {
            if seen.first < seen.global_end {
                seen.first
            } else {
                seen.near
            }
        });
        let end = seen.iter().map(|seen| seen.end);
        start.min().unwrap_or(0) as usize..end.max().unwrap_or(0) as usize
    }

    /// How a piece of keys is seen; none where it is not.
    #[inline(always)]
    pub fn piece(&self, keys: Range<usize>) -> Option<Piece> {
        let (mut starts, mut ends) = ([i32::MAX; QUERIES], [0; QUERIES]);
        let (start, end) = (keys.start as i32, keys.end as i32);
        let mut any = false;
        let mut all = self.count == QUERIES;
        for ((first, until), seen) in starts
            .iter_mut()
            .zip(&mut ends)
            .zip(&self.seen[..self.count])
        {
            let within = seen.within(&keys);
            let some = within.start < within.end;
            any |= some;
            all &= (seen.near <= start) & (seen.end >= end);
            *first = if some { within.start - start } else { i32::MAX };
            *until = if some { within.end - start } else { 0 };
        }
        any.then_some(Piece {
            keys,
            starts,
            ends,
            all,
        })
    }

    /// Puts -∞ in place of the scores of `key` that are not seen; the scores are of the queries of one column.
    #[inline(always)]
    pub fn hide(&self, key: usize, column: usize, scores: &mut [f32; LANES]) {
        let key = key as i32;
        let [first, global_end, near, end] = &self.columns;
        let (first, global_end) = (&first[column], &global_end[column]);
        let (near, end) = (&near[column], &end[column]);
        for (lane, score) in scores.iter_mut().enumerate() {
            let global = (key >= first[lane]) & (key < global_end[lane]);
            let visible = (key < end[lane]) & ((key >= near[lane]) | global);
            *score = if visible { *score } else { f32::NEG_INFINITY };
        }
    }
}

/// A piece of keys as a block of queries sees it.
pub struct Piece {
    pub keys: Range<usize>,
    /// For each query the first key seen, counted from the piece's start; the largest number where it sees none.
    starts: [i32; QUERIES],
    /// The last one seen and one more, 0 where it sees none.
    ends: [i32; QUERIES],
    /// Whether every query sees every key.
    pub all: bool,
}

impl Piece {
    /// From the first key to just after the last that some of the queries see, counted from the piece's start.
    #[inline(always)]
    pub fn keys_of(&self, queries: Range<usize>) -> Range<usize> {
        if self.all {
            return 0..self.keys.len();
        }
        let (mut start, mut end) = (i32::MAX, 0);
        for (from, until) in self.starts[queries.clone()].iter().zip(&self.ends[queries]) {
            start = start.min(*from);
            end = end.max(*until);
        }
        if end == 0 {
            0..0
        } else {
            start as usize..end as usize
        }
    }
}
