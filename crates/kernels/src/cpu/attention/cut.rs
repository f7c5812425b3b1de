//! The division of a piece of keys, so that most of what the mask hides is not computed.

use std::ops::Range;

use pulp::Simd;

use super::dropout::HeadDropout;
use super::mask::{Block, COLUMNS, KEYS, LANES, Piece, QUERIES, ROWS, WEIGHTS_ROW};
use super::tile::{Left, Right, multiply, store, vector};

/// The visibility of a piece of keys for a block of queries, by a few keys.
pub struct Cut {
    rows: [Rows; KEYS / ROWS],
    count: usize,
    queries: [Range<usize>; QUERIES / ROWS],
}

/// At most [`ROWS`] keys of a piece.
#[derive(Clone)]
pub struct Rows {
    /// Counted from the piece's start.
    pub keys: Range<usize>,
    /// From the first query to just after the last that may see one of them, in whole steps of [`ROWS`].
    pub queries: Range<usize>,
    /// The columns that these are in: what is computed of the keys' scores.
    pub columns: Range<usize>,
    /// For each column whether all of its queries see all of the keys, so that nothing is to be hidden.
    pub whole: [bool; COLUMNS],
}

impl Cut {
    #[inline(always)]
    pub fn new(block: &Block, piece: &Piece) -> Self {
        let len = piece.keys.len();
        let mut rows = [const {
            Rows {
                keys: 0..0,
                queries: 0..0,
                columns: 0..0,
                whole: [false; COLUMNS],
            }
        }; KEYS / ROWS];
        let count = len.div_ceil(ROWS);
        let start = piece.keys.start as i32;
        let seen_by_all = block.seen_by_all();
        let steps = piece.keys_of();
        for (i, rows) in rows[..count].iter_mut().enumerate() {
            let keys = i * ROWS..len.min((i + 1) * ROWS);
            // By the ranges of whole steps, which reach over keys that none of their queries sees: a product of those
            // queries reads the elements there too.
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

    /// The piece's keys by a few.
    #[inline(always)]
    pub fn all_key_rows(&self) -> impl Iterator<Item = &Rows> {
        self.rows[..self.count].iter()
    }

    /// The piece's keys by a few, but for those that no query sees.
    #[inline(always)]
    pub fn key_rows(&self) -> impl Iterator<Item = &Rows> {
        self.all_key_rows().filter(|rows| !rows.queries.is_empty())
    }

    /// The first of each [`ROWS`] of `count` queries, and from the first to just after the last of the keys that they see.
    #[inline(always)]
    pub fn query_rows(&self, count: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let steps = self.queries[..count.div_ceil(ROWS)].iter().enumerate();
        steps.map(|(i, keys)| (i * ROWS, keys.clone()))
    }

    /// `out[key · WEIGHTS_ROW + query] = keys[key] · queries[query]` for each key of the piece with the columns of queries
    /// that may see it; the rest is left as it is. `queries` is `[depth, QUERIES]`.
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

/// Multiplies the weights with their factors.
#[inline(always)]
pub fn drop_out<S: Simd>(
    simd: S,
    dropout: HeadDropout,
    first_query: usize,
    piece: &Piece,
    cut: &Cut,
    weights: &mut [f32],
) {
    for rows in cut.key_rows() {
        for key in rows.keys.clone() {
            let of_key = dropout.of_key(piece.keys.start + key);
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
