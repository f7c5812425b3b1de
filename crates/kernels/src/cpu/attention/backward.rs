//! The backward pass by keys: the weights are made anew from the scores and each query's sum (Dao et al. 2022).
//!
//! A task has a range of one key-value head's keys, and all of the queries that see them, in order: so its keys' and
//! values' gradients are added up in one place. Where heads are few and sequences long, the keys are cut into several
//! ranges; each then makes its own share of the queries' gradients, which are added after.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::cut::Cut;
use super::dropout::HeadDropout;
use super::heads::{Heads, HeadsMut};
use super::mask::{Block, KEYS, LANES, Piece, QUERIES};
use super::scratch::{copy, take, transpose, with};
use super::softmax::weight;
use super::tile::{Left, Right, dot, multiply};
use super::{AttentionShape, Call};
use crate::cpu::parallel::{Shared, for_each};

/// Tasks that are enough for most processors.
const TASKS: usize = 32;
/// At most so many ranges of keys, since each holds gradients of the queries.
const MOST_PARTS: usize = 8;
/// Fewer keys are not worth a range.
const LEAST_KEYS: usize = 2 * KEYS;

pub struct Inputs<'a> {
    pub q: Heads<'a>,
    pub k: Heads<'a>,
    pub v: Heads<'a>,
    pub out: Heads<'a>,
    pub log_sum: &'a [f32],
    pub grad: Heads<'a>,
}

pub struct Outputs<'a> {
    pub dq: &'a HeadsMut<'a>,
    pub dk: &'a HeadsMut<'a>,
    pub dv: &'a HeadsMut<'a>,
}

/// All gradients.
pub fn backward(call: &Call<'_>, inputs: &Inputs<'_>, outputs: &Outputs<'_>) {
    let shape = call.shape;
    let AttentionShape {
        batch,
        heads,
        kv_heads,
        q_len,
        k_len,
        head_dim,
    } = *shape;
    let of_keys = batch * kv_heads;
    if of_keys * k_len * head_dim == 0 {
        return;
    }
    let parts = (k_len / LEAST_KEYS)
        .min(TASKS.div_ceil(of_keys))
        .clamp(1, MOST_PARTS);
    let step = k_len.div_ceil(parts).next_multiple_of(KEYS);
    let parts = k_len.div_ceil(step);
    let size = batch * heads * q_len * head_dim;
    let mut shares = vec![0.0; if parts > 1 { parts * size } else { 0 }];
    let shares = Shared::new(&mut shares);
    let arch = pulp::Arch::new();
    let width = head_dim.next_multiple_of(LANES);
    let longest = KEYS.min(step);
    let memory_len =
        2 * step * width + QUERIES * (2 * head_dim + 3 * width) + longest * (2 * QUERIES + width);
    for_each(of_keys * parts, |task| {
        let part = task / of_keys;
        // Outside of the dispatch: a closure within it would not be compiled for its instructions.
        with(memory_len, |memory| {
            arch.dispatch(Task {
                call,
                inputs,
                outputs,
                b: task % of_keys / kv_heads,
                kv: task % of_keys % kv_heads,
                keys: part * step..k_len.min((part + 1) * step),
                shares: (parts > 1).then_some((shares, part * size)),
                memory,
            });
        });
    });
    if parts > 1 {
        for_each(batch * heads, |head| {
            let (b, h) = (head / heads, head % heads);
            for i in 0..q_len {
                // SAFETY: no other task has this head.
                let dq = unsafe { outputs.dq.vector([b, h, i]) };
                for part in 0..parts {
                    let start = part * size + (head * q_len + i) * head_dim;
                    // SAFETY: all who wrote are done, and no other task reads this vector.
                    let share = unsafe { shares.part(start..start + head_dim) };
                    for (dq, share) in dq.iter_mut().zip(share) {
                        *dq = if part == 0 { *share } else { *dq + *share };
                    }
                }
            }
        });
    }
}

/// The keys of one range.
struct Task<'a> {
    call: &'a Call<'a>,
    inputs: &'a Inputs<'a>,
    outputs: &'a Outputs<'a>,
    b: usize,
    kv: usize,
    keys: Range<usize>,
    /// Where the queries' gradients go if this is one range of several: `[batch, heads, q_len, head_dim]` from there on.
    shares: Option<(Shared<'a, f32>, usize)>,
    memory: &'a mut [f32],
}

