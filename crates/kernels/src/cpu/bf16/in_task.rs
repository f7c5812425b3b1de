//! Products that a task computes by itself, in tile registers, from operands that it packs into its own memory and uses
//! several times: those of attention's blocks.
//!
//! Their sums are those of [`Instructions::Amx`](super::Instructions::Amx).

use std::ops::Range;

use crate::cpu::matrix::Matrix;

#[cfg(not(target_arch = "x86_64"))]
use elsewhere as system;
#[cfg(target_arch = "x86_64")]
use x86_64 as system;

/// The number of rows, columns or k that products take at a time. Those of packed operands are multiples of it, with zeros
/// after the last.
pub const TILE: usize = 32;

/// A thread whose tile registers are configured for products.
pub struct Registers(system::Prepared);

/// A packed operand: a left one `[width, depth]`, or a right one `[depth, width]`.
#[derive(Clone, Copy)]
pub struct Packed<'a> {
    memory: &'a [f32],
    /// A multiple of [`TILE`].
    depth: usize,
}

impl Packed<'_> {
    /// The length of the k dimension with its zeros.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

/// The number of f32 that a packed operand takes.
pub const fn packed_len(width: usize, depth: usize) -> usize {
    // Of 16 bits each.
    width.next_multiple_of(TILE) * depth.next_multiple_of(TILE) / 2
}

impl Registers {
    /// Configures the registers if [`super::product`] uses them.
    pub fn configured() -> Option<Self> {
        (super::instructions() == Some(super::Instructions::Amx)).then(|| {
            // SAFETY: the instructions are available.
            Self(unsafe { system::prepare() })
        })
    }

    /// Rounds and packs a left operand `[rows, depth]`.
    ///
    /// # Panics
    /// Panics if the memory is shorter than [`packed_len`] or not aligned to 64 bytes.
    pub fn pack_left<'a>(&self, a: Matrix<'_>, memory: &'a mut [f32]) -> Packed<'a> {
        self.pack(a, memory, |from, to| {
            // SAFETY: the instructions are available, and `pack` guarantees the sizes.
            unsafe { system::pack_left(from, to) }
        })
    }

    /// Rounds and packs a right operand `[depth, columns]`.
    ///
    /// # Panics
    /// See [`Self::pack_left`].
    pub fn pack_right<'a>(&self, b: Matrix<'_>, memory: &'a mut [f32]) -> Packed<'a> {
        self.pack(b.transposed(), memory, |from, to| {
            // SAFETY: the instructions are available, and `pack` guarantees the sizes.
            unsafe { system::pack_right(from, to) }
        })
    }

