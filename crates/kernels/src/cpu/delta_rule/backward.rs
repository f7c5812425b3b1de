//! The gradients of a task's pass.
//!
//! The memory before each chunk is computed again. Then the chunks follow from the last to the first, with the gradient `Ṡ` of
//! the memory after each. In the notation of [`crate::reference::gated_delta_rule`],
//! with a dot for gradients, `P_ij = (q_i·k_j) F_ij`, `F_ij = e^{G_i - G_j}`, `D_i = e^{G_i}`, `E_j = e^{G_n - G_j}`, and
//! `U = Sᵀ k` for each token:
//!
//! ```text
//! V̇ = Pᵀ Ȯ + E k Ṡ                    Ṗ = Ȯ Vᵀ for j ≤ i
//! Ḃ = (I + A)⁻ᵀ V̇                     Ȧ = -Ḃ Vᵀ for j < i
//! v̇ = β Ḃ,  U̇ = -β D Ḃ                β̇_i = Ḃ_i·(v_i - D_i U_i) + Σ_j Ȧ_ij (k_i·k_j) F_ij
//! q̇ = D Ȯ Sᵀ + (Ṗ F) k                k̇ = (Ṗ F)ᵀ q + E V Ṡᵀ + (β Ȧ F + (β Ȧ F)ᵀ) k + U̇ Sᵀ
//! Ṡ ← e^{G_n} Ṡ + (D q)ᵀ Ȯ + kᵀ U̇
//! ```
//!
//! `G_i` gets what each of its exponentials contributes, and a decay gets the sum of those of its token and the later ones.

use std::ops::Range;

use super::chunk::{key_scale, multiply, norm_factor, scale_rows};
use super::forward::{BLOCK, Forward};
use super::inputs::{CHUNK, Inputs, Task};
use crate::cpu::matrix::{Matrix, MatrixMut, Output};
use crate::cpu::parallel::Shared;
use crate::cpu::reduce::{add_scaled, inner_product};
use crate::cpu::vector::wide;

/// The gradients that the tasks write.
pub(super) struct Shares<'a> {
    pub(super) qkv: Shared<'a, f32>,
    pub(super) decay: Shared<'a, f32>,
    pub(super) rate: Shared<'a, f32>,
}

/// A task's backward pass.
pub(super) struct Backward<'a> {
    forward: Forward<'a>,
    grad: &'a [f32],
    /// For each head that the task serves.
    heads: Vec<Head>,
    /// Gradients of the normalized queries and keys of a chunk, `[len, key_dim]`.
    q: Vec<f32>,
    k: Vec<f32>,
    /// The gradient of the outputs of a head, `[len, value_dim]`.
    output: Vec<f32>,
    /// Gradients of the written values, of the right side of the system, and of what was known, `[len, value_dim]`.
    written: Vec<f32>,
    known: Vec<f32>,
    /// Two matrices `[len, len]`.
    pairs: [Vec<f32>; 2],
    /// `[len, key_dim]`.
    scratch: Vec<f32>,
    /// Gradients of `G`, `[len]`.
    sums: Vec<f32>,
}

/// A head of values in the backward pass.
struct Head {
    /// The memory before each chunk, `[chunks, key_dim, value_dim]`.
    before: Vec<f32>,
    /// The memory after the chunks that were computed.
    memory: Vec<f32>,
    /// The gradient of the memory after a chunk, `[key_dim, value_dim]`.
    gradient: Vec<f32>,
}

impl<'a> Backward<'a> {
    pub(super) fn new(inputs: Inputs<'a>, task: Task, grad: &'a [f32]) -> Self {
        let sizes = inputs.heads;
        let [_, seq] = inputs.tokens;
        let len = CHUNK.min(seq);
        let head = |head| {
            let mut memory = vec![0.0; sizes.memory()];
            inputs.start(task.sequence, head, &mut memory);
            Head {
                before: Vec::with_capacity(seq.div_ceil(CHUNK) * sizes.memory()),
                memory,
                gradient: vec![0.0; sizes.memory()],
            }
        };
        let [keys, values] = [sizes.key_dim, sizes.value_dim].map(|width| vec![0.0; len * width]);
        Self {
            forward: Forward::new(inputs, task),
            grad,
            heads: sizes.served(task.key_head).map(head).collect(),
            q: keys.clone(),
            k: keys.clone(),
            output: values.clone(),
            written: values.clone(),
            known: values,
            pairs: [vec![0.0; len * len], vec![0.0; len * len]],
            scratch: keys,
            sums: vec![0.0; len],
        }
    }

