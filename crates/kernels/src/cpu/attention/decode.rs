//! Attention of few queries over many keys, as in decoding. Each key and value is read once for all of its
//! queries.

use pulp::{Simd, WithSimd};

use super::heads::{Heads, HeadsMut};
use super::mask::VisibleKeys;
use super::scores::ScoreTerms;
use super::scratch::with;
use super::softmax::finished;
use super::tile::dot;
use super::vectors::TokenVectors;
use super::{AttentionShape, Call};
use crate::KEY_BLOCK;
use crate::cpu::parallel::{Shared, for_each};
use crate::cpu::vector::{exp, max, sum};

/// The maximum number of queries per key-value head.
const MOST_QUERIES: usize = 8;
/// The number of keys per task.
const KEYS: usize = KEY_BLOCK;
/// The number of elements of keys and values below which a single thread is faster than starting several.
const SMALL: usize = 1 << 15;

/// Returns true if [`decode`] is faster than the blocked forward pass.
pub fn suits(shape: &AttentionShape) -> bool {
    shape.q_len * (shape.heads / shape.kv_heads) <= MOST_QUERIES && shape.q_len * 8 <= shape.k_len
        || shape.q_len == 1
}

/// Attention over chunks of keys, each with its own softmax. The results are combined in the order of the keys.
pub fn decode<K: TokenVectors>(
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
        kv_heads,
        q_len,
        k_len,
        head_dim,
    } = *call.shape;
    let group = heads / kv_heads;
    let chunks = k_len.div_ceil(KEYS);
    let tasks = batch * kv_heads * chunks;
    // For each query in each chunk: the weighted sum of the values, the sum of the weights and the largest score.
    let partial_len = head_dim + 2;
    let task_len = group * q_len * partial_len;
    let mut partials = vec![0.0; tasks * task_len];
    let shared = Shared::new(&mut partials);
    let arch = pulp::Arch::new();
    let task = |task: usize| {
        let (kv, chunk) = (task / chunks, task % chunks);
        // SAFETY: each task has its own range.
        let partials = unsafe { shared.part(task * task_len..(task + 1) * task_len) };
        let len = KEYS.min(k_len - chunk * KEYS);
        with(group * q_len * len + k.scratch_len(K::BLOCK), |memory| {
            arch.dispatch(ChunkTask {
                call,
                q: &q,
                k,
                v,
                b: kv / kv_heads,
                kv: kv % kv_heads,
                first: chunk * KEYS,
                len,
                partials,
                memory,
            })
        });
    };
    if batch * kv_heads * k_len * head_dim <= SMALL {
        (0..tasks).for_each(task);
    } else {
        for_each(tasks, task);
    }

    for b in 0..batch {
        for h in 0..heads {
            for i in 0..q_len {
                let (kv, row) = (b * kv_heads + h / group, h % group * q_len + i);
                let of_chunk = |chunk: usize| {
                    let start = (kv * chunks + chunk) * task_len + row * partial_len;
                    &partials[start..start + partial_len]
                };
                // SAFETY: only this thread writes.
                let out = unsafe { out.vector([b, h, i]) };
                let sum = combine(out, chunks, of_chunk, call.sink(h));
                if let Some(log_sum) = log_sum {
                    let at = (b * heads + h) * q_len + i;
                    // SAFETY: as above.
                    unsafe { log_sum.part(at..at + 1)[0] = sum };
                }
            }
        }
    }
}

/// Combines the chunks to the output of a query and returns the logarithm of the sum; zeros and the sink or -∞ if it has no
/// visible key.
fn combine<'a>(
    out: &mut [f32],
    chunks: usize,
    of_chunk: impl Fn(usize) -> &'a [f32],
    sink: Option<f32>,
) -> f32 {
    let len = out.len();
    let largest = (0..chunks).map(|chunk| of_chunk(chunk)[len + 1]);
    let largest = largest.fold(f32::NEG_INFINITY, f32::max);
    // Without any visible key, -∞ - (-∞) would be NaN.
    let shift = if largest == f32::NEG_INFINITY {
        0.0
    } else {
        largest
    };
    let mut total = 0.0;
    out.fill(0.0);
    for chunk in (0..chunks).map(of_chunk) {
        let factor = exp(chunk[len + 1] - shift);
        total += chunk[len] * factor;
        for (out, x) in out.iter_mut().zip(chunk) {
            *out += x * factor;
        }
    }
    let (factor, log_sum) = finished(largest, total, sink);
    match sink {
        None if total == 0.0 => {}
        None => out.iter_mut().for_each(|out| *out /= total),
        Some(_) => out.iter_mut().for_each(|out| *out *= factor),
    }
    log_sum
}

