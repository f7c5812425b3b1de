//! The products of a block of rows with the whole vocabulary.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::HeadLossTask;
use super::rows::{Row, State};
use super::tile;
use super::tiling::Tiling;
use crate::Precision;
use crate::cpu::matrix::{Matrix, MatrixMut};
use crate::cpu::parallel::{Shared, for_each, ranges};
use crate::cpu::product::{Output, product_here};
use crate::cpu::reduce::add_scaled;
use crate::cpu::vector::{exp, wide};

/// The number of rows per task of the last pass over the gradients of the hidden states.
const ROWS_PER_TASK: usize = 32;

/// A block of the tokens that are not ignored.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    /// The head.
    pub task: &'a HeadLossTask<'a>,
    /// The division of the work.
    pub tiling: Tiling,
    /// `[rows, width]`.
    pub hidden: &'a [f32],
    /// `[rows]`.
    pub targets: &'a [usize],
}

/// The results of a sweep over the vocabulary that the gradients need.
pub struct SweepOutput<'a> {
    /// `exp(x - reference)` times the derivative of a soft cap, or the gradient of the logits, as
    /// `[rows, columns]` for each tile.
    pub exponentials: Shared<'a, MaybeUninit<f32>>,
    /// The references of the exponentials, `[tiles, rows]`.
    pub references: Shared<'a, f32>,
    /// The exponentials of each chunk times its weights, relative to the references of its states,
    /// `[chunks, rows, width]`.
    pub hidden: Shared<'a, MaybeUninit<f32>>,
    /// The final rows, if already known. The sweep then computes the complete gradient of the logits, with a
    /// factor of 1.
    pub final_rows: Option<&'a [Row]>,
}