/// What a block of queries needs: each twice, as columns and as rows.
struct Queries<'a> {
    /// `q · scale`, `[head_dim, QUERIES]`.
    columns: &'a mut [f32],
    /// `q`, `[QUERIES, width]`.
    rows: &'a mut [f32],
    /// The output's gradient, `[head_dim, QUERIES]`.
    grad_columns: &'a mut [f32],
    /// `[QUERIES, width]`.
    grad_rows: &'a mut [f32],
    log_sums: [f32; QUERIES],
    /// `rowsum(dO ∘ O)`.
    along: [f32; QUERIES],
}

impl Queries<'_> {
    /// Makes of scores the weights, and of the weights' gradients the scores', in their places; in the latter 0 where a
    /// query does not see a key.
    #[inline(always)]
    fn pass(
        &self,
        (block, piece, cut): (&Block, &Piece, &Cut),
        dropout: Option<(HeadDropout, usize)>,
        scale: f32,
        weights: &mut [f32],
        grads: &mut [f32],
    ) {
        const COLUMNS: usize = QUERIES / LANES;
        let weights = weights.as_chunks_mut::<LANES>().0;
        let grads = grads.as_chunks_mut::<LANES>().0;
        let log_sums = self.log_sums.as_chunks::<LANES>().0;
        let along = self.along.as_chunks::<LANES>().0;
        for (key, columns) in cut.keys() {
            let weights = &mut weights[key * COLUMNS..][..COLUMNS];
            let grads = &mut grads[key * COLUMNS..][..COLUMNS];
            grads[..columns.start].fill([0.0; LANES]);
            grads[columns.end..].fill([0.0; LANES]);
            for column in columns {
                let (weights, grads) = (&mut weights[column], &mut grads[column]);
                let mut factors = [1.0; LANES];
                if let Some((dropout, first_query)) = dropout {
                    let of_key = dropout.of_key(piece.keys.start + key);
                    let query = (first_query + column * LANES) as u32;
                    for (lane, factor) in factors.iter_mut().enumerate() {
                        *factor = of_key.factor(query.wrapping_add(lane as u32));
                    }
                }
                if !piece.all {
                    block.hide(piece.keys.start + key, column, weights);
                }
                let (log_sums, along) = (&log_sums[column], &along[column]);
                for lane in 0..LANES {
                    let weight = weight(weights[lane] - log_sums[lane]);
                    let grad = grads[lane] * factors[lane];
                    weights[lane] = weight * factors[lane];
                    grads[lane] = weight * (grad - along[lane]) * scale;
                }
            }
        }
    }
}