    /// The gradient of the memory before the tokens.
    pub(super) fn memory(&self, head: usize) -> &[f32] {
        let served = self.served();
        &self.heads[head - served.start].gradient
    }

    fn served(&self) -> Range<usize> {
        let forward = &self.forward;
        forward.inputs.heads.served(forward.task.key_head)
    }

    /// Computes the forward pass of a chunk again.
    pub(super) fn again(&mut self, rows: Range<usize>) {
        self.forward.load(rows);
        for (number, head) in self.served().zip(&mut self.heads) {
            head.before.extend_from_slice(&head.memory);
            self.forward.head(number, &head.memory);
            self.forward.advance(&mut head.memory);
        }
    }

    /// Writes the gradients of chunk `number`, the tokens `rows`.
    ///
    /// # Safety
    /// Nobody else reads or writes the task's columns of these rows meanwhile.
    pub(super) unsafe fn chunk(&mut self, number: usize, rows: Range<usize>, to: &Shares<'_>) {
        self.forward.load(rows);
        self.q.fill(0.0);
        self.k.fill(0.0);
        for index in 0..self.heads.len() {
            // SAFETY: the caller's promise.
            unsafe { self.head(number, index, to) };
        }
        // SAFETY: as above.
        unsafe { self.normalized(to) };
    }

    /// Adds a head's part to the gradients of queries and keys, and writes those of its values, rates and decays.
    ///
    /// # Safety
    /// As [`Self::chunk`].
    unsafe fn head(&mut self, number: usize, index: usize, to: &Shares<'_>) {
        let Inputs { heads: sizes, .. } = self.forward.inputs;
        let (keys, values) = (sizes.key_dim, sizes.value_dim);
        let own = self.served().start + index;
        let len = self.forward.chunk.len();
        let head = &mut self.heads[index];
        let before = &head.before[number * sizes.memory()..][..sizes.memory()];
        self.forward.head(own, before);
        let rows = self.forward.rows();
        let columns = sizes.output_columns(own);
        for (out, row) in self.output.chunks_exact_mut(values).zip(rows.clone()) {
            out.copy_from_slice(&self.grad[row * sizes.values()..][columns.clone()]);
        }

        let forward = &self.forward;
        let (chunk, fading) = (&forward.chunk, &forward.fading);
        let output = Matrix::row_major(&self.output, len, values);
        let written = Matrix::row_major(&forward.written, len, values);
        let memory = Matrix::row_major(before, keys, values);
        let [pairs, other] = &mut self.pairs;
        let scratch = &mut self.scratch;
        let sums = &mut self.sums[..len];

        // V̇ = Pᵀ Ȯ + E k Ṡ.
        wide(
            #[inline(always)]
            || {
                let terms = chunk.queries.iter().zip(&fading.between);
                for (out, (query, faded)) in pairs[..len * len].iter_mut().zip(terms) {
                    *out = query * faded;
                }
                scale_rows(&chunk.k[..len * keys], &fading.until_end, keys, scratch);
            },
        );
        let within = Matrix::row_major(pairs, len, len);
        let into = MatrixMut::row_major(&mut self.written, len, values);
        multiply(into, within.transposed(), output, Output::Overwrite);
        let gradient = Matrix::row_major(&head.gradient, keys, values);
        let scaled = Matrix::row_major(scratch, len, keys);
        let into = MatrixMut::row_major(&mut self.written, len, values);
        multiply(into, scaled, gradient, Output::Accumulate);

        // E V Ṡᵀ, the part of the keys that the memory after the chunk takes.
        let into = MatrixMut::row_major(scratch, len, keys);
        multiply(into, written, gradient.transposed(), Output::Overwrite);
        let (q, k) = (&mut self.q, &mut self.k);
        sums.fill(0.0);
        let mut of_end = fading.whole * inner_product(before, &head.gradient);
        wide(
            #[inline(always)]
            || {
                for (j, sum) in sums.iter_mut().enumerate() {
                    let part = j * keys..(j + 1) * keys;
                    let until = fading.until_end[j];
                    add_scaled(&mut k[part.clone()], &scratch[part.clone()], until);
                    let term = until * inner_product(&chunk.k[part.clone()], &scratch[part]);
                    of_end += term;
                    *sum -= term;
                }
            },
        );

        // Ṗ, and with it the part of the queries and keys within the chunk.
        let into = MatrixMut::row_major(other, len, len);
        multiply(into, output, written.transposed(), Output::Overwrite);
        wide(
            #[inline(always)]
            || times_pairs(len, other, pairs, &fading.between, sums),
        );
        let pairs_gradient = Matrix::row_major(other, len, len);
        let into = MatrixMut::row_major(q, len, keys);
        multiply(into, pairs_gradient, chunk.k(), Output::Accumulate);
        let into = MatrixMut::row_major(k, len, keys);
        multiply(
            into,
            pairs_gradient.transposed(),
            chunk.q(),
            Output::Accumulate,
        );

        // D Ȯ Sᵀ.
        let into = MatrixMut::row_major(scratch, len, keys);
        multiply(into, output, memory.transposed(), Output::Overwrite);
        wide(
            #[inline(always)]
            || {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let part = i * keys..(i + 1) * keys;
                    let since = fading.since_start[i];
                    add_scaled(&mut q[part.clone()], &scratch[part.clone()], since);
                    *sum += since * inner_product(&chunk.q[part.clone()], &scratch[part]);
                }
                // For the memory's gradient, whose last term follows.
                scale_rows(&chunk.q[..len * keys], &fading.since_start, keys, scratch);
                for x in head.gradient.iter_mut() {
                    *x *= fading.whole;
                }
            },
        );
        let scaled = Matrix::row_major(scratch, len, keys);
        let into = MatrixMut::row_major(&mut head.gradient, keys, values);
        multiply(into, scaled.transposed(), output, Output::Accumulate);

