//! The keys that are visible to queries.

use std::ops::Range;

use pulp::Simd;

use super::AttentionShape;
use crate::{AttentionOptions, KEY_BLOCK, Reach};

/// The number of queries per block, enough to fill several vectors on any CPU.
pub const QUERIES: usize = 64;

/// The stride between the weights of consecutive keys. It is not a power of 2: a product reads the weights of
/// several keys at once, which would otherwise map to the same cache set.
pub const WEIGHTS_ROW: usize = QUERIES + LANES;

/// The number of queries that are masked or skipped together, the width of the widest vectors.
pub const LANES: usize = 16;

/// The number of keys per chunk.
pub const KEYS: usize = 128;

const _: () = assert!(
    KEY_BLOCK.is_multiple_of(KEYS),
    "leaving out a block of keys would move chunks"
);

/// The number of columns of a block, [`LANES`] queries each.
pub const COLUMNS: usize = QUERIES / LANES;

/// The number of keys or queries that are the rows of one step of a product.
pub const ROWS: usize = 8;

/// The keys that are visible to one query: `first..global_end` and `near..end`. Its own key is in the second
/// range.
#[derive(Clone, Copy, Debug)]
pub struct VisibleKeys {
    pub first: i32,
    pub global_end: i32,
    pub near: i32,
    pub end: i32,
}

impl VisibleKeys {
    /// The keys visible to query `i` of sequence `b`. A document that begins after its query is treated as
    /// beginning at the query, and one that begins before all keys as beginning at the first key. A query always
    /// sees its own key, even with a window of 0.
    #[inline(always)]
    pub fn new(
        shape: &AttentionShape,
        options: &AttentionOptions,
        documents: Option<&[i32]>,
        b: usize,
        i: usize,
    ) -> Self {
        let limits = Limits::new(shape, options);
        let first = documents.map_or(0, |first| first[b * shape.q_len + i]);
        Self::at(limits.position(i), first, limits)
    }

    /// The keys visible to the query at `position`, whose document begins at `first`. It is free of branches so
    /// that it is vectorized.
    #[inline(always)]
    fn at(position: i32, first: i32, limits: Limits) -> Self {
        let first = first.min(position).max(0);
        let near = first.max(position + 1 - limits.window);
        Self {
            first,
            global_end: first + limits.global_tokens.min(near - first),
            near,
            end: limits.k_len.min(position.saturating_add(limits.later)),
        }
    }

    /// Returns true if `key` is visible.
    #[inline(always)]
    pub fn sees(&self, key: i32) -> bool {
        key < self.end && (key >= self.near || (key >= self.first && key < self.global_end))
    }
}

/// The positions of the queries and their reach, in numbers of keys.
#[derive(Clone, Copy)]
struct Limits {
    /// The position of the first query.
    position: i32,
    /// The distance between the positions of consecutive queries. It is 0 with full reach, where every query is
    /// at the last key and thus sees all keys.
    step: i32,
    /// The number of keys up to the query's own that it sees.
    window: i32,
    /// The number of keys from the query's own on that it sees.
    later: i32,
    global_tokens: i32,
    k_len: i32,
}

impl Limits {
    #[inline(always)]
    fn new(shape: &AttentionShape, options: &AttentionOptions) -> Self {
        const MOST: usize = i32::MAX as usize;
        let (q_len, k_len) = (shape.q_len as i32, shape.k_len as i32);
        let number = |keys: usize| keys.min(MOST) as i32;
        let [window, later, global_tokens] = match options.reach {
            Reach::Causal | Reach::Full => [MOST as i32, 1, 0],
            Reach::Window {
                tokens,
                global_tokens,
            } => [number(tokens).max(1), 1, number(global_tokens)],
            Reach::Local { distance } => {
                let keys = number(distance.saturating_add(1));
                [keys, keys, 0]
            }
        };
        let [position, step] = match options.reach {
            Reach::Causal | Reach::Window { .. } | Reach::Local { .. } => [k_len - q_len, 1],
            Reach::Full => [k_len - 1, 0],
        };
        Self {
            position,
            step,
            window,
            later,
            global_tokens,
            k_len,
        }
    }

    /// The position of query `i`.
    #[inline(always)]
    fn position(self, i: usize) -> i32 {
        self.position + self.step * i as i32
    }
}

/// The keys that are visible to a block of queries: the [`VisibleKeys`] of each query as a structure of arrays.
pub struct Block {
    /// The number of queries. Columns after them see no keys.
    pub count: usize,
    first: [i32; QUERIES],
    global_end: [i32; QUERIES],
    near: [i32; QUERIES],
    end: [i32; QUERIES],
    /// True if keys outside the window may be visible to some query.
    any_global: bool,
}

