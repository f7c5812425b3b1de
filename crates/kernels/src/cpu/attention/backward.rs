//! The backward pass, by keys. The weights are recomputed from the scores and the log-sums of the queries (Dao et
//! al. 2022).
//!
//! A task processes a range of the keys of one key-value head, with all queries that can attend to them, in
//! order. The gradients of its keys and values are thereby accumulated by one task. If there are few heads and
//! long sequences, the keys are split into several ranges. Each range then accumulates its own contribution to
//! the gradients of the queries, and these are summed afterwards.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::heads::{HeadStrides, Heads, HeadsMut};
use super::mask::{Block, KEYS, LANES, QUERIES, ROWS, WEIGHTS_ROW};
use super::prefetch::prefetch_tokens;
use super::scores::{Apply, Differentiate, ScoreTerms, Tile, slopes_len};
use super::scratch::{copy, take, with};
use super::softmax::SoftmaxGradient;
use super::tile::{Left, Right, dot, multiply_at};
use super::tiles::PackedQueries;
use super::transpose::transpose;
use super::visibility::Visibility;
use super::{AttentionShape, Call, tiles};
use crate::cpu::parallel::{Shared, for_each};

/// The number of tasks to aim for, enough for most CPUs.
const TASKS: usize = 32;
/// The maximum number of key ranges, since each holds gradients of all queries.
const MOST_PARTS: usize = 8;
/// The minimum number of keys per range.
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
    /// `[heads, q_len, k_len]`, initialized to zeros.
    pub dbias: Option<Shared<'a, f32>>,
}

/// Computes all gradients.
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
    let mut views = vec![];
    if parts > 1 {
        let (dims, strides) = (shape.q_dims(), HeadStrides::contiguous(shape.q_dims()));
        for part in 0..parts {
            // SAFETY: the parts do not overlap, and are read after the tasks have finished.
            views.push(unsafe { HeadsMut::from_shared(shares, part * size, strides, dims) });
        }
    }
    let arch = pulp::Arch::new();
    let width = head_dim.next_multiple_of(LANES);
    let longest = KEYS.min(step);
    let [left_len, right_len] = tiles::lens(call.rounds, width);
    let memory_len = left_len
        + 5 * right_len
        + 2 * step * width
        + 5 * QUERIES * width
        + longest * (2 * WEIGHTS_ROW + width)
        + slopes_len(call, longest);
    let run = |part: usize, [b, kv]: [usize; 2], next: Option<[usize; 2]>| {
        // Outside the dispatch: a closure within it would not be compiled for its instruction set.
        with(memory_len, |memory| {
            arch.dispatch(Task {
                call,
                inputs,
                outputs,
                b,
                kv,
                next,
                keys: part * step..k_len.min((part + 1) * step),
                dq: views.get(part).unwrap_or(outputs.dq),
                memory,
            });
        });
    };
    if outputs.dbias.is_some() {
        // The gradient of the bias is summed over the sequences: one task adds all of them, in order.
        for_each(kv_heads * parts, |task| {
            (0..batch).for_each(|b| run(task / kv_heads, [b, task % kv_heads], None));
        });
    } else {
        for_each(of_keys * parts, |task| {
            let head = |task: usize| [task % of_keys / kv_heads, task % of_keys % kv_heads];
            let next = heads == kv_heads && q_len <= QUERIES && task + 1 < of_keys;
            run(task / of_keys, head(task), next.then(|| head(task + 1)));
        });
    }
    if parts > 1 {
        for_each(batch * heads, |head| {
            let (b, h) = (head / heads, head % heads);
            for i in 0..q_len {
                // SAFETY: no other task has this head.
                let dq = unsafe { outputs.dq.vector([b, h, i]) };
                for part in 0..parts {
                    let start = part * size + (head * q_len + i) * head_dim;
                    // SAFETY: the tasks that wrote the shares have finished, and no other task reads this vector.
                    let share = unsafe { shares.part(start..start + head_dim) };
                    for (dq, share) in dq.iter_mut().zip(share) {
                        *dq = if part == 0 { *share } else { *dq + *share };
                    }
                }
            }
        });
    }
}

/// The gradients for one range of keys.
struct Task<'a> {
    call: &'a Call<'a>,
    inputs: &'a Inputs<'a>,
    outputs: &'a Outputs<'a>,
    b: usize,
    kv: usize,
    /// The sequence and head of the next task, if it is as short as this one; its vectors are prefetched.
    next: Option<[usize; 2]>,
    keys: Range<usize>,
    /// The gradients of the queries, or the contribution of this range if there are several.
    dq: &'a HeadsMut<'a>,
    memory: &'a mut [f32],
}

/// The tensors of a block of queries, each both as columns and as rows.
struct Queries<'a> {
    /// `q · scale`, `[width, QUERIES]`.
    columns: &'a mut [f32],
    /// `q`, `[QUERIES, width]`.
    rows: &'a mut [f32],
    /// The gradient of the output, `[width, QUERIES]`.
    grad_columns: &'a mut [f32],
    /// The gradient of the output, `[QUERIES, width]`.
    grad_rows: &'a mut [f32],
    softmax: SoftmaxGradient,
}