        // Ḃ, and Ȧ without its sign, which `system` has.
        solve_transposed(&forward.system, len, values, &mut self.written);
        let right = Matrix::row_major(&self.written, len, values);
        let into = MatrixMut::row_major(other, len, len);
        multiply(into, right, written.transposed(), Output::Overwrite);
        let channels = sizes.value_columns(own);
        let (known, right) = (&mut self.known, &self.written);
        wide(
            #[inline(always)]
            || {
                for i in 0..len {
                    let (rate, since) = (forward.rates[i], fading.since_start[i]);
                    let part = i * values..(i + 1) * values;
                    let (right, found) = (&right[part.clone()], &forward.known[part.clone()]);
                    let v = &forward.inputs.channels(rows.start + i)[channels.clone()];
                    // SAFETY: the caller's promise.
                    let [v_gradient, rate_gradient] = unsafe {
                        let row = (rows.start + i) * sizes.channels();
                        let of_rate = (rows.start + i) * sizes.heads + own;
                        [
                            to.qkv.part(row + channels.start..row + channels.end),
                            to.rate.part(of_rate..of_rate + 1),
                        ]
                    };
                    let mut of_rate = inner_product(right, v) - since * inner_product(right, found);
                    // The rows of Ȧ: its terms of the rate, and of G by -A.
                    let row = i * len..i * len + i;
                    let mut of_sum = 0.0;
                    for (at, sum) in row.clone().zip(sums.iter_mut()) {
                        let faded = fading.between[at];
                        let gradient = -other[at];
                        of_rate += gradient * chunk.keys[at] * faded;
                        let term = -gradient * forward.system[at];
                        of_sum += term;
                        *sum -= term;
                        other[at] = rate * gradient * faded;
                    }
                    other[row.end..(i + 1) * len].fill(0.0);
                    rate_gradient[0] = of_rate;
                    for (out, right) in v_gradient.iter_mut().zip(right) {
                        *out = rate * right;
                    }
                    let factor = -rate * since;
                    let known = &mut known[part];
                    for (out, right) in known.iter_mut().zip(right) {
                        *out = factor * right;
                    }
                    sums[i] += of_sum + inner_product(known, found);
                }
            },
        );
        let of_keys = Matrix::row_major(other, len, len);
        for of_keys in [of_keys, of_keys.transposed()] {
            let into = MatrixMut::row_major(k, len, keys);
            multiply(into, of_keys, chunk.k(), Output::Accumulate);
        }
        let known = Matrix::row_major(&self.known, len, values);
        let into = MatrixMut::row_major(k, len, keys);
        multiply(into, known, memory.transposed(), Output::Accumulate);
        let into = MatrixMut::row_major(&mut head.gradient, keys, values);
        multiply(into, chunk.k().transposed(), known, Output::Accumulate);

