//! Products by instructions of any CPU, with the sums of the other kernels: levels are unpacked to bytes for a few rows of
//! x, and to f32 for more. Products and sums of integers in f32 are exact, since they stay below 2²⁴.

use pulp::{Simd, WithSimd};

use super::layout::{self, LEN, Order, STEPS, is_fine, order};
use super::{BLOCK, FEW, Rounded, STEP, SUB, Task, levels};
use crate::PackedFormat;
use crate::cpu::blocks::levels::Subs;
use crate::cpu::packed::PackedView;
use crate::cpu::vector::MultiplyAdd;

/// Sub-blocks per chunk.
const SUBS: usize = LEN / SUB;
/// Elements of the registers whose sums the kernels have in common.
const LANES: usize = 16;
/// Rows of W per panel.
pub(super) const PANEL: usize = LANES;
/// Rows of x that are multiplied with a panel at a time.
const TILE: usize = 6;

impl WithSimd for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let add = MultiplyAdd::of_instructions::<S>();
        match self.x.len() {
            ..=FEW => few(&self, add),
            _ => many(&self, add),
        }
    }
}

/// A chunk of a row of W as levels.
pub(super) struct Levels {
    pub(super) values: [u8; LEN],
    pub(super) scales: [f32; SUBS],
    pub(super) minimums: [f32; SUBS],
}

impl Levels {
    pub(super) const ZERO: Self = Self {
        values: [0; LEN],
        scales: [0.0; SUBS],
        minimums: [0.0; SUBS],
    };

    /// Reads the chunk from column `column` of a row. In one that is not whole, the missing scales and minimums are 0.
    #[inline(always)]
    pub(super) fn read(&mut self, w: PackedView<'_>, row: usize, column: usize) {
        let count = LEN.min(w.shape[1] - column);
        let start = w.format.row_bytes(column);
        let bytes = &w.row(row)[start..start + w.format.row_bytes(count)];
        if count < LEN {
            *self = Self::ZERO;
        }
        let subs = Subs {
            scales: &mut self.scales[..count / SUB],
            minimums: &mut self.minimums[..count / SUB],
        };
        levels::read(w.format, bytes, &mut self.values[..count], subs);
    }
}

/// The outputs of a few rows of x, whose elements are in the order of the weights.
#[inline(always)]
fn few(task: &Task<'_>, add: MultiplyAdd) {
    let offset = levels::offset(task.w.format).unwrap_or(0);
    let factor = if offset > 0 { f32::from(offset) } else { 1.0 };
    let chains = layout::chains(task.x.len());
    let mut chunk = Levels::ZERO;
    for j in task.outputs.clone() {
        let mut products = [[[0.0f32; LANES]; STEPS]; FEW];
        let mut below = [[0.0f32; SUBS]; FEW];
        for (c, column) in (0..task.w.shape[1]).step_by(LEN).enumerate() {
            chunk.read(task.w, j, column);
            let subtracted = if offset > 0 {
                &chunk.scales
            } else {
                &chunk.minimums
            };
            for (i, x) in task.x.iter().enumerate() {
                let x = &x.chunks[c];
                let mut scales = [0.0; SUBS];
                for sub in 0..SUBS {
                    scales[sub] = chunk.scales[sub] * x.scales[sub];
                    below[i][sub] = add.of(subtracted[sub], x.sums[sub], below[i][sub]);
                }
                let (q, p) = (&chunk.values, x.values.as_flattened());
                match order(task.w.format as u8) {
                    Order::Weights => {
                        for step in 0..STEPS {
                            let range = step * STEP..(step + 1) * STEP;
                            let sums = sums_of_four(&q[range.clone()], &p[range]);
                            let products = &mut products[i][step % chains];
                            for lane in 0..LANES {
                                let scale = scales[step * (STEP / SUB) + lane / 4];
                                products[lane] = add.of(sums[lane] as f32, scale, products[lane]);
                            }
                        }
                    }
                    Order::Halves => {
                        for pair in 0..STEPS / 2 {
                            let range = 2 * pair * STEP..2 * (pair + 1) * STEP;
                            let sums = sums_of_halves(&q[range.clone()], &p[range.clone()]);
                            let products = &mut products[i][pair];
                            for lane in 0..LANES {
                                let scale = scales[range.start / SUB + lane / 4 * 2];
                                products[lane] = add.of(sums[lane] as f32, scale, products[lane]);
                            }
                        }
                    }
                }
            }
        }
        for i in 0..task.x.len() {
            let [a, b, c, d] = &products[i];
            let mut all = [0.0; LANES];
            for lane in 0..LANES {
                let sum = (a[lane] + b[lane]) + (c[lane] + d[lane]);
                all[lane] = add.of(-factor, below[i][lane], sum);
            }
            let mut half = LANES / 2;
            while half > 0 {
                for lane in 0..half {
                    all[lane] += all[lane + half];
                }
                half /= 2;
            }
            // SAFETY: the element is within y, and only this task writes it.
            unsafe { task.sums.put(i, j, all[0]) };
        }
    }
}

/// The sums of each four products.
#[inline(always)]
fn sums_of_four(q: &[u8], p: &[i8]) -> [i32; LANES] {
    let mut sums = [0; LANES];
    let fours = q.as_chunks::<4>().0.iter().zip(p.as_chunks::<4>().0);
    for (sum, (q, p)) in sums.iter_mut().zip(fours) {
        let product = |at: usize| i32::from(q[at]) * i32::from(p[at]);
        *sum = product(0) + product(1) + product(2) + product(3);
    }
    sums
}

