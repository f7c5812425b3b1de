//! The kernel for AMX: accumulates a tile of C in tile registers.
//!
//! A tile register holds 16 rows of 64 bytes. `TDPBF16PS` multiplies a register with 16 rows of 32 bfloat16 by one with
//! 16 pairs of 16 columns, and adds the products to a register with 16 × 16 f32. Four such registers are a tile of C of
//! 32 × 32, which stays in them for a whole step.
//!
//! # Sums
//! For each element of C and 32 adjacent k, the instruction sums the products of the even k in order and those of the
//! odd k in order, each with a fused multiply-add. It then adds the two sums, and adds the result to the element. Every
//! step rounds to nearest, ties to even; subnormal operands and results become zero. With `accumulate`, the element's
//! first value is that of C. The sums therefore depend only on k: neither on the division into tasks and steps nor on
//! the number of threads. `tests/cpu/product/bfloat16.rs` has the same arithmetic in portable code.
//!
//! AVX512-BF16 rounds differently: see [`super::avx512::Avx512`].

use std::arch::asm;

use super::element::Element;
use super::kernel::{Kernel, Tile};
use super::pack::{self, Factor, Place};
use crate::cpu::amx::{Configuration, Configured, Shape};

/// The number of rows of a panel of A: two registers.
const ROWS: usize = 32;
/// The number of columns of a panel of B: two registers.
const COLUMNS: usize = 32;
/// The number of units (pairs of bfloat16) that an instruction multiplies.
const UNITS: usize = 16;

/// The kernel. Its panels of A are `[units / 16, rows, 16]`, so each row of a register is contiguous.
pub struct Amx;

impl Kernel for Amx {
    type Prepared = Configured;

    const K: usize = 2;
    const ROWS: usize = ROWS;
    const COLUMNS: usize = COLUMNS;
    const UNITS: usize = UNITS;
    const KEEPS_A: bool = true;
    const TASK: [usize; 2] = [256, 256];
    const SMALL_TASK: [usize; 2] = [128, 256];

    unsafe fn prepare() -> Configured {
        // SAFETY: guaranteed by the caller.
        unsafe { CONFIGURATION.load() }
    }

    unsafe fn pack_a(from: Factor<f32>, to: Place) {
        // SAFETY: guaranteed by the caller.
        unsafe { pack::pack::<_, 2, ROWS, true>(from, to) };
    }

    unsafe fn pack_b<E: Element>(from: Factor<E>, to: Place) {
        // SAFETY: guaranteed by the caller.
        unsafe { pack::pack::<_, 2, COLUMNS, false>(from, to) };
    }

    unsafe fn multiply(units: usize, a: *const u32, b: *const u32, c: Tile) {
        if c.column_stride == 1 && c.rows == ROWS && c.columns == COLUMNS {
            // SAFETY: guaranteed by the caller.
            return unsafe { registers(units, a, b, c.start, c.row_stride, c.accumulate) };
        }
        let mut whole = Whole([0.0; ROWS * COLUMNS]);
        // SAFETY: the accesses are within the tile, and within `whole`.
        unsafe {
            let c_ij = |i: usize, j: usize| c.start.add(i * c.row_stride + j * c.column_stride);
            if c.accumulate {
                for i in 0..c.rows {
                    for j in 0..c.columns {
                        whole.0[i * COLUMNS + j] = *c_ij(i, j);
                    }
                }
            }
            let start = whole.0.as_mut_ptr();
            registers(units, a, b, start, COLUMNS, c.accumulate);
            for i in 0..c.rows {
                for j in 0..c.columns {
                    *c_ij(i, j) = whole.0[i * COLUMNS + j];
                }
            }
        }
    }
}

/// A tile of C with all its rows and columns.
#[repr(align(64))]
struct Whole([f32; ROWS * COLUMNS]);

/// Eight whole registers.
static CONFIGURATION: Configuration = Configuration::new([Shape::WHOLE; 8]);

/// `C (+)= A B` for a whole tile with contiguous rows. Registers 0 to 3 hold C, 4 and 5 the rows of A, 6 and 7 the
/// columns of B. The loads of B are hinted to leave the cache to the panel of A, which the next tile uses again.
///
/// # Safety
/// See [`Kernel::multiply`]. `units` is a positive multiple of [`UNITS`].
unsafe fn registers(
    units: usize,
    a: *const u32,
    b: *const u32,
    c: *mut f32,
    row_stride: usize,
    accumulate: bool,
) {
    // SAFETY: the caller has configured the registers. The loads are within the panels, loads and stores of C within
    // the tile.
    unsafe {
        asm!(
            "test {accumulate:e}, {accumulate:e}",
            "jz 2f",
            "tileloadd tmm0, [{c} + {stride}]",
            "tileloadd tmm1, [{c} + {stride} + 64]",
            "tileloadd tmm2, [{lower} + {stride}]",
            "tileloadd tmm3, [{lower} + {stride} + 64]",
            "jmp 3f",
            "2:",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "3:",
            "tileloaddt1 tmm6, [{b} + {b_stride}]",
            "tileloadd tmm4, [{a} + {a_stride}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{a} + {a_stride} + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloaddt1 tmm7, [{b} + {b_stride} + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a}, 2048",
            "add {b}, 2048",
            "dec {steps}",
            "jnz 3b",
            "tilestored [{c} + {stride}], tmm0",
            "tilestored [{c} + {stride} + 64], tmm1",
            "tilestored [{lower} + {stride}], tmm2",
            "tilestored [{lower} + {stride} + 64], tmm3",
            accumulate = in(reg) u32::from(accumulate),
            a = inout(reg) a => _,
            b = inout(reg) b => _,
            c = in(reg) c,
            lower = in(reg) c.wrapping_add(ROWS / 2 * row_stride),
            stride = in(reg) row_stride * size_of::<f32>(),
            a_stride = in(reg) UNITS * size_of::<u32>(),
            b_stride = in(reg) COLUMNS * size_of::<u32>(),
            steps = inout(reg) units / UNITS => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}
