//! The forward pass, by blocks of queries.
//!
//! Each block iterates over the keys in chunks with an online softmax (Milakov and Gimelshein 2018; Dao et al.
//! 2022). Scores are stored with keys as rows and queries as columns. Vectors thereby run along the queries, and
//! the softmax needs no sums across the lanes of a vector.

use pulp::{Simd, WithSimd};

use super::heads::{Heads, HeadsMut};
use super::mask::{Block, KEYS, LANES, QUERIES, ROWS, WEIGHTS_ROW};
use super::rows::scale_row;
use super::scores::{Apply, ScoreTerms, Tile};
use super::scratch::{copy, take, with};
use super::softmax::{Softmax, finished};
use super::tile::{Left, Right, multiply};
use super::transpose::transpose;
use super::vectors::TokenVectors;
use super::visibility::{Visibility, drop_out};
use super::{AttentionShape, Call, tiles};
use crate::cpu::parallel::{Shared, for_each};

/// Computes attention for each block of queries of each head.
pub fn forward<K: TokenVectors>(
    call: &Call<'_>,
    q: Heads<'_>,
    k: K,
    v: K,
    out: &HeadsMut<'_>,
    log_sum: Option<Shared<'_, f32>>,
) {
    let AttentionShape {
        batch,
        heads,
        q_len,
        k_len,
        head_dim,
        ..
    } = *call.shape;
    let blocks = q_len.div_ceil(QUERIES);
    let arch = pulp::Arch::new();
    let width = head_dim.next_multiple_of(LANES);
    let longest = KEYS.min(k_len);
    let [left_len, right_len] = tiles::lens(call.rounds, width);
    let memory_len = left_len
        + 2 * right_len
        + 2 * QUERIES * width
        + longest * (WEIGHTS_ROW + width)
        + k.scratch_len(longest);
    for_each(batch * heads * blocks, |task| {
        // The last blocks have the most visible keys, so they start first.
        let block = blocks - 1 - task / (batch * heads);
        let (b, h) = (
            task % (batch * heads) / heads,
            task % (batch * heads) % heads,
        );
        // Outside the dispatch: a closure within it would not be compiled for its instruction set.
        with(memory_len, |memory| {
            arch.dispatch(Task {
                call,
                q,
                k,
                v,
                out,
                log_sum,
                b,
                h,
                from: block * QUERIES,
                memory,
            });
        });
    });
}

struct Task<'a, K> {
    call: &'a Call<'a>,
    q: Heads<'a>,
    k: K,
    v: K,
    out: &'a HeadsMut<'a>,
    log_sum: Option<Shared<'a, f32>>,
    b: usize,
    h: usize,
    from: usize,
    memory: &'a mut [f32],
}

