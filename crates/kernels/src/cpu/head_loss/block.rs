//! A block of rows against the whole vocabulary.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::HeadLossTask;
use super::cut::Cut;
use super::rows::{Row, State};
use super::tile;
use crate::Precision;
use crate::cpu::matrix::{Matrix, MatrixMut};
use crate::cpu::parallel::{Shared, for_each, ranges};
use crate::cpu::product::{Output, product_here};
use crate::cpu::vector::{exp, wide};

/// Rows for one task of the last pass over the hidden states' gradients.
const FINISHED: usize = 32;

/// Some of the tokens that are learnt.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    /// The head.
    pub task: &'a HeadLossTask<'a>,
    /// The division of the work.
    pub cut: Cut,
    /// `[rows, width]`.
    pub hidden: &'a [f32],
    /// `[rows]`.
    pub targets: &'a [usize],
}

/// The results of a sweep over the vocabulary that the gradients need.
pub struct Kept<'a> {
    /// For each tile `[rows, columns]`: `exp(x - reference)`, times a soft cap's slope; or the gradient by the logits.
    pub exponentials: Shared<'a, MaybeUninit<f32>>,
    /// By which references, `[tiles, rows]`.
    pub references: Shared<'a, f32>,
    /// Each chunk's exponentials times its weights, by the references of its states, `[chunks, rows, width]`.
    pub hidden: Shared<'a, MaybeUninit<f32>>,
    /// The rows, where they are known already: then the gradient by the logits is made whole, of factor 1.
    pub known: Option<&'a [Row]>,
}

impl<'a> Block<'a> {
    /// The number of rows that it has.
    pub fn rows(&self) -> usize {
        self.targets.len()
    }

    /// The columns of each tile.
    fn tiles(&self) -> impl Iterator<Item = Range<usize>> + Clone {
        ranges(self.task.vocab, self.cut.tile)
    }

    /// The number of tiles.
    pub fn tile_count(&self) -> usize {
        self.tiles().count()
    }

    /// The number of chunks of tiles.
    pub fn chunk_count(&self) -> usize {
        self.tile_count().div_ceil(self.cut.chunk)
    }

    /// Makes all logits, a tile at a time: the states of each chunk's rows, `[chunks, rows]`.
    pub fn sweep(&self, kept: Option<&Kept<'_>>) -> Vec<State> {
        let (count, chunks) = (self.rows(), self.chunk_count());
        let parts = count.div_ceil(self.cut.part);
        let mut states = vec![State::default(); chunks * count];
        let all = Shared::new(&mut states);
        // The parts of a chunk follow each other, so that its weights are still in a shared cache.
        for_each(chunks * parts, |index| {
            let (chunk, part) = (index / parts, index % parts);
            let start = part * self.cut.part;
            let rows = start..count.min(start + self.cut.part);
            // SAFETY: a chunk's part belongs to one task.
            let states = unsafe { all.part(chunk * count + rows.start..chunk * count + rows.end) };
            self.sweep_part(chunk, rows, states, kept);
        });
        states
    }

