//! The passes over a head's memory.

use std::ops::Range;

use super::chunk::{Chunk, Fading, multiply, scale_rows};
use super::inputs::{CHUNK, Inputs, Task};
use crate::cpu::matrix::{Matrix, MatrixMut, Output};
use crate::cpu::reduce::add_scaled;
use crate::cpu::vector::wide;

/// The rows of a triangular system that are solved together. Those before them are subtracted by a product.
pub(super) const BLOCK: usize = 16;

/// A task's pass over its tokens.
pub(super) struct Forward<'a> {
    pub(super) inputs: Inputs<'a>,
    pub(super) task: Task,
    pub(super) chunk: Chunk,
    pub(super) fading: Fading,
    /// The rates of the head, `[len]`.
    pub(super) rates: Vec<f32>,
    /// The values that the memory has for the keys of the chunk, without fading: `[len, value_dim]`.
    pub(super) known: Vec<f32>,
    /// The values that the tokens add to the memory, `[len, value_dim]`.
    pub(super) written: Vec<f32>,
    /// `-A`, `[len, len]`.
    pub(super) system: Vec<f32>,
    /// Keys or queries times the fading of their token, `[len, key_dim]`.
    scaled: Vec<f32>,
    /// `q kᵀ` times the fading between the tokens, `[len, len]`.
    within: Vec<f32>,
}

impl<'a> Forward<'a> {
    pub(super) fn new(inputs: Inputs<'a>, task: Task) -> Self {
        let len = CHUNK.min(inputs.tokens[1]);
        let heads = inputs.heads;
        Self {
            inputs,
            task,
            chunk: Chunk::new(&inputs),
            fading: Fading::new(&inputs),
            rates: vec![0.0; len],
            known: vec![0.0; len * heads.value_dim],
            written: vec![0.0; len * heads.value_dim],
            system: vec![0.0; len * len],
            scaled: vec![0.0; len * heads.key_dim],
            within: vec![0.0; len * len],
        }
    }

    /// Takes the tokens `rows` of the sequence.
    pub(super) fn load(&mut self, rows: Range<usize>) {
        self.chunk.load(&self.inputs, self.task, rows);
    }

    /// The rows of the chunk's tokens among those of all sequences.
    pub(super) fn rows(&self) -> Range<usize> {
        let first = self.inputs.rows(self.task.sequence).start;
        first + self.chunk.rows.start..first + self.chunk.rows.end
    }

    /// The values that the tokens of the chunk add to the memory `memory`, `[key_dim, value_dim]`, of the head.
    pub(super) fn head(&mut self, head: usize, memory: &[f32]) {
        let (inputs, rows) = (self.inputs, self.rows());
        let (len, width) = (self.chunk.len(), inputs.heads.value_dim);
        self.fading.load(&inputs, head, rows.clone());
        for (rate, row) in self.rates.iter_mut().zip(rows.clone()) {
            *rate = inputs.rate(row, head);
        }
        let memory = Matrix::row_major(memory, inputs.heads.key_dim, width);
        let into = MatrixMut::row_major(&mut self.known, len, width);
        multiply(into, self.chunk.k(), memory, Output::Overwrite);
        let columns = inputs.heads.value_columns(head);
        let (rates, fading) = (&self.rates, &self.fading);
        let (known, written) = (&self.known, &mut self.written);
        let (keys, system) = (&self.chunk.keys, &mut self.system);
        wide(
            #[inline(always)]
            || {
                for i in 0..len {
                    let v = &inputs.channels(rows.start + i)[columns.clone()];
                    let (rate, faded) = (rates[i], fading.since_start[i]);
                    let known = known[i * width..][..width].iter().zip(v);
                    for (out, (known, v)) in written[i * width..][..width].iter_mut().zip(known) {
                        *out = rate * (v - faded * known);
                    }
                    let own = i * len..i * len + i;
                    let terms = keys[own.clone()].iter().zip(&fading.between[own.clone()]);
                    for (out, (key, faded)) in system[own].iter_mut().zip(terms) {
                        *out = -rate * key * faded;
                    }
                }
            },
        );
        self.solve();
    }

    /// Solves `(I + A) V = written` in place.
    fn solve(&mut self) {
        let (len, width) = (self.chunk.len(), self.inputs.heads.value_dim);
        for first in (0..len).step_by(BLOCK) {
            let block = first..len.min(first + BLOCK);
            let (before, own) = self.written.split_at_mut(first * width);
            if first > 0 {
                let system = Matrix::row_major(&self.system, len, len);
                let system = system.block(block.clone(), 0..first);
                let before = Matrix::row_major(before, first, width);
                let into = MatrixMut::row_major(own, block.len(), width);
                multiply(into, system, before, Output::Accumulate);
            }
            let system = &self.system;
            wide(
                #[inline(always)]
                || {
                    for i in 1..block.len() {
                        let (solved, rest) = own.split_at_mut(i * width);
                        let factors = &system[(first + i) * len + first..][..i];
                        for (factor, solved) in factors.iter().zip(solved.chunks_exact(width)) {
                            add_scaled(&mut rest[..width], solved, *factor);
                        }
                    }
                },
            );
        }
    }

    /// Writes the outputs of the head's tokens to the rows of `values` columns at `output`, before the memory advances.
    ///
    /// # Safety
    /// Nobody else reads or writes the head's columns of these rows meanwhile.
    pub(super) unsafe fn output(&mut self, memory: &[f32], output: *mut f32) {
        let heads = self.inputs.heads;
        let (len, width) = (self.chunk.len(), heads.value_dim);
        let (chunk, fading) = (&self.chunk, &self.fading);
        let (scaled, within) = (&mut self.scaled, &mut self.within[..len * len]);
        wide(
            #[inline(always)]
            || {
                let q = &chunk.q[..len * heads.key_dim];
                scale_rows(q, &fading.since_start, heads.key_dim, scaled);
                let terms = chunk.queries.iter().zip(&fading.between);
                for (out, (query, faded)) in within.iter_mut().zip(terms) {
                    *out = query * faded;
                }
            },
        );
        // SAFETY: the caller's promise.
        let into = || unsafe { MatrixMut::from_raw(output, [len, width], [heads.values(), 1]) };
        let scaled = Matrix::row_major(&self.scaled, len, heads.key_dim);
        let memory = Matrix::row_major(memory, heads.key_dim, width);
        multiply(into(), scaled, memory, Output::Overwrite);
        let within = Matrix::row_major(&self.within, len, len);
        let written = Matrix::row_major(&self.written, len, width);
        multiply(into(), within, written, Output::Accumulate);
    }

    /// Adds the written values to the memory.
    pub(super) fn advance(&mut self, memory: &mut [f32]) {
        let heads = self.inputs.heads;
        let (len, width) = (self.chunk.len(), heads.value_dim);
        let (chunk, fading, scaled) = (&self.chunk, &self.fading, &mut self.scaled);
        wide(
            #[inline(always)]
            || {
                let k = &chunk.k[..len * heads.key_dim];
                scale_rows(k, &fading.until_end, heads.key_dim, scaled);
                for x in memory.iter_mut() {
                    *x *= fading.whole;
                }
            },
        );
        let scaled = Matrix::row_major(&self.scaled, len, heads.key_dim);
        let written = Matrix::row_major(&self.written, len, width);
        let into = MatrixMut::row_major(memory, heads.key_dim, width);
        multiply(into, scaled.transposed(), written, Output::Accumulate);
    }
}