impl<K: TokenVectors> WithSimd for Task<'_, K> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Call {
            shape,
            options,
            mask,
            dropout,
            rounds,
        } = *self.call;
        let registers = self.call.registers();
        let (b, h) = (self.b, self.h);
        let head_dim = shape.head_dim;
        let width = head_dim.next_multiple_of(LANES);
        let kv = h / (shape.heads / shape.kv_heads);
        let block = Block::new(shape, options, mask.documents, b, self.from);
        let terms = ScoreTerms::new(self.call, b, h);
        let dropout = dropout.map(|dropout| dropout.of_head(b * shape.heads + h));
        let keys = block.keys();
        let longest = KEYS.min(shape.k_len);
        let mut memory = self.memory;
        // First, since it is aligned.
        let [left_len, right_len] = tiles::lens(rounds, width);
        let [left, right, packed] =
            [left_len, right_len, right_len].map(|len| take(&mut memory, len));
        let queries = take(&mut memory, width * QUERIES);
        let weights = take(&mut memory, longest * WEIGHTS_ROW);
        let values = take(&mut memory, longest * width);
        let mixed = take(&mut memory, QUERIES * width);
        let unpacked = take(&mut memory, self.k.scratch_len(longest));
        let at = [b, h, self.from];
        copy(&self.q, at, block.count, width, mixed);
        transpose(simd, mixed, width, options.scale as f32, queries);
        let tiles = registers.as_ref().map(|registers| {
            let queries = tiles::rows(queries, [head_dim, QUERIES], QUERIES);
            (registers, registers.pack_right(queries, packed))
        });
        let mut softmax = Softmax::new();
        let mut seen_any = false;
        let mut start = keys.start;
        while start < keys.end {
            let range = start..keys.end.min(start + KEYS);
            start = range.end;
            let Some(chunk) = block.chunk(range.clone()) else {
                continue;
            };
            let visibility = Visibility::new(&block, &chunk);
            let (rows, row) = self.k.rows([b, kv], range.clone(), unpacked);
            let columns = (&*queries, head_dim);
            tiles::scores(
                simd,
                &visibility,
                (rows, row),
                columns,
                tiles,
                left,
                weights,
            );
            if let Some(terms) = terms {
                simd.vectorize(Apply {
                    terms,
                    tile: Tile {
                        from: self.from,
                        count: block.count,
                        first_key: range.start,
                        visibility: &visibility,
                    },
                    scores: weights,
                    slopes: &mut [],
                });
            }
            softmax.pass(simd, &block, &chunk, &visibility, weights);
            if let Some(dropout) = dropout {
                drop_out(simd, dropout, self.from, &chunk, &visibility, weights);
            }
            // A single block of queries reads the values in place. For more, it is faster to copy them to
            // contiguous memory.
            let in_place = shape.q_len <= QUERIES && head_dim == width;
            let (values, values_row) = if in_place || tiles.is_some() {
                self.v.rows([b, kv], range.clone(), values)
            } else {
                let values = &mut values[..range.len() * width];
                self.v.copy_to([b, kv], range.clone(), width, values);
                (&*values, width)
            };
            if seen_any {
                for (row, factor) in mixed.chunks_exact_mut(width).zip(softmax.correction) {
                    if factor != 1.0 {
                        row.iter_mut().for_each(|x| *x *= factor);
                    }
                }
            }
            if let Some((registers, _)) = tiles {
                visibility.clear_others(weights);
                let weights = tiles::of_chunk(weights, range.len()).transposed();
                let weights = registers.pack_left(weights, left);
                let values = tiles::rows(values, [range.len(), head_dim], values_row);
                let values = registers.pack_right(values, right);
                // SAFETY: `mixed` has a row for each query and is borrowed exclusively.
                unsafe {
                    tiles::by_queries(
                        registers,
                        &visibility,
                        (weights, values),
                        (mixed.as_mut_ptr(), width),
                        [QUERIES, head_dim],
                        seen_any,
                    );
                }
                seen_any = true;
                continue;
            }
            for (row, keys) in visibility.query_rows(block.count) {
                multiply(
                    simd,
                    [ROWS, keys.len(), width],
                    (&mut mixed[row * width..], width),
                    Left {
                        data: &weights[keys.start * WEIGHTS_ROW + row..],
                        row: 1,
                        step: WEIGHTS_ROW,
                    },
                    Right {
                        data: &values[keys.start * values_row..],
                        row: values_row,
                    },
                    seen_any,
                );
            }
            seen_any = true;
        }
        let sink = self.call.sink(h);
        let start = (b * shape.heads + h) * shape.q_len + self.from;
        // SAFETY: no other task has these queries of this head.
        let part = start..start + block.count;
        let mut log_sums = self.log_sum.map(|all| unsafe { all.part(part) });
        for i in 0..block.count {
            // SAFETY: no other task has this query of this head.
            let out = unsafe { self.out.vector([b, h, self.from + i]) };
            // For a query without a visible key, `mixed` is zero.
            let (factor, log_sum) = finished(softmax.largest[i], softmax.sums[i], sink);
            scale_row(simd, factor, &mixed[i * width..], out);
            if let Some(log_sums) = &mut log_sums {
                log_sums[i] = log_sum;
            }
        }
    }
}