impl WithSimd for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let Call {
            shape,
            options,
            documents,
            dropout,
        } = *self.call;
        let Inputs {
            q,
            k,
            v,
            out,
            log_sum,
            grad,
        } = self.inputs;
        let (b, kv) = (self.b, self.kv);
        let head_dim = shape.head_dim;
        let width = head_dim.next_multiple_of(LANES);
        let len = self.keys.len();
        let longest = KEYS.min(len);
        let mut memory = std::mem::take(&mut self.memory);
        let dk = take(&mut memory, len * width);
        let dv = take(&mut memory, len * width);
        let mut queries = Queries {
            columns: take(&mut memory, head_dim * QUERIES),
            rows: take(&mut memory, QUERIES * width),
            grad_columns: take(&mut memory, head_dim * QUERIES),
            grad_rows: take(&mut memory, QUERIES * width),
            log_sums: [0.0; QUERIES],
            along: [0.0; QUERIES],
        };
        let weights = take(&mut memory, longest * QUERIES);
        let scores_grad = take(&mut memory, longest * QUERIES);
        let key_rows = take(&mut memory, longest * width);
        let dq = take(&mut memory, QUERIES * width);
        dk.fill(0.0);
        dv.fill(0.0);

        let group = shape.heads / shape.kv_heads;
        for h in kv * group..(kv + 1) * group {
            let head = b * shape.heads + h;
            let of_head = dropout.map(|dropout| dropout.of_head(head));
            for from in (0..shape.q_len).step_by(QUERIES) {
                let block = Block::new(shape, options, documents, b, from);
                let seen = block.keys();
                let end = self.keys.end.min(seen.end);
                if seen.start.max(self.keys.start) >= end {
                    continue;
                }
                let at = [b, h, from];
                transpose(q, at, block.count, options.scale as f32, queries.columns);
                copy(q, at, block.count, width, queries.rows);
                transpose(grad, at, block.count, 1.0, queries.grad_columns);
                copy(grad, at, block.count, width, queries.grad_rows);
                queries.log_sums.fill(0.0);
                queries.along.fill(0.0);
                for i in 0..block.count {
                    queries.log_sums[i] = log_sum[head * shape.q_len + from + i];
                    let at = [b, h, from + i];
                    queries.along[i] = dot(simd, grad.vector(at), out.vector(at));
                }

                let mut any = false;
                // Whole pieces from the range's start, so that no two blocks cut them differently.
                let first = seen.start.max(self.keys.start) - self.keys.start;
                let mut start = self.keys.start + first / KEYS * KEYS;
                while start < end {
                    let range = start..end.min(start + KEYS);
                    start = range.end;
                    let Some(piece) = block.piece(range.clone()) else {
                        continue;
                    };
                    let len = range.len();
                    let cut = Cut::new(&block, &piece);
                    let tokens = range.clone();
                    let left = Left {
                        data: k.tokens(b, kv, tokens.clone()),
                        row: k.token_stride(),
                        step: 1,
                    };
                    cut.scores(simd, left, queries.columns, head_dim, weights);
                    let left = Left {
                        data: v.tokens(b, kv, tokens),
                        row: v.token_stride(),
                        step: 1,
                    };
                    cut.scores(simd, left, queries.grad_columns, head_dim, scores_grad);
                    queries.pass(
                        (&block, &piece, &cut),
                        of_head.map(|dropout| (dropout, from)),
                        options.scale as f32,
                        weights,
                        scores_grad,
                    );
                    let offset = (range.start - self.keys.start) * width;
                    for (rows, columns) in cut.key_rows() {
                        let place = offset + rows.start * width;
                        let left = |data| Left {
                            data,
                            row: QUERIES,
                            step: 1,
                        };
                        let right = |data| Right { data, row: width };
                        let first = rows.start * QUERIES + columns.start;
                        let size = [rows.len(), columns.len(), width];
                        multiply(
                            simd,
                            size,
                            (&mut dv[place..], width),
                            left(&weights[first..]),
                            right(&queries.grad_rows[columns.start * width..]),
                            true,
                        );
                        multiply(
                            simd,
                            size,
                            (&mut dk[place..], width),
                            left(&scores_grad[first..]),
                            right(&queries.rows[columns.start * width..]),
                            true,
                        );
                    }
                    let key_rows = &mut key_rows[..len * width];
                    copy(k, [b, kv, range.start], len, width, key_rows);
                    for (rows, keys) in cut.query_rows(&piece, block.count) {
                        multiply(
                            simd,
                            [rows.len(), keys.len(), width],
                            (&mut dq[rows.start * width..], width),
                            Left {
                                data: &scores_grad[keys.start * QUERIES + rows.start..],
                                row: 1,
                                step: QUERIES,
                            },
                            Right {
                                data: &key_rows[keys.start * width..],
                                row: width,
                            },
                            any,
                        );
                    }
                    any = true;
                }
                if any {
                    self.write_queries([h, from], block.count, dq, width);
                }
            }
        }
        for (i, (dk, dv)) in dk
            .chunks_exact(width)
            .zip(dv.chunks_exact(width))
            .enumerate()
        {
            let at = [b, kv, self.keys.start + i];
            // SAFETY: no other task has these keys of this head.
            let (k, v) = unsafe { (self.outputs.dk.vector(at), self.outputs.dv.vector(at)) };
            k.copy_from_slice(&dk[..head_dim]);
            v.copy_from_slice(&dv[..head_dim]);
        }
    }
}

impl Task<'_> {
    #[inline(always)]
    fn write_queries(&self, [h, from]: [usize; 2], count: usize, dq: &[f32], width: usize) {
        let shape = self.call.shape;
        let head_dim = shape.head_dim;
        for (i, row) in dq.chunks_exact(width).take(count).enumerate() {
            let to = match self.shares {
                Some((shares, start)) => {
                    let vector = (self.b * shape.heads + h) * shape.q_len + from + i;
                    let start = start + vector * head_dim;
                    // SAFETY: no other task has this head's queries in this range's share.
                    unsafe { shares.part(start..start + head_dim) }
                }
                // SAFETY: this task has all keys, and so these queries alone.
                None => unsafe { self.outputs.dq.vector([self.b, h, from + i]) },
            };
            to.copy_from_slice(&row[..head_dim]);
        }
    }
}