impl<'a> Block<'a> {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.targets.len()
    }

    /// The columns of each tile.
    fn tiles(&self) -> impl Iterator<Item = Range<usize>> + Clone {
        ranges(self.task.vocab, self.tiling.tile)
    }

    /// The number of tiles.
    pub fn tile_count(&self) -> usize {
        self.tiles().count()
    }

    /// The number of chunks of tiles.
    pub fn chunk_count(&self) -> usize {
        self.tile_count().div_ceil(self.tiling.chunk)
    }

    /// Computes all logits, a tile at a time, and returns the states of the rows for each chunk,
    /// `[chunks, rows]`.
    pub fn sweep(&self, output: Option<&SweepOutput<'_>>) -> Vec<State> {
        let (count, chunks) = (self.rows(), self.chunk_count());
        let parts = count.div_ceil(self.tiling.part);
        let mut states = vec![State::default(); chunks * count];
        let all = Shared::new(&mut states);
        // The parts of a chunk are consecutive, so its weights are still in a shared cache.
        for_each(chunks * parts, |index| {
            let (chunk, part) = (index / parts, index % parts);
            let start = part * self.tiling.part;
            let rows = start..count.min(start + self.tiling.part);
            // SAFETY: each part of a chunk belongs to one task.
            let states = unsafe { all.part(chunk * count + rows.start..chunk * count + rows.end) };
            self.sweep_part(chunk, rows, states, output);
        });
        states
    }

    fn sweep_part(
        &self,
        chunk: usize,
        rows: Range<usize>,
        states: &mut [State],
        output: Option<&SweepOutput<'_>>,
    ) {
        let HeadLossTask {
            weight,
            width,
            options,
            precision,
            ..
        } = *self.task;
        let (all, count) = (self.rows(), rows.len());
        let hidden = &self.hidden[rows.start * width..rows.end * width];
        let hidden = Matrix::row_major(hidden, count, width);
        let targets = &self.targets[rows.clone()];
        let mut own = match output {
            Some(_) => Box::default(),
            None => Box::new_uninit_slice(count * self.tiling.tile.min(self.task.vocab)),
        };
        let mut hidden_grad: &mut [f32] = &mut [];
        let tiles = self.tiles().enumerate();
        for (index, columns) in tiles
            .skip(chunk * self.tiling.chunk)
            .take(self.tiling.chunk)
        {
            let weight = &weight[columns.start * width..columns.end * width];
            let weight = Matrix::row_major(weight, columns.len(), width);
            let size = count * columns.len();
            let memory = match output {
                Some(output) => {
                    let start = all * columns.start + rows.start * columns.len();
                    // SAFETY: each row of a tile belongs to one task.
                    unsafe { output.exponentials.part(start..start + size) }
                }
                None => &mut own[..size],
            };
            let logits = product_in(memory, hidden, weight.transposed(), precision);
            match output.and_then(|output| output.final_rows) {
                Some(final_rows) => {
                    let final_rows = &final_rows[rows.clone()];
                    tile::gradients(logits, columns.len(), final_rows, self.task.vocab, options);
                }
                None => {
                    tile::exponentials(
                        logits,
                        columns.clone(),
                        targets,
                        states,
                        hidden_grad,
                        options,
                    );
                }
            }
            let Some(output) = output else { continue };
            let references = index * all + rows.start..index * all + rows.end;
            // SAFETY: each row of a tile belongs to one task.
            let references = unsafe { output.references.part(references) };
            for (reference, state) in references.iter_mut().zip(&*states) {
                *reference = state.reference;
            }
            let exponentials = Matrix::row_major(logits, count, columns.len());
            if index % self.tiling.chunk == 0 {
                let start = (chunk * all + rows.start) * width;
                // SAFETY: each row of a chunk belongs to one task, which borrows it once.
                let memory = unsafe { output.hidden.part(start..start + count * width) };
                hidden_grad = product_in(memory, exponentials, weight, precision);
            } else {
                let sum = MatrixMut::row_major(hidden_grad, count, width);
                product_here(sum, exponentials, weight, Output::Accumulate, precision);
            }
        }
    }

    /// The final rows, from the states returned by [`Self::sweep`].
    pub fn final_rows(&self, states: &[State]) -> Vec<Row> {
        let row = |row| {
            let states = states[row..].iter().step_by(self.rows());
            Row::new(states, self.task.vocab, self.task.options)
        };
        (0..self.rows()).map(row).collect()
    }

    /// Computes `dhidden` for the rows of this block. `sums` are [`SweepOutput::hidden`], `token` maps a row to
    /// its index in `hidden_grad`, and `even` is `ε · Σ_v W_v / V`, unless it is part of the sums.
    pub fn hidden_grad(
        &self,
        rows: &[Row],
        states: Option<&[State]>,
        sums: &[f32],
        even: Option<&[f32]>,
        token: impl Fn(usize) -> usize + Sync,
        hidden_grad: &Shared<'_, f32>,
    ) {
        let HeadLossTask { weight, width, .. } = *self.task;
        let (count, chunks) = (self.rows(), self.chunk_count());
        for_each(count.div_ceil(ROWS_PER_TASK), |index| {
            let indices = index * ROWS_PER_TASK..count.min((index + 1) * ROWS_PER_TASK);
            wide(
                #[inline(always)]
                || {
                    for index in indices {
                        let (row, start) = (&rows[index], token(index) * width);
                        // SAFETY: the rows have different tokens, and each row belongs to one task.
                        let grad = unsafe { hidden_grad.part(start..start + width) };
                        let target = &weight[self.targets[index] * width..][..width];
                        for chunk in 0..chunks {
                            let at = chunk * count + index;
                            let factor = states.map_or(1.0, |all| factor(row, all[at].reference));
                            let sums = &sums[at * width..][..width];
                            match chunk {
                                0 => combine(grad, sums, factor, target, -row.target_grad),
                                _ => add_scaled(grad, sums, factor),
                            }
                        }
                        if let Some(even) = even {
                            add_scaled(grad, even, -1.0);
                        }
                    }
                },
            );
        });
    }

    /// Computes `dW` for the rows of this block. `exponentials` and `references` are those of [`SweepOutput`];
    /// `references` is `None` if the exponentials are the complete gradient of the logits. `even` is
    /// `ε/V · Σ hidden` over the rows, unless it is part of that gradient.
    pub fn weight_grad(
        &self,
        rows: &[Row],
        exponentials: &[f32],
        references: Option<&[f32]>,
        even: Option<&[f32]>,
        weight_grad: &Shared<'_, f32>,
        output: Output,
    ) {
        let width = self.task.width;
        let strips: Vec<_> = ranges(width, self.tiling.strip).collect();
        // A few tiles per task: the references of most rows do not change between them, so their scaled hidden
        // states can be reused.
        let group = self.tiling.chunk.min(3);
        let groups = self.tile_count().div_ceil(group);
        for_each(groups * strips.len(), |index| {
            let strip = strips[index % strips.len()].clone();
            let mut factors = vec![f32::NAN; self.rows()];
            let mut scaled = vec![0.0; self.rows() * strip.len()];
            let tiles = self.tiles().enumerate();
            for (tile, columns) in tiles.skip(index / strips.len() * group).take(group) {
                let references = references.map(|all| &all[tile * self.rows()..][..self.rows()]);
                self.scale_hidden(rows, references, strip.clone(), &mut factors, &mut scaled);
                let size = self.rows() * columns.len();
                let exponentials = &exponentials[self.rows() * columns.start..][..size];
                let exponentials = Matrix::row_major(exponentials, self.rows(), columns.len());
                let hidden = Matrix::row_major(&scaled, self.rows(), strip.len());
                let start = weight_grad.at(columns.start * width + strip.start);
                let shape = [columns.len(), strip.len()];
                // SAFETY: the strip of the tile belongs to one task, and is within the gradient `[vocab, width]`.
                let tile_grad = unsafe { MatrixMut::from_raw(start, shape, [width, 1]) };
                let precision = self.task.precision;
                product_here(
                    tile_grad,
                    exponentials.transposed(),
                    hidden,
                    output,
                    precision,
                );
                self.add_targets(rows, columns, strip.clone(), even, weight_grad);
            }
        });
    }

    /// Copies a strip of the hidden states, each row times its factor for the tile. Rows whose factor has not
    /// changed are skipped.
    fn scale_hidden(
        &self,
        rows: &[Row],
        references: Option<&[f32]>,
        strip: Range<usize>,
        factors: &mut [f32],
        scaled: &mut [f32],
    ) {
        let hidden = self.hidden.chunks_exact(self.task.width);
        let scaled = scaled.chunks_exact_mut(strip.len());
        wide(
            #[inline(always)]
            || {
                for (index, ((hidden, scaled), last)) in hidden.zip(scaled).zip(factors).enumerate()
                {
                    let factor = references.map_or(1.0, |all| factor(&rows[index], all[index]));
                    if factor.to_bits() != last.to_bits() {
                        *last = factor;
                        for (scaled, hidden) in scaled.iter_mut().zip(&hidden[strip.clone()]) {
                            *scaled = hidden * factor;
                        }
                    }
                }
            },
        );
    }

    /// Subtracts the contributions of the targets and of `ε/V` from a strip of a tile of `dW`.
    fn add_targets(
        &self,
        rows: &[Row],
        columns: Range<usize>,
        strip: Range<usize>,
        even: Option<&[f32]>,
        weight_grad: &Shared<'_, f32>,
    ) {
        let width = self.task.width;
        let part = |row: usize| row * width + strip.start..row * width + strip.end;
        // SAFETY: the strip of the tile belongs to one task, which holds one row of it at a time.
        let grad = |row: usize| unsafe { weight_grad.part(part(row)) };
        wide(
            #[inline(always)]
            || {
                if let Some(even) = even {
                    for column in columns.clone() {
                        add_scaled(grad(column), &even[strip.clone()], -1.0);
                    }
                }
                for (index, (row, target)) in rows.iter().zip(self.targets).enumerate() {
                    if columns.contains(target) {
                        add_scaled(grad(*target), &self.hidden[part(index)], -row.target_grad);
                    }
                }
            },
        );
    }
}

/// The factor of a row's exponentials that are relative to `reference`.
#[inline(always)]
fn factor(row: &Row, reference: f32) -> f32 {
    exp(reference - row.reference) * row.coefficient
}

/// `y = a x + b z`.
#[inline(always)]
fn combine(y: &mut [f32], x: &[f32], a: f32, z: &[f32], b: f32) {
    for ((y, x), z) in y.iter_mut().zip(x).zip(z) {
        *y = a * x + b * z;
    }
}

/// Computes a row-major product in memory that may be uninitialized.
fn product_in<'a>(
    memory: &'a mut [MaybeUninit<f32>],
    a: Matrix<'_>,
    b: Matrix<'_>,
    precision: Precision,
) -> &'a mut [f32] {
    assert_eq!(memory.len(), a.rows * b.columns, "the product's size");
    let start = memory.as_mut_ptr().cast::<f32>();
    // SAFETY: the matrix is `memory` in row-major order, which is borrowed exclusively. The product writes all of
    // it and reads none.
    unsafe {
        let c = MatrixMut::from_raw(start, [a.rows, b.columns], [b.columns, 1]);
        product_here(c, a, b, Output::Overwrite, precision);
        std::slice::from_raw_parts_mut(start, memory.len())
    }
}