/// A chunk of keys with all queries that share its head.
struct ChunkTask<'a, K> {
    call: &'a Call<'a>,
    q: &'a Heads<'a>,
    k: K,
    v: K,
    b: usize,
    kv: usize,
    first: usize,
    len: usize,
    partials: &'a mut [f32],
    memory: &'a mut [f32],
}

impl<K: TokenVectors> WithSimd for ChunkTask<'_, K> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Call {
            shape,
            options,
            mask,
            ..
        } = *self.call;
        let group = shape.heads / shape.kv_heads;
        let count = group * shape.q_len;
        let head_dim = shape.head_dim;
        let (scores, unpacked) = self.memory.split_at_mut(count * self.len);
        scores.fill(f32::NEG_INFINITY);
        for start in (0..self.len).step_by(K::BLOCK) {
            let end = self.len.min(start + K::BLOCK);
            let (keys, stride) = self.k.rows(
                [self.b, self.kv],
                self.first + start..self.first + end,
                unpacked,
            );
            for row in 0..count {
                let query = row % shape.q_len;
                let seen = VisibleKeys::new(shape, options, mask.documents, self.b, query);
                let head = self.kv * group + row / shape.q_len;
                let query = self.q.vector([self.b, head, query]);
                let scores = &mut scores[row * self.len..][start..end];
                // The first query reads the keys from memory, the others from the cache.
                for (key, score) in scores.iter_mut().enumerate() {
                    if seen.sees((self.first + start + key) as i32) {
                        let key = &keys[key * stride..][..head_dim];
                        *score = dot(simd, query, key) * options.scale as f32;
                    }
                }
            }
        }
        for row in 0..count {
            let head = self.kv * group + row / shape.q_len;
            let scores = &mut scores[row * self.len..][..self.len];
            if let Some(terms) = ScoreTerms::new(self.call, self.b, head) {
                terms.row(row % shape.q_len, self.first, scores);
            }
            let partial = &mut self.partials[row * (head_dim + 2)..][..head_dim + 2];
            let (mixed, rest) = partial.split_at_mut(head_dim);
            let largest = max(scores);
            let shift = if largest == f32::NEG_INFINITY {
                0.0
            } else {
                largest
            };
            for score in scores.iter_mut() {
                *score = exp(*score - shift);
            }
            rest[0] = sum(scores);
            rest[1] = largest;
            mixed.fill(0.0);
        }
        for start in (0..self.len).step_by(K::BLOCK) {
            let end = self.len.min(start + K::BLOCK);
            let (values, stride) = self.v.rows(
                [self.b, self.kv],
                self.first + start..self.first + end,
                unpacked,
            );
            let vector = |key: usize| &values[(key - start) * stride..][..head_dim];
            let mut key = start;
            while key < end {
                let four = key + 4 <= end;
                for row in 0..count {
                    let weights = &scores[row * self.len..][..self.len];
                    let mixed = &mut self.partials[row * (head_dim + 2)..][..head_dim];
                    if four {
                        let Some(&[a, b, c, d]) = weights[key..].first_chunk() else {
                            continue;
                        };
                        let (v, w) = (vector(key), vector(key + 1));
                        let (x, y) = (vector(key + 2), vector(key + 3));
                        if a + b + c + d == 0.0 {
                            continue;
                        }
                        let values = v.iter().zip(w).zip(x.iter().zip(y));
                        for (mixed, ((v, w), (x, y))) in mixed.iter_mut().zip(values) {
                            *mixed += (a * v + b * w) + (c * x + d * y);
                        }
                    } else {
                        let weight = weights[key];
                        for (mixed, x) in mixed.iter_mut().zip(vector(key)) {
                            *mixed += weight * *x;
                        }
                    }
                }
                key += if four { 4 } else { 1 };
            }
        }
    }
}
