//! Matrix products in cache-sized blocks.
//!
//! All threads pack a block of A and a block of B, then share them in tasks that multiply tiles of C. A tile
//! iterates over k in steps, sized so that the step's panel of B stays in the L1 cache and its panels of A stay
//! in the L2 cache.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::Threads;
use super::kernel::{Kernel, Tile};
use super::pack::Factor;
use crate::cpu::matrix::{Matrix, MatrixMut, Output};
use crate::cpu::parallel::{self, Start};

/// The maximum number of units of k in a step: 32 KiB of a panel of B.
const STEP: usize = 256;
/// The maximum number of steps in a packed block.
const STEPS: usize = 4;
/// The approximate size of a packed block of A or B in units: 4 MiB.
const BLOCK: usize = 1 << 20;
/// The number of rows of A that a task packs: whole panels of every kernel.
const PACKED_ROWS: usize = 96;
/// The number of columns of B that a task packs: whole panels of every kernel.
const PACKED_COLUMNS: usize = 128;

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
pub unsafe fn product<K: Kernel>(
    c: &mut MatrixMut<'_>,
    a: Matrix<'_>,
    b: Matrix<'_>,
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
    let high = (BLOCK / deep).next_multiple_of(PACKED_ROWS).min(m);
    let wide = (BLOCK / deep).next_multiple_of(PACKED_COLUMNS).min(n);
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
                let count = |block: &Range<usize>, size, at: usize| match packed[at] == keys[at] {
                    true => 0,
                    false => block.len().div_ceil(size),
                };
                let a_tasks = count(&rows, PACKED_ROWS, 0);
                let b_tasks = count(&columns, PACKED_COLUMNS, 1);
                threads.for_each(a_tasks + b_tasks, |task| {
                    // SAFETY: the instructions are supported, and each task has its own panels.
                    unsafe {
                        if let Some(task) = task.checked_sub(a_tasks) {
                            let first = task * PACKED_COLUMNS;
                            let part = part(&columns, first, PACKED_COLUMNS);
                            let from = factor(b.transposed().block(part, depth.clone()));
                            K::pack_b(from, units, b_panels.at(first * units));
                        } else {
                            let first = task * PACKED_ROWS;
                            let part = part(&rows, first, PACKED_ROWS);
                            let from = factor(a.block(part, depth.clone()));
                            K::pack_a(from, units, a_panels.at(first * units));
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
    // Small products use small tiles to get enough tasks.
    let large = m * n >= 1 << 18;
    let [high, wide] = if large { [192, 256] } else { [96, 128] };
    let across = n.div_ceil(wide);
    threads.for_each(m.div_ceil(high) * across, |task| {
        let rows = part(&(0..m), task / across * high, high);
        let columns = part(&(0..n), task % across * wide, wide);
        // SAFETY: the instructions are supported.
        let _prepared = unsafe { K::prepare() };
        for units in parallel::ranges(block.units, block.step) {
            for j in columns.clone().step_by(K::COLUMNS) {
                for i in rows.clone().step_by(K::ROWS) {
                    let tile = Tile {
                        start: c
                            .at((block.rows.start + i) * down + (block.columns.start + j) * along),
                        row_stride: down,
                        column_stride: along,
                        rows: K::ROWS.min(m - i),
                        columns: K::COLUMNS.min(n - j),
                        accumulate: block.accumulate || units.start > 0,
                    };
                    let a = a.at(i * block.units + units.start * K::ROWS);
                    let b = b.at(j * block.units + units.start * K::COLUMNS);
                    // SAFETY: the panels contain these units; the tile is within C, and no other task writes to
                    // it.
                    unsafe { K::multiply(units.len(), a, b, tile) };
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

fn factor(from: Matrix<'_>) -> Factor {
    Factor {
        start: from.as_ptr(),
        width: from.rows,
        stride: from.row_stride,
        depth: from.columns,
        depth_stride: from.column_stride,
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