        let mut later = of_end;
        for (row, sum) in rows.zip(sums.iter()).rev() {
            later += sum;
            let at = row * sizes.heads + own;
            // SAFETY: the caller's promise.
            unsafe { to.decay.part(at..at + 1)[0] = later };
        }
    }

    /// Writes the gradients of the queries and keys from those of the normalized ones.
    ///
    /// # Safety
    /// As [`Self::chunk`].
    unsafe fn normalized(&self, to: &Shares<'_>) {
        let forward = &self.forward;
        let sizes = forward.inputs.heads;
        let width = sizes.key_dim;
        let columns = sizes.key_columns(forward.task.key_head);
        let scales = [key_scale(width), 1.0];
        wide(
            #[inline(always)]
            || {
                for (i, row) in forward.rows().enumerate() {
                    let channels = forward.inputs.channels(row);
                    let parts = columns.iter().zip(scales).zip([&self.q, &self.k]);
                    for ((columns, scale), grad) in parts {
                        let (x, grad) = (&channels[columns.clone()], &grad[i * width..][..width]);
                        let first = row * sizes.channels();
                        let own = first + columns.start..first + columns.end;
                        // SAFETY: the caller's promise.
                        let out = unsafe { to.qkv.part(own) };
                        let factor = norm_factor(x);
                        let along = inner_product(x, grad) * factor * factor;
                        for (out, (x, grad)) in out.iter_mut().zip(x.iter().zip(grad)) {
                            *out = scale * factor * (grad - along * x);
                        }
                    }
                }
            },
        );
    }
}

/// Multiplies the gradients of the pairs `j ≤ i` by the fading between their tokens, and adds their part to those of `G`. The
/// others become 0.
#[inline(always)]
fn times_pairs(len: usize, grad: &mut [f32], pairs: &[f32], between: &[f32], sums: &mut [f32]) {
    for (i, row) in grad[..len * len].chunks_exact_mut(len).enumerate() {
        let (own, after) = row.split_at_mut(i + 1);
        let [pairs, between] = [pairs, between].map(|of| &of[i * len..][..i + 1]);
        let mut sum = 0.0;
        for (j, grad) in own.iter_mut().enumerate() {
            let term = *grad * pairs[j];
            sum += term;
            sums[j] -= term;
            *grad *= between[j];
        }
        sums[i] += sum;
        after.fill(0.0);
    }
}

/// Solves `(I + A)ᵀ X = x` in place, with `system = -A`.
fn solve_transposed(system: &[f32], len: usize, width: usize, x: &mut [f32]) {
    for first in (0..len).step_by(BLOCK).rev() {
        let block = first..len.min(first + BLOCK);
        let (before, own) = x.split_at_mut(first * width);
        wide(
            #[inline(always)]
            || {
                for i in (1..block.len()).rev() {
                    let (earlier, rest) = own.split_at_mut(i * width);
                    let factors = &system[(first + i) * len + first..][..i];
                    for (factor, earlier) in factors.iter().zip(earlier.chunks_exact_mut(width)) {
                        add_scaled(earlier, &rest[..width], *factor);
                    }
                }
            },
        );
        if first > 0 {
            let system = Matrix::row_major(system, len, len);
            let system = system.block(block.clone(), 0..first);
            let own = Matrix::row_major(own, block.len(), width);
            let into = MatrixMut::row_major(before, first, width);
            multiply(into, system.transposed(), own, Output::Accumulate);
        }
    }
}
