//! Matrix products in cache-sized blocks.
//!
//! All threads pack a block of A and a block of B, then share them in tasks that multiply tiles of C. A tile
//! iterates over k in steps, sized so that the step's panel of one operand stays in the L1 cache and its panels of the
//! other operand stay in the L2 cache.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::Threads;
use super::element::Element;
use super::kernel::{Kernel, Tile};
use super::pack::{Factor, Place};
use crate::cpu::matrix::{Matrix, MatrixMut, Output};
use crate::cpu::parallel::{self, Start};

/// The maximum number of units of k in a step: 32 KiB of a panel of 32 rows or columns.
const STEP: usize = 256;
/// The maximum number of steps in a packed block.
const STEPS: usize = 4;
/// The approximate size of a packed block of A or B in units: 4 MiB.
const BLOCK: usize = 1 << 20;
/// The approximate width of the part of an operand with contiguous k that a task packs.
const PACKED_WIDTH: usize = 128;
/// The number of units of the part of another operand that a task packs.
const PACKED_UNITS: usize = 64;

/// The number of tasks below which products use smaller ones.
const LARGE: usize = 5;

impl Threads {
    fn for_each(self, count: usize, task: impl Fn(usize) + Send + Sync) {
        match self {
            Self::All => parallel::for_each(count, task),
            Self::This => (0..count).for_each(task),
        }
    }
}

/// `C = A B` or `C += A B`, fastest if C's rows are contiguous.
///
/// # Safety
/// The CPU supports the kernel's instructions, and the sizes fit.
pub unsafe fn product<K: Kernel, E: Element>(
    c: &mut MatrixMut<'_>,
    a: Matrix<'_>,
    b: Matrix<'_, E>,
    output: Output,
    threads: Threads,
) {
    let [m, n, k] = [c.rows, c.columns, a.columns];
    if k == 0 {
        if output == Output::Overwrite {
            clear(c);
        }
        return;
    }
    // Steps of equal size, in whole units.
    let units = whole_units::<K>(k);
    let step = units
        .div_ceil(units.div_ceil(STEP))
        .next_multiple_of(K::UNITS);
    let deep = step * STEPS.min(units.div_ceil(step));
    let high = (BLOCK / deep).next_multiple_of(K::ROWS).min(m);
    let wide = (BLOCK / deep).next_multiple_of(K::COLUMNS).min(n);
    let mut a_panels = Panels::new(high.next_multiple_of(K::ROWS) * deep);
    let mut b_panels = Panels::new(wide.next_multiple_of(K::COLUMNS) * deep);
    let [a_panels, b_panels] = [a_panels.start(), b_panels.start()];
    let strides = [c.row_stride, c.column_stride];
    let c = Start(c.as_mut_ptr());
    let mut packed = [None; 2];
    for columns in parallel::ranges(n, wide) {
        for depth in parallel::ranges(k, deep * K::K) {
            let units = whole_units::<K>(depth.len());
            for rows in parallel::ranges(m, high) {
                let keys = [[rows.start, depth.start], [columns.start, depth.start]].map(Some);
                let a_block = Operand::new::<K>(a.block(rows.clone(), depth.clone()), K::ROWS);
                let b_block = b.block(depth.clone(), columns.clone()).transposed();
                let b_block = Operand::new::<K>(b_block, K::COLUMNS);
                let tasks = |at: usize, tasks: usize| match packed[at] == keys[at] {
                    true => 0,
                    false => tasks,
                };
                let [a_tasks, b_tasks] = [tasks(0, a_block.tasks()), tasks(1, b_block.tasks())];
                threads.for_each(a_tasks + b_tasks, |task| {
                    // SAFETY: the instructions are supported, and no two tasks write the same units.
                    unsafe {
                        if let Some(task) = task.checked_sub(a_tasks) {
                            let (from, to) = b_block.task::<K>(task, b_panels);
                            K::pack_b(from, to);
                        } else {
                            let (from, to) = a_block.task::<K>(task, a_panels);
                            K::pack_a(from, to);
                        }
                    }
                });
                packed = keys;
                let block = Block {
                    rows: rows.clone(),
                    columns: columns.clone(),
                    units,
                    step,
                    strides,
                    accumulate: output == Output::Accumulate || depth.start > 0,
                };
                // SAFETY: the panels are packed, and the instructions are supported.
                unsafe { multiply::<K>(&block, a_panels, b_panels, c, threads) };
            }
        }
    }
}

/// The number of units of a panel for `k` adjacent k.
fn whole_units<K: Kernel>(k: usize) -> usize {
    k.div_ceil(K::K).next_multiple_of(K::UNITS)
}

/// A block of the product.
struct Block {
    rows: Range<usize>,
    columns: Range<usize>,
    /// The number of units of k.
    units: usize,
    /// The number of units of k per step.
    step: usize,
    /// The strides of C's rows and columns.
    strides: [usize; 2],
    accumulate: bool,
}