/// The sums of each four products of the first half of a block, and the same four of the second half.
#[inline(always)]
fn sums_of_halves(q: &[u8], p: &[i8]) -> [i32; LANES] {
    let mut products = [0; STEP];
    let blocks = q
        .as_chunks::<BLOCK>()
        .0
        .iter()
        .zip(p.as_chunks::<BLOCK>().0);
    for (products, (q, p)) in products.as_chunks_mut::<SUB>().0.iter_mut().zip(blocks) {
        for at in 0..SUB {
            let first = i32::from(q[at]) * i32::from(p[at]);
            products[at] = first + i32::from(q[SUB + at]) * i32::from(p[SUB + at]);
        }
    }
    let mut sums = [0; LANES];
    for (sum, [a, b, c, d]) in sums.iter_mut().zip(products.as_chunks::<4>().0) {
        *sum = (a + b) + (c + d);
    }
    sums
}

/// A chunk of [`PANEL`] rows of W.
struct Panel {
    levels: [[f32; LANES]; LEN],
    scales: [[f32; LANES]; SUBS],
    /// `m + s o` of each sub-block.
    subtracted: [[f32; LANES]; SUBS],
}

/// The outputs of more rows of x.
#[inline(always)]
fn many(task: &Task<'_>, add: MultiplyAdd) {
    let mut panel = Box::new(Panel {
        levels: [[0.0; LANES]; LEN],
        scales: [[0.0; LANES]; SUBS],
        subtracted: [[0.0; LANES]; SUBS],
    });
    let mut sums = vec![[0.0f32; LANES]; task.x.len()];
    for start in task.outputs.clone().step_by(PANEL) {
        let count = PANEL.min(task.outputs.end - start);
        sums.fill([0.0; LANES]);
        for (c, column) in (0..task.w.shape[1]).step_by(LEN).enumerate() {
            panel.read(task.w, start, count, column, add);
            let subs = LEN.min(task.w.shape[1] - column) / SUB;
            let (tiles, rest) = task.x.as_chunks::<TILE>();
            let (sums, rest_sums) = sums.as_chunks_mut::<TILE>();
            for (x, sums) in tiles.iter().zip(sums) {
                panel.multiply(task.w.format, x, c, subs, sums, add);
            }
            let (pairs, rest) = rest.as_chunks::<2>();
            let (sums, rest_sums) = rest_sums.as_chunks_mut::<2>();
            for (x, sums) in pairs.iter().zip(sums) {
                panel.multiply(task.w.format, x, c, subs, sums, add);
            }
            for (x, sums) in rest.iter().zip(rest_sums) {
                let (x, sums) = (std::array::from_ref(x), std::array::from_mut(sums));
                panel.multiply(task.w.format, x, c, subs, sums, add);
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            // SAFETY: the elements are within y, and only this task writes them.
            unsafe { task.sums.put_all(i, start, &sums[..count]) };
        }
    }
}

impl Panel {
    /// Reads a chunk of `count` rows of W from row `start` and column `column`.
    #[inline(always)]
    fn read(
        &mut self,
        w: PackedView<'_>,
        start: usize,
        count: usize,
        column: usize,
        add: MultiplyAdd,
    ) {
        let offset = levels::offset(w.format).map_or(0.0, f32::from);
        let mut chunk = Levels::ZERO;
        for lane in 0..count {
            chunk.read(w, start + lane, column);
            for (levels, q) in self.levels.iter_mut().zip(&chunk.values) {
                levels[lane] = f32::from(*q);
            }
            for sub in 0..SUBS {
                let (scale, minimum) = (chunk.scales[sub], chunk.minimums[sub]);
                self.scales[sub][lane] = scale;
                self.subtracted[sub][lane] = add.of(scale, offset, minimum);
            }
        }
    }

    /// Adds the products with chunk `c` of `I` rows of x to `sums`.
    #[inline(always)]
    fn multiply<const I: usize>(
        &self,
        format: PackedFormat,
        x: &[Rounded; I],
        c: usize,
        subs: usize,
        sums: &mut [[f32; LANES]; I],
        add: MultiplyAdd,
    ) {
        let together = if is_fine(format as u8) {
            1
        } else {
            BLOCK / SUB
        };
        let x = x.each_ref().map(|x| &x.chunks[c]);
        let mut p = [[0.0f32; LEN]; I];
        for i in 0..I {
            for (p, value) in p[i].iter_mut().zip(x[i].values.as_flattened()) {
                *p = f32::from(*value);
            }
        }
        for sub in (0..subs).step_by(together) {
            let mut products = [[0.0f32; LANES]; I];
            let first = sub * SUB;
            #[expect(
                clippy::needless_range_loop,
                reason = "the loop has a constant length: it is unrolled, and the sums stay in registers"
            )]
            for column in first..first + together * SUB {
                let q = &self.levels[column];
                for i in 0..I {
                    for lane in 0..LANES {
                        products[i][lane] = add.of(q[lane], p[i][column], products[i][lane]);
                    }
                }
            }
            for i in 0..I {
                let sum: f32 = x[i].sums[sub..sub + together].iter().sum();
                for lane in 0..LANES {
                    let scale = self.scales[sub][lane] * x[i].scales[sub];
                    let added = add.of(products[i][lane], scale, sums[i][lane]);
                    sums[i][lane] = add.of(-self.subtracted[sub][lane], sum, added);
                }
            }
        }
    }
}
