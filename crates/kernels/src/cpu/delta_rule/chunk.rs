//! The tokens of a chunk: keys and queries of a head of keys, and the fading of a head of values.

use std::ops::Range;

use super::inputs::{CHUNK, Inputs, Task};
use crate::Precision;
use crate::cpu::matrix::{Matrix, MatrixMut, Output};
use crate::cpu::product::product_here;
use crate::cpu::reduce::inner_product;
use crate::cpu::vector::{exp, wide};

/// Added to the squared norm of queries and keys.
pub(crate) const EPSILON: f32 = 1e-6;

/// The norm of a query.
#[inline(always)]
pub(super) fn key_scale(key_dim: usize) -> f32 {
    1.0 / (key_dim as f32).sqrt()
}

/// The factor that gives a vector the norm 1.
#[inline(always)]
pub(super) fn norm_factor(x: &[f32]) -> f32 {
    1.0 / (inner_product(x, x) + EPSILON).sqrt()
}

/// `C = A B` or `C += A B` in f32 on this thread.
pub(super) fn multiply(c: MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>, output: Output) {
    product_here(c, a, b, output, Precision::F32);
}

/// Queries and keys of a head of keys, normalized.
pub(super) struct Chunk {
    /// The tokens of the sequence.
    pub(super) rows: Range<usize>,
    /// `[len, key_dim]`.
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    /// `k kᵀ`, `[len, len]`.
    pub(super) keys: Vec<f32>,
    /// `q kᵀ`, `[len, len]`.
    pub(super) queries: Vec<f32>,
    key_dim: usize,
}

impl Chunk {
    pub(super) fn new(inputs: &Inputs<'_>) -> Self {
        let len = CHUNK.min(inputs.tokens[1]);
        let key_dim = inputs.heads.key_dim;
        Self {
            rows: 0..0,
            q: vec![0.0; len * key_dim],
            k: vec![0.0; len * key_dim],
            keys: vec![0.0; len * len],
            queries: vec![0.0; len * len],
            key_dim,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The queries, `[len, key_dim]`.
    pub(super) fn q(&self) -> Matrix<'_> {
        Matrix::row_major(&self.q, self.len(), self.key_dim)
    }

    /// The keys, `[len, key_dim]`.
    pub(super) fn k(&self) -> Matrix<'_> {
        Matrix::row_major(&self.k, self.len(), self.key_dim)
    }

    /// Takes the tokens `rows` of the task's sequence.
    pub(super) fn load(&mut self, inputs: &Inputs<'_>, task: Task, rows: Range<usize>) {
        let first = inputs.rows(task.sequence).start;
        let [q_columns, k_columns] = inputs.heads.key_columns(task.key_head);
        let width = self.key_dim;
        let (q, k) = (&mut self.q, &mut self.k);
        let taken = rows.clone();
        wide(
            #[inline(always)]
            || {
                let outputs = q.chunks_exact_mut(width).zip(k.chunks_exact_mut(width));
                for (row, (q, k)) in taken.zip(outputs) {
                    let channels = inputs.channels(first + row);
                    normalize(&channels[q_columns.clone()], key_scale(width), q);
                    normalize(&channels[k_columns.clone()], 1.0, k);
                }
            },
        );
        self.rows = rows;
        let len = self.len();
        let mut keys = std::mem::take(&mut self.keys);
        let mut queries = std::mem::take(&mut self.queries);
        let transposed = self.k().transposed();
        let into = MatrixMut::row_major(&mut keys, len, len);
        multiply(into, self.k(), transposed, Output::Overwrite);
        let into = MatrixMut::row_major(&mut queries, len, len);
        multiply(into, self.q(), transposed, Output::Overwrite);
        (self.keys, self.queries) = (keys, queries);
    }
}

/// Writes `x` with the norm `scale`.
#[inline(always)]
fn normalize(x: &[f32], scale: f32, out: &mut [f32]) {
    let factor = scale * norm_factor(x);
    for (out, x) in out.iter_mut().zip(x) {
        *out = factor * x;
    }
}

/// The fading of a head's memory within a chunk. `G_i` is the sum of the decays until token `i`.
pub(super) struct Fading {
    /// `G`.
    sums: Vec<f64>,
    /// `e^{G_i}`, `[len]`.
    pub(super) since_start: Vec<f32>,
    /// `e^{G_n - G_i}`, `[len]`.
    pub(super) until_end: Vec<f32>,
    /// `e^{G_i - G_j}` for `j ≤ i`, `[len, len]`. The elements above the diagonal are 0.
    pub(super) between: Vec<f32>,
    /// `e^{G_n}`.
    pub(super) whole: f32,
}

impl Fading {
    pub(super) fn new(inputs: &Inputs<'_>) -> Self {
        let len = CHUNK.min(inputs.tokens[1]);
        Self {
            sums: Vec::with_capacity(len),
            since_start: vec![0.0; len],
            until_end: vec![0.0; len],
            between: vec![0.0; len * len],
            whole: 1.0,
        }
    }

    /// Takes the tokens of the rows `rows` of all inputs.
    pub(super) fn load(&mut self, inputs: &Inputs<'_>, head: usize, rows: Range<usize>) {
        let len = rows.len();
        self.sums.clear();
        let mut sum = 0.0;
        for row in rows {
            sum += f64::from(inputs.decay(row, head));
            self.sums.push(sum);
        }
        self.whole = exp(sum as f32);
        let (sums, between) = (&self.sums, &mut self.between[..len * len]);
        let (since, until) = (&mut self.since_start, &mut self.until_end);
        wide(
            #[inline(always)]
            || {
                for (i, row) in between.chunks_exact_mut(len).enumerate() {
                    since[i] = exp(sums[i] as f32);
                    until[i] = exp((sum - sums[i]) as f32);
                    let (before, after) = row.split_at_mut(i + 1);
                    for (out, earlier) in before.iter_mut().zip(sums) {
                        *out = exp((sums[i] - earlier) as f32);
                    }
                    after.fill(0.0);
                }
            },
        );
    }
}

/// Writes the rows of `x`, each times its factor.
#[inline(always)]
pub(super) fn scale_rows(x: &[f32], factors: &[f32], width: usize, out: &mut [f32]) {
    let rows = x.chunks_exact(width).zip(factors);
    for (out, (x, factor)) in out.chunks_exact_mut(width).zip(rows) {
        for (out, x) in out.iter_mut().zip(x) {
            *out = factor * x;
        }
    }
}