impl WithSimd for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let Call {
            shape,
            options,
            mask,
            dropout,
            rounds,
        } = *self.call;
        let registers = self.call.registers();
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
        // First, since it is aligned.
        let [left_len, right_len] = tiles::lens(rounds, width);
        let left = take(&mut memory, left_len);
        let right = take(&mut memory, right_len);
        let mut packed = [(); 4].map(|()| take(&mut memory, right_len));
        let dk = take(&mut memory, len * width);
        let dv = take(&mut memory, len * width);
        let mut queries = Queries {
            columns: take(&mut memory, width * QUERIES),
            rows: take(&mut memory, QUERIES * width),
            grad_columns: take(&mut memory, width * QUERIES),
            grad_rows: take(&mut memory, QUERIES * width),
            softmax: SoftmaxGradient::new(),
        };
        let weights = take(&mut memory, longest * WEIGHTS_ROW);
        let scores_grad = take(&mut memory, longest * WEIGHTS_ROW);
        let key_rows = take(&mut memory, longest * width);
        let dq = take(&mut memory, QUERIES * width);
        let slopes = take(&mut memory, slopes_len(self.call, longest));
        let scale = options.scale as f32;
        let group = shape.heads / shape.kv_heads;
        // With a single block of queries and a single chunk of keys, each gradient is final and is written to the
        // outputs directly.
        let single_pass = group == 1
            && (1..=QUERIES).contains(&shape.q_len)
            && shape.k_len <= KEYS
            && head_dim == width;
        let keys_at = [b, kv, self.keys.start];
        let (dk_rows, dv_rows) = if single_pass {
            let Outputs { dk, dv, .. } = self.outputs;
            (dk.rows(keys_at, len), dv.rows(keys_at, len))
        } else {
            dk.fill(0.0);
            dv.fill(0.0);
            ((dk.as_mut_ptr(), width), (dv.as_mut_ptr(), width))
        };
        for h in kv * group..(kv + 1) * group {
            let head = b * shape.heads + h;
            let of_head = dropout.map(|dropout| dropout.of_head(head));
            let terms = ScoreTerms::new(self.call, b, h);
            for from in (0..shape.q_len).step_by(QUERIES) {
                let block = Block::new(shape, options, mask.documents, b, from);
                let seen = block.keys();
                let end = self.keys.end.min(seen.end);
                if seen.start.max(self.keys.start) >= end {
                    continue;
                }
                let at = [b, h, from];
                copy(q, at, block.count, width, queries.rows);
                transpose(simd, queries.rows, width, scale, queries.columns);
                copy(grad, at, block.count, width, queries.grad_rows);
                transpose(simd, queries.grad_rows, width, 1.0, queries.grad_columns);
                let tiles = registers.as_ref().map(|registers| {
                    let Queries { columns, rows, .. } = &queries;
                    let of = [columns, &queries.grad_columns, rows, &queries.grad_rows];
                    let of = of.map(|of| &**of);
                    let memory = packed.each_mut().map(|memory| &mut **memory);
                    PackedQueries::new(registers, of, [head_dim, width], memory)
                });
                queries.softmax = SoftmaxGradient::new();
                for i in 0..block.count {
                    // A query without a visible key: its scores are -∞, and -∞ - 0 gives a weight of 0.
                    let sum = log_sum[head * shape.q_len + from + i];
                    queries.softmax.log_sums[i] = if sum == f32::NEG_INFINITY { 0.0 } else { sum };
                    let grad = &queries.grad_rows[i * width..][..head_dim];
                    queries.softmax.along[i] = dot(simd, grad, out.vector([b, h, from + i]));
                }

                let mut any = false;
                // Whole chunks counted from the start of the range, so all blocks use the same chunks.
                let first = seen.start.max(self.keys.start) - self.keys.start;
                let mut start = self.keys.start + first / KEYS * KEYS;
                while start < end {
                    let range = start..end.min(start + KEYS);
                    start = range.end;
                    let Some(chunk) = block.chunk(range.clone()) else {
                        continue;
                    };
                    let len = range.len();
                    let visibility = Visibility::new(&block, &chunk);
                    let tokens = range.clone();
                    tiles::scores(
                        simd,
                        &visibility,
                        (k.tokens(b, kv, tokens.clone()), k.token_stride()),
                        (queries.columns, head_dim),
                        tiles.as_ref().map(PackedQueries::of_keys),
                        left,
                        weights,
                    );
                    let tile = Tile {
                        from,
                        count: block.count,
                        first_key: range.start,
                        visibility: &visibility,
                    };
                    if let Some(terms) = terms {
                        simd.vectorize(Apply {
                            terms,
                            tile,
                            scores: weights,
                            slopes,
                        });
                    }
                    tiles::scores(
                        simd,
                        &visibility,
                        (v.tokens(b, kv, tokens.clone()), v.token_stride()),
                        (queries.grad_columns, head_dim),
                        tiles.as_ref().map(PackedQueries::of_values),
                        left,
                        scores_grad,
                    );
                    queries.softmax.pass(
                        simd,
                        (&block, &chunk, &visibility),
                        of_head.map(|dropout| (dropout, from)),
                        if terms.is_some() { 1.0 } else { scale },
                        weights,
                        scores_grad,
                    );
                    if let Some(terms) = terms {
                        simd.vectorize(Differentiate {
                            terms,
                            tile,
                            scale,
                            grads: scores_grad,
                            slopes,
                            dbias: self.outputs.dbias,
                            bias_start: h * shape.q_len * shape.k_len,
                        });
                    }
                    let offset = range.start - self.keys.start;
                    let (dq_out, dq_row) = if single_pass {
                        self.dq.rows([b, h, from], block.count)
                    } else {
                        (dq.as_mut_ptr(), width)
                    };
                    if let Some(tiles) = &tiles {
                        let at =
                            |(out, row): (*mut f32, usize)| (out.wrapping_add(offset * row), row);
                        let outputs = [at(dv_rows), at(dk_rows), (dq_out, dq_row)];
                        let keys = k.tokens(b, kv, tokens);
                        let keys = tiles::rows(keys, [len, head_dim], k.token_stride());
                        // SAFETY: rows of these keys, in `dk` and `dv` of this task, or in the outputs, where no other
                        // task has these keys of this head; and of these queries, in `dq`, or in the output likewise.
                        unsafe {
                            tiles.gradients(
                                &visibility,
                                [weights, scores_grad],
                                (keys, block.count),
                                outputs,
                                [!single_pass, any],
                                [left, right],
                            );
                        }
                        any = true;
                        continue;
                    }
                    // One after the other, so the operands of each stay in the L1 cache.
                    for ((out, out_row), left, right, to_prefetch) in [
                        (dv_rows, &*weights, &*queries.grad_rows, [q, k]),
                        (dk_rows, &*scores_grad, &*queries.rows, [grad, v]),
                    ] {
                        for rows in visibility.all_key_rows() {
                            if rows.queries.is_empty() && !single_pass {
                                continue;
                            }
                            if let Some([b, h]) = self.next {
                                prefetch_tokens(to_prefetch[0], [b, h, rows.keys.start], ROWS);
                                prefetch_tokens(to_prefetch[1], [b, h, rows.keys.start], ROWS);
                            }
                            let query = rows.queries.start;
                            let place = (offset + rows.keys.start) * out_row;
                            // SAFETY: rows of these keys, in `dk` and `dv` of this task, or in the outputs, where
                            // no other task has these keys of this head.
                            unsafe {
                                multiply_at(
                                    simd,
                                    [rows.keys.len(), rows.queries.len(), width],
                                    (out.wrapping_add(place), out_row),
                                    Left {
                                        data: &left[rows.keys.start * WEIGHTS_ROW + query..],
                                        row: WEIGHTS_ROW,
                                        step: 1,
                                    },
                                    Right {
                                        data: &right[query * width..],
                                        row: width,
                                    },
                                    !single_pass,
                                );
                            }
                        }
                    }
                    let (keys_data, keys_row) = if single_pass {
                        (k.tokens(b, kv, range.clone()), k.token_stride())
                    } else {
                        copy(
                            k,
                            [b, kv, range.start],
                            len,
                            width,
                            &mut key_rows[..len * width],
                        );
                        (&*key_rows, width)
                    };
                    for (row, keys) in visibility.query_rows(block.count) {
                        if let Some([b, h]) = self.next {
                            prefetch_tokens(out, [b, h, row], ROWS);
                        }
                        // SAFETY: rows of these queries, in `dq`, which has space for a block, or in the output,
                        // where no other task has these queries of this head.
                        unsafe {
                            multiply_at(
                                simd,
                                [ROWS.min(block.count - row), keys.len(), width],
                                (dq_out.wrapping_add(row * dq_row), dq_row),
                                Left {
                                    data: &scores_grad[keys.start * WEIGHTS_ROW + row..],
                                    row: 1,
                                    step: WEIGHTS_ROW,
                                },
                                Right {
                                    data: &keys_data[keys.start * keys_row..],
                                    row: keys_row,
                                },
                                any,
                            );
                        }
                    }
                    any = true;
                }
                if any && !single_pass {
                    // SAFETY: no other task has these queries of this head in this view.
                    unsafe { self.dq.write([b, h, from], block.count, dq, width) };
                }
            }
        }
        if !single_pass {
            // SAFETY: no other task has these keys of this head.
            unsafe {
                self.outputs.dk.write(keys_at, len, dk, width);
                self.outputs.dv.write(keys_at, len, dv, width);
            }
        }
    }
}
