//! How a piece of keys is cut, so that what the mask hides is mostly not computed.

use std::ops::Range;

use pulp::Simd;

use super::dropout::HeadDropout;
use super::mask::{Block, KEYS, LANES, Piece, QUERIES, ROWS};
use super::tile::{Left, Right, multiply};

/// The queries that see one of each [`ROWS`] keys, counted in [`LANES`].
pub struct Cut {
    queries: [Range<usize>; KEYS / ROWS],
    len: usize,
}

impl Cut {
    #[inline(always)]
    pub fn new(block: &Block, piece: &Piece) -> Self {
        let len = piece.keys.len();
        let mut queries = [const { 0..0 }; KEYS / ROWS];
        if piece.all {
            queries.fill(0..QUERIES / LANES);
            return Self { queries, len };
        }
        let of: [Range<usize>; QUERIES / LANES] =
            std::array::from_fn(|i| piece.keys_of(i * LANES..(i + 1) * LANES));
        let count = block.count.div_ceil(LANES);
        for (i, queries) in queries[..len.div_ceil(ROWS)].iter_mut().enumerate() {
            let keys = i * ROWS..len.min((i + 1) * ROWS);
            let (mut start, mut end) = (count, 0);
            for (i, of) in of[..count].iter().enumerate() {
                if of.start < keys.end && keys.start < of.end {
                    start = start.min(i);
                    end = i + 1;
                }
            }
            *queries = start.min(end)..end;
        }
        Self { queries, len }
    }

    /// For each key of the piece, the queries that may see it, counted in [`LANES`].
    #[inline(always)]
    pub fn keys(&self) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        (0..self.len).map(|key| (key, self.queries[key / ROWS].clone()))
    }

    /// For each few keys of the piece, the queries that may see one of them.
    #[inline(always)]
    pub fn key_rows(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + '_ {
        let rows = self.queries[..self.len.div_ceil(ROWS)].iter().enumerate();
        rows.filter(|(_, queries)| !queries.is_empty())
            .map(|(i, queries)| {
                (
                    i * ROWS..self.len.min((i + 1) * ROWS),
                    queries.start * LANES..queries.end * LANES,
                )
            })
    }

    /// For each few of `count` queries, the keys of the piece that they see.
    #[inline(always)]
    pub fn query_rows(
        &self,
        piece: &Piece,
        count: usize,
    ) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        (0..count.div_ceil(ROWS)).map(|i| {
            let rows = i * ROWS..(i + 1) * ROWS;
            (rows.clone(), piece.keys_of(rows))
        })
    }

    /// `out[key · QUERIES + query] = keys[key] · queries[query]` for each key of the piece with the queries that may see
    /// it; the rest is left as it is. `queries` is `[depth, QUERIES]`.
    #[inline(always)]
    pub fn scores<S: Simd>(
        &self,
        simd: S,
        keys: Left<'_>,
        queries: &[f32],
        depth: usize,
        out: &mut [f32],
    ) {
        for (rows, columns) in self.key_rows() {
            multiply(
                simd,
                [rows.len(), depth, columns.len()],
                (&mut out[rows.start * QUERIES + columns.start..], QUERIES),
                Left {
                    data: &keys.data[rows.start * keys.row..],
                    ..keys
                },
                Right {
                    data: &queries[columns.start..],
                    row: QUERIES,
                },
                false,
            );
        }
    }
}

/// Multiplies the weights with their factors.
#[inline(always)]
pub fn drop_out(
    dropout: HeadDropout,
    first_query: usize,
    piece: &Piece,
    cut: &Cut,
    weights: &mut [f32],
) {
    let rows = weights.as_chunks_mut::<LANES>().0;
    for (key, columns) in cut.keys() {
        let of_key = dropout.of_key(piece.keys.start + key);
        let row = &mut rows[key * (QUERIES / LANES)..][..QUERIES / LANES];
        for column in columns {
            let query = (first_query + column * LANES) as u32;
            for (lane, weight) in row[column].iter_mut().enumerate() {
                *weight *= of_key.factor(query.wrapping_add(lane as u32));
            }
        }
    }
}