    /// Packs an operand viewed as `[width, depth]`.
    fn pack<'a>(
        &self,
        from: Matrix<'_>,
        memory: &'a mut [f32],
        pack: impl FnOnce(Matrix<'_>, &mut [f32]),
    ) -> Packed<'a> {
        let memory = &mut memory[..packed_len(from.rows, from.columns)];
        assert!(
            memory.as_ptr().addr().is_multiple_of(64),
            "the memory of a packed operand is not aligned"
        );
        pack(from, memory);
        Packed {
            memory,
            depth: from.columns.next_multiple_of(TILE),
        }
    }

    /// `C (+)= A B` for a block of C. Row `i` of C begins at `c[i · c_row]`. The range of the depth is that of the packed
    /// operands. If `add` is true, the product is added to C; otherwise C is not read.
    ///
    /// # Safety
    /// The elements of C in the block are writable and, if `add` is true, readable. Nothing else accesses them.
    ///
    /// # Panics
    /// Panics if a range does not begin at a multiple of [`TILE`], that of the depth does not end at one, or one leaves
    /// the operands.
    pub unsafe fn multiply(
        &self,
        [rows, columns, depth]: [Range<usize>; 3],
        (c, c_row): (*mut f32, usize),
        a: Packed<'_>,
        b: Packed<'_>,
        add: bool,
    ) {
        let bounds = [rows.start, columns.start, depth.start, depth.end];
        assert!(
            bounds.iter().all(|at| at.is_multiple_of(TILE)) && a.depth == b.depth,
            "the block does not consist of tiles"
        );
        let panel = a.depth * TILE / 2;
        let of = |operand: Packed<'_>, first: usize| {
            let from = first / TILE * panel + depth.start * TILE / 2;
            operand.memory[from..][..depth.len() * TILE / 2].as_ptr()
        };
        if depth.is_empty() {
            for i in rows.filter(|_| !add) {
                let row = c.wrapping_add(i * c_row + columns.start);
                // SAFETY: the caller guarantees access.
                unsafe { row.write_bytes(0, columns.len()) };
            }
            return;
        }
        for i in rows.clone().step_by(TILE) {
            for j in columns.clone().step_by(TILE) {
                // SAFETY: the registers are configured, and the panels have these k. The caller guarantees access to C.
                unsafe {
                    system::multiply(
                        [
                            TILE.min(rows.end - i),
                            TILE.min(columns.end - j),
                            depth.len(),
                        ],
                        (c.wrapping_add(i * c_row + j), c_row),
                        of(a, i),
                        of(b, j),
                        add,
                    );
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::super::amx::Amx;
    use super::super::kernel::{Kernel, Tile};
    use super::super::pack::{Factor, Place};
    use super::TILE;
    use crate::cpu::matrix::Matrix;

    const _: () = assert!(
        Amx::ROWS == TILE && Amx::COLUMNS == TILE && Amx::UNITS * Amx::K == TILE,
        "panels of other sizes"
    );

    pub type Prepared = <Amx as Kernel>::Prepared;

    /// # Safety
    /// The CPU and the system support AMX.
    pub unsafe fn prepare() -> Prepared {
        // SAFETY: guaranteed by the caller.
        unsafe { Amx::prepare() }
    }

    fn place(from: Matrix<'_>, to: &mut [f32]) -> (Factor<f32>, Place) {
        let units = from.columns.next_multiple_of(TILE) / Amx::K;
        let place = Place {
            start: to.as_mut_ptr().cast(),
            panel: units * TILE,
            units,
        };
        (Factor::of(from), place)
    }

    /// # Safety
    /// As [`prepare`], and the memory has [`super::packed_len`].
    pub unsafe fn pack_left(from: Matrix<'_>, to: &mut [f32]) {
        let (factor, place) = place(from, to);
        // SAFETY: guaranteed by the caller.
        unsafe { Amx::pack_a(factor, place) };
    }

    /// # Safety
    /// As [`pack_left`].
    pub unsafe fn pack_right(from: Matrix<'_>, to: &mut [f32]) {
        let (factor, place) = place(from, to);
        // SAFETY: guaranteed by the caller.
        unsafe { Amx::pack_b(factor, place) };
    }

    /// # Safety
    /// See [`Kernel::multiply`].
    pub unsafe fn multiply(
        [rows, columns, depth]: [usize; 3],
        (start, row_stride): (*mut f32, usize),
        a: *const f32,
        b: *const f32,
        accumulate: bool,
    ) {
        let tile = Tile {
            start,
            row_stride,
            column_stride: 1,
            rows,
            columns,
            accumulate,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { Amx::multiply(depth / Amx::K, a.cast(), b.cast(), tile) };
    }
}

/// Other architectures have no such registers, so nothing here is called.
#[cfg(not(target_arch = "x86_64"))]
mod elsewhere {
    use crate::cpu::matrix::Matrix;

    pub enum Prepared {}

    pub unsafe fn prepare() -> Prepared {
        unreachable!("there are no tile registers")
    }

    pub unsafe fn pack_left(_: Matrix<'_>, _: &mut [f32]) {}

    pub unsafe fn pack_right(_: Matrix<'_>, _: &mut [f32]) {}

    pub unsafe fn multiply(
        _: [usize; 3],
        _: (*mut f32, usize),
        _: *const f32,
        _: *const f32,
        _: bool,
    ) {
    }
}