    fn sweep_part(
        &self,
        chunk: usize,
        rows: Range<usize>,
        states: &mut [State],
        kept: Option<&Kept<'_>>,
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
        let mut own = match kept {
            Some(_) => Box::default(),
            None => Box::new_uninit_slice(count * self.cut.tile.min(self.task.vocab)),
        };
        let mut hidden_grad: &mut [f32] = &mut [];
        let tiles = self.tiles().enumerate();
        for (index, columns) in tiles.skip(chunk * self.cut.chunk).take(self.cut.chunk) {
            let weight = &weight[columns.start * width..columns.end * width];
            let weight = Matrix::row_major(weight, columns.len(), width);
            let size = count * columns.len();
            let place = match kept {
                Some(kept) => {
                    let start = all * columns.start + rows.start * columns.len();
                    // SAFETY: a tile's rows belong to one task.
                    unsafe { kept.exponentials.part(start..start + size) }
                }
                None => &mut own[..size],
            };
            let logits = product_in(place, hidden, weight.transposed(), precision);
            match kept.and_then(|kept| kept.known) {
                Some(known) => {
                    let known = &known[rows.clone()];
                    tile::gradients(logits, columns.len(), known, self.task.vocab, options);
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
            let Some(kept) = kept else { continue };
            let references = index * all + rows.start..index * all + rows.end;
            // SAFETY: a tile's rows belong to one task.
            let references = unsafe { kept.references.part(references) };
            for (reference, state) in references.iter_mut().zip(&*states) {
                *reference = state.reference;
            }
            let exponentials = Matrix::row_major(logits, count, columns.len());
            if index % self.cut.chunk == 0 {
                let start = (chunk * all + rows.start) * width;
                // SAFETY: a chunk's rows belong to one task, which takes them once.
                let place = unsafe { kept.hidden.part(start..start + count * width) };
                hidden_grad = product_in(place, exponentials, weight, precision);
            } else {
                let sum = MatrixMut::row_major(hidden_grad, count, width);
                product_here(sum, exponentials, weight, Output::Accumulate, precision);
            }
        }
    }

    /// The rows, from [`Self::sweep`]'s states.
    pub fn finished(&self, states: &[State]) -> Vec<Row> {
        let row = |row| {
            let states = states[row..].iter().step_by(self.rows());
            Row::new(states, self.task.vocab, self.task.options)
        };
        (0..self.rows()).map(row).collect()
    }

    /// `dhidden` of this block's rows: `sums` are [`Kept::hidden`], `place` says where a row's lies in `hidden_grad`, and
    /// `even` is `ε · Σ_v W_v / V`, if it is not in the sums.
    pub fn hidden_grad(
        &self,
        rows: &[Row],
        states: Option<&[State]>,
        sums: &[f32],
        even: Option<&[f32]>,
        place: impl Fn(usize) -> usize + Sync,
        hidden_grad: &Shared<'_, f32>,
    ) {
        let HeadLossTask { weight, width, .. } = *self.task;
        let (count, chunks) = (self.rows(), self.chunk_count());
        for_each(count.div_ceil(FINISHED), |index| {
            let indices = index * FINISHED..count.min((index + 1) * FINISHED);
            wide(
                #[inline(always)]
                || {
                    for index in indices {
                        let (row, place) = (&rows[index], place(index) * width);
                        // SAFETY: the rows' places are different, and each row belongs to one task.
                        let grad = unsafe { hidden_grad.part(place..place + width) };
                        let target = &weight[self.targets[index] * width..][..width];
                        for chunk in 0..chunks {
                            let at = chunk * count + index;
                            let factor = states.map_or(1.0, |all| factor(row, all[at].reference));
                            let sums = &sums[at * width..][..width];
                            match chunk {
                                0 => combine(grad, sums, factor, target, -row.pull),
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

    /// `dW` of this block's rows: `exponentials` and `references` are [`Kept`]'s, the latter None where the gradient by
    /// the logits is whole; `even` is `ε/V · Σ hidden` over the rows, if it is not in that.
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
        let strips: Vec<_> = ranges(width, self.cut.strip).collect();
        // A few tiles for a task: most rows' references stay, and so do their scaled hidden states.
        let group = self.cut.chunk.min(3);
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
                // SAFETY: a tile's strip belongs to one task, within the gradient's `[vocab, width]`.
                let place = unsafe { MatrixMut::from_raw(start, shape, [width, 1]) };
                let precision = self.task.precision;
                product_here(place, exponentials.transposed(), hidden, output, precision);
                self.add_targets(rows, columns, strip.clone(), even, weight_grad);
            }
        });
    }

    /// Copies a strip of the hidden states, each times its row's factor for a tile; where it is the one that was copied,
    /// nothing is to do.
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

    /// The targets' part and the even part of a strip of a tile of `dW`.
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
        // SAFETY: a tile's strip belongs to one task, and one row of it is held at a time.
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
                        add_scaled(grad(*target), &self.hidden[part(index)], -row.pull);
                    }
                }
            },
        );
    }
}

/// The factor of a row's exponentials by `reference`.
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

/// `y += factor · x`.
#[inline(always)]
pub fn add_scaled(y: &mut [f32], x: &[f32], factor: f32) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += factor * x;
    }
}

/// The product row after row, in memory that need not be initialised.
fn product_in<'a>(
    place: &'a mut [MaybeUninit<f32>],
    a: Matrix<'_>,
    b: Matrix<'_>,
    precision: Precision,
) -> &'a mut [f32] {
    assert_eq!(place.len(), a.rows * b.columns, "the product's size");
    let start = place.as_mut_ptr().cast::<f32>();
    // SAFETY: the matrix is `place`, row after row, which is borrowed exclusively; the product writes all of it and reads none.
    unsafe {
        let c = MatrixMut::from_raw(start, [a.rows, b.columns], [b.columns, 1]);
        product_here(c, a, b, Output::Overwrite, precision);
        std::slice::from_raw_parts_mut(start, place.len())
    }
}
