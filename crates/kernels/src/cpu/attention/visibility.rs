//! The visibility of a chunk of keys, used to skip most of the hidden scores.

use std::ops::Range;

use pulp::Simd;

use super::dropout::HeadDropout;
use super::mask::{Block, COLUMNS, KEYS, KeyChunk, LANES, QUERIES, ROWS, WEIGHTS_ROW};
use super::tile::{Left, Right, multiply, store, vector};

/// The visibility of a chunk of keys for a block of queries, in groups of [`ROWS`] keys.
pub struct Visibility {
    pub(super) rows: [Rows; KEYS / ROWS],
    pub(super) count: usize,
    pub(super) queries: [Range<usize>; QUERIES / ROWS],
}

/// Up to [`ROWS`] keys of a chunk.
#[derive(Clone)]
pub struct Rows {
    /// The keys, relative to the start of the chunk.
    pub keys: Range<usize>,
    /// A range that covers the queries to which some of the keys are visible, in whole steps of [`ROWS`].
    pub queries: Range<usize>,
    /// The columns of these queries. The scores of the keys are computed for these columns.
    pub columns: Range<usize>,
    /// For each column, true if all of its queries can attend to all of the keys, so no score has to be hidden.
    pub whole: [bool; COLUMNS],
}

impl Visibility {
    #[inline(always)]
    pub fn new(block: &Block, chunk: &KeyChunk) -> Self {
        let len = chunk.keys.len();
        let mut rows = [const {
            Rows {
                keys: 0..0,
                queries: 0..0,
                columns: 0..0,
                whole: [false; COLUMNS],
            }
        }; KEYS / ROWS];
        let count = len.div_ceil(ROWS);
        let start = chunk.keys.start as i32;
        let seen_by_all = block.seen_by_all();
        let steps = chunk.keys_of();
        for (i, rows) in rows[..count].iter_mut().enumerate() {
            let keys = i * ROWS..len.min((i + 1) * ROWS);
            // Uses the ranges of whole steps, which may include keys that are hidden from all of their queries: a
            // product of those queries reads these elements too.
            let (mut from, mut until) = (QUERIES, 0);
            for (step, of) in steps.iter().enumerate() {
                if of.start < keys.end && keys.start < of.end {
                    from = from.min(step * ROWS);
                    until = (step + 1) * ROWS;
                }
            }
            let queries = from.min(until)..until;
            rows.columns = queries.start / LANES..queries.end.div_ceil(LANES);
            for (whole, seen) in rows.whole.iter_mut().zip(&seen_by_all) {
                let (first, end) = (start + keys.start as i32, start + keys.end as i32);
                *whole = (seen.start <= first) & (end <= seen.end);
            }
            rows.keys = keys;
            rows.queries = queries;
        }
        Self {
            rows,
            count,
            queries: steps,
        }
    }

    /// The groups of keys of the chunk.
    #[inline(always)]
    pub fn all_key_rows(&self) -> impl Iterator<Item = &Rows> {
        self.rows[..self.count].iter()
    }

    /// The groups of keys that are visible to some query.
    #[inline(always)]
    pub fn key_rows(&self) -> impl Iterator<Item = &Rows> {
        self.all_key_rows().filter(|rows| !rows.queries.is_empty())
    }

    /// For each [`ROWS`] of `count` queries, the index of the first query and a range that covers the keys
    /// visible to them.
    #[inline(always)]
    pub fn query_rows(&self, count: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let steps = self.queries[..count.div_ceil(ROWS)].iter().enumerate();
        steps.map(|(i, keys)| (i * ROWS, keys.clone()))
    }

    /// `out[key · WEIGHTS_ROW + query] = keys[key] · queries[query]` for each key of the chunk and the columns of
    /// queries that can attend to it. Other elements are left unchanged. `queries` is `[depth, QUERIES]`.
    #[inline(always)]
    pub fn scores<S: Simd>(
        &self,
        simd: S,
        keys: Left<'_>,
        queries: &[f32],
        depth: usize,
        out: &mut [f32],
    ) {
        for rows in self.key_rows() {
            let column = rows.columns.start * LANES;
            multiply(
                simd,
                [rows.keys.len(), depth, rows.columns.len() * LANES],
                (
                    &mut out[rows.keys.start * WEIGHTS_ROW + column..],
                    WEIGHTS_ROW,
                ),
                Left {
                    data: &keys.data[rows.keys.start * keys.row..],
                    ..keys
                },
                Right {
                    data: &queries[column..],
                    row: QUERIES,
                },
                false,
            );
        }
    }
}

/// Multiplies weights by their dropout factors.
#[inline(always)]
pub fn drop_out<S: Simd>(
    simd: S,
    dropout: HeadDropout,
    first_query: usize,
    chunk: &KeyChunk,
    visibility: &Visibility,
    weights: &mut [f32],
) {
    for rows in visibility.key_rows() {
        for key in rows.keys.clone() {
            let of_key = dropout.of_key(chunk.keys.start + key);
            let vectors = rows.columns.start * LANES..rows.columns.end * LANES;
            for at in vectors.step_by(S::F32_LANES) {
                let place = key * WEIGHTS_ROW + at;
                let factors = of_key.factors::<S>((first_query + at) as u32);
                let kept = simd.mul_f32s(vector::<S>(weights, place), factors);
                store::<S>(weights, place, kept);
            }
        }
    }
}