impl Block {
    /// The block of sequence `b` that starts at query `from`, with at most [`QUERIES`] queries.
    #[inline(always)]
    pub fn new(
        shape: &AttentionShape,
        options: &AttentionOptions,
        documents: Option<&[i32]>,
        b: usize,
        from: usize,
    ) -> Self {
        let count = QUERIES.min(shape.q_len - from);
        let limits = Limits::new(shape, options);
        let position = limits.position(from);
        let mut firsts = [0; QUERIES];
        if let Some(documents) = documents {
            let start = b * shape.q_len + from;
            firsts[..count].copy_from_slice(&documents[start..start + count]);
        }
        let mut block = Self {
            count,
            first: [0; QUERIES],
            global_end: [0; QUERIES],
            near: [0; QUERIES],
            end: [0; QUERIES],
            any_global: limits.global_tokens > 0,
        };
        for (i, first) in firsts.into_iter().enumerate() {
            // Columns after the last query have no position; computing one could overflow.
            let real = i < count;
            let own = if real {
                position + limits.step * i as i32
            } else {
                0
            };
            let of = VisibleKeys::at(own, first, limits);
            block.first[i] = if real { of.first } else { 0 };
            block.global_end[i] = if real { of.global_end } else { 0 };
            block.near[i] = if real { of.near } else { 0 };
            block.end[i] = if real { of.end } else { 0 };
        }
        block
    }

    /// A range that covers the keys visible to any of the queries.
    #[inline(always)]
    pub fn keys(&self) -> Range<usize> {
        let (mut start, mut end) = (i32::MAX, 0);
        for i in 0..QUERIES {
            // `first` is at most `near`. Without global tokens, the keys between them are hidden.
            let from = if self.first[i] < self.global_end[i] {
                self.first[i]
            } else {
                self.near[i]
            };
            start = start.min(if i < self.count { from } else { i32::MAX });
            end = end.max(self.end[i]);
        }
        start.min(end) as usize..end as usize
    }

    /// The visibility of a chunk of keys, or `None` if it is completely hidden.
    #[inline(always)]
    pub fn chunk(&self, keys: Range<usize>) -> Option<KeyChunk> {
        let (mut starts, mut ends) = ([i32::MAX; QUERIES], [0; QUERIES]);
        let (start, end) = (keys.start as i32, keys.end as i32);
        let mut last = 0;
        for i in 0..QUERIES {
            let (first, global_end) = (self.first[i], self.global_end[i]);
            let (near, own_end) = (self.near[i], self.end[i]);
            let nearby = (own_end > start) & (near < end);
            let until = if nearby { own_end } else { global_end }.min(end);
            let global = (global_end > start) & (first < global_end);
            let from = if global { first } else { near }.max(start);
            let some = from < until;
            starts[i] = if some { from - start } else { i32::MAX };
            ends[i] = if some { until - start } else { 0 };
            last = last.max(ends[i]);
        }
        (last > 0).then_some(KeyChunk { keys, starts, ends })
    }

    /// For each column, the keys that are visible to all of its queries.
    #[inline(always)]
    pub fn seen_by_all(&self) -> [Range<i32>; COLUMNS] {
        let near = self.near.as_chunks::<LANES>().0;
        let end = self.end.as_chunks::<LANES>().0;
        let mut seen = [const { 0..0 }; COLUMNS];
        for ((seen, near), end) in seen.iter_mut().zip(near).zip(end) {
            let (mut from, mut until) = (0, i32::MAX);
            for lane in 0..LANES {
                from = from.max(near[lane]);
                until = until.min(end[lane]);
            }
            *seen = from..until;
        }
        seen
    }

    /// Replaces the scores of `key` by -∞ where it is hidden. The scores are those of a vector of queries
    /// starting at `at`.
    #[inline(always)]
    pub fn hide<S: Simd>(&self, simd: S, key: usize, at: usize, scores: S::f32s) -> S::f32s {
        let keys = simd.splat_i32s(key as i32);
        let hidden = simd.splat_f32s(f32::NEG_INFINITY);
        let mut far = hidden;
        if self.any_global {
            let global = simd.select_f32s(before(simd, keys, at, &self.global_end), scores, hidden);
            far = simd.select_f32s(before(simd, keys, at, &self.first), hidden, global);
        }
        let seen = simd.select_f32s(before(simd, keys, at, &self.near), far, scores);
        simd.select_f32s(before(simd, keys, at, &self.end), seen, hidden)
    }
}

/// For each of a vector of queries starting at `at`, true if its key is below the bound in `of`.
#[inline(always)]
fn before<S: Simd>(simd: S, keys: S::i32s, at: usize, of: &[i32; QUERIES]) -> S::m32s {
    let of = S::as_simd_i32s(&of[at..]).0.first();
    simd.less_than_i32s(keys, *of.unwrap_or(&keys))
}

/// A chunk of keys with its visibility for a block of queries.
pub struct KeyChunk {
    pub keys: Range<usize>,
    /// For each query, the first visible key, relative to the start of the chunk, or the largest integer if there
    /// is none.
    starts: [i32; QUERIES],
    /// For each query, the end of its visible keys, relative to the start of the chunk, or 0 if there is none.
    ends: [i32; QUERIES],
}

impl KeyChunk {
    /// For each step of a product whose rows are queries, a range that covers the keys visible to them, relative
    /// to the start of the chunk.
    #[inline(always)]
    pub fn keys_of(&self) -> [Range<usize>; QUERIES / ROWS] {
        let starts = self.starts.as_chunks::<ROWS>().0;
        let ends = self.ends.as_chunks::<ROWS>().0;
        let mut keys = [const { 0..0 }; QUERIES / ROWS];
        for ((keys, starts), ends) in keys.iter_mut().zip(starts).zip(ends) {
            let (mut start, mut end) = (i32::MAX, 0);
            for row in 0..ROWS {
                start = start.min(starts[row]);
                end = end.max(ends[row]);
            }
            *keys = start.min(end) as usize..end as usize;
        }
        keys
    }
}