/// Multiplies the packed panels of a block.
///
/// # Safety
/// The CPU supports the kernel's instructions, and the panels are those of the block.
unsafe fn multiply<K: Kernel>(
    block: &Block,
    a: Start<u32>,
    b: Start<u32>,
    c: Start<f32>,
    threads: Threads,
) {
    let [down, along] = block.strides;
    let [m, n] = [block.rows.len(), block.columns.len()];
    let large = m * n >= LARGE * K::TASK[0] * K::TASK[1];
    let [high, wide] = if large { K::TASK } else { K::SMALL_TASK };
    let across = n.div_ceil(wide);
    threads.for_each(m.div_ceil(high) * across, |task| {
        let rows = part(&(0..m), task / across * high, high);
        let columns = part(&(0..n), task % across * wide, wide);
        // SAFETY: the instructions are supported.
        let _prepared = unsafe { K::prepare() };
        for units in parallel::ranges(block.units, block.step) {
            let multiply = |i: usize, j: usize| {
                let tile = Tile {
                    start: c.at((block.rows.start + i) * down + (block.columns.start + j) * along),
                    row_stride: down,
                    column_stride: along,
                    rows: K::ROWS.min(m - i),
                    columns: K::COLUMNS.min(n - j),
                    accumulate: block.accumulate || units.start > 0,
                };
                let a = a.at(i * block.units + units.start * K::ROWS);
                let b = b.at(j * block.units + units.start * K::COLUMNS);
                // SAFETY: the panels contain these units; the tile is within C, and no other task writes to it.
                unsafe { K::multiply(units.len(), a, b, tile) };
            };
            if K::KEEPS_A {
                for i in rows.clone().step_by(K::ROWS) {
                    for j in columns.clone().step_by(K::COLUMNS) {
                        multiply(i, j);
                    }
                }
            } else {
                for j in columns.clone().step_by(K::COLUMNS) {
                    for i in rows.clone().step_by(K::ROWS) {
                        multiply(i, j);
                    }
                }
            }
        }
    });
}

/// Returns up to `count` elements of a range, starting at its `first`.
fn part(range: &Range<usize>, first: usize, count: usize) -> Range<usize> {
    let start = range.start + first;
    start..range.end.min(start + count)
}

/// A block of an operand, viewed as `[width, k]`: A unchanged, B transposed.
struct Operand<'a, E> {
    from: Matrix<'a, E>,
    /// The width of a panel.
    panel: usize,
    /// The number of units of a panel.
    units: usize,
}

impl<'a, E: Element> Operand<'a, E> {
    fn new<K: Kernel>(from: Matrix<'a, E>, panel: usize) -> Self {
        let units = whole_units::<K>(from.columns);
        Self { from, panel, units }
    }

    /// The width and the number of units that a task packs: a part of the operand with long contiguous rows.
    fn part(&self) -> [usize; 2] {
        let whole = |width: usize| width / self.panel * self.panel;
        match self.from.column_stride {
            1 => [whole(PACKED_WIDTH), self.units],
            _ => [whole(4 * PACKED_WIDTH), PACKED_UNITS],
        }
    }

    fn tasks(&self) -> usize {
        let [wide, deep] = self.part();
        self.from.rows.div_ceil(wide) * self.units.div_ceil(deep)
    }

    /// The part of a task, and its place in the panels.
    fn task<K: Kernel>(&self, task: usize, panels: Start<u32>) -> (Factor<E>, Place) {
        let [wide, deep] = self.part();
        let across = self.from.rows.div_ceil(wide);
        let lanes = part(&(0..self.from.rows), task % across * wide, wide);
        let units = part(&(0..self.units), task / across * deep, deep);
        let k = units.start * K::K..self.from.columns.min(units.end * K::K);
        let place = Place {
            start: panels.at(lanes.start * self.units + units.start * self.panel),
            panel: self.units * self.panel,
            units: units.len(),
        };
        (Factor::of(self.from.block(lanes, k)), place)
    }
}

fn clear(c: &mut MatrixMut<'_>) {
    for i in 0..c.rows {
        for j in 0..c.columns {
            let at = i * c.row_stride + j * c.column_stride;
            // SAFETY: the element is within C.
            unsafe { c.as_mut_ptr().add(at).write(0.0) };
        }
    }
}

/// Memory for packed panels.
struct Panels(Box<[MaybeUninit<u32>]>);

impl Panels {
    fn new(units: usize) -> Self {
        Self(Box::new_uninit_slice(units + 16))
    }

    /// The first unit at a multiple of 64 bytes, the size of a cache line.
    fn start(&mut self) -> Start<u32> {
        let start: *mut u32 = self.0.as_mut_ptr().cast();
        Start(start.wrapping_add(start.align_offset(64)))
    }
}
