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

use super::kernel::{Kernel, Tile};
use super::pack::{self, Factor, Place};

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
        // SAFETY: guaranteed by the caller; the configuration is valid.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &CONFIGURATION, options(nostack, preserves_flags, readonly));
        }
        Configured(())
    }

    unsafe fn pack_a(from: Factor, to: Place) {
        // SAFETY: guaranteed by the caller.
        unsafe { pack::pack::<2, ROWS, true>(from, to) };
    }

    unsafe fn pack_b(from: Factor, to: Place) {
        // SAFETY: guaranteed by the caller.
        unsafe { pack::pack::<2, COLUMNS, false>(from, to) };
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

/// A thread whose tile registers are in use. Dropping it releases them: a context switch then no longer saves them.
pub struct Configured(());

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: the CPU supports the instruction, since the registers are configured.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
    }
}

/// The operand of `ldtilecfg`.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    /// The bytes per row of each register.
    row_bytes: [u16; 16],
    /// The rows of each register.
    rows: [u8; 16],
}

/// Eight registers of 16 rows of 64 bytes.
static CONFIGURATION: Configuration = {
    let mut configuration = Configuration {
        palette: 1,
        start_row: 0,
        reserved: [0; 14],
        row_bytes: [0; 16],
        rows: [0; 16],
    };
    let mut register = 0;
    while register < 8 {
        configuration.row_bytes[register] = 64;
        configuration.rows[register] = 16;
        register += 1;
    }
    configuration
};

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

/// Returns true if the CPU has AMX with bfloat16, and the operating system permits its use to the process, which this
/// function requests.
#[cfg(target_os = "linux")]
pub fn permitted() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    /// The bits of EDX of leaf 7.
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    /// The number of the system call `arch_prctl`, of its request for permission, and of the state of tile registers.
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XFEATURE_XTILEDATA: u64 = 18;

    if __cpuid(0).eax < 7 || __cpuid_count(7, 0).edx & (AMX_BF16 | AMX_TILE) != AMX_BF16 | AMX_TILE
    {
        return false;
    }
    let result: i64;
    // SAFETY: the system call enlarges the state that context switches save. It changes neither memory nor other
    // registers. Kernels before Linux 5.16, and kernels that do not support AMX on this CPU, return an error.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// Only Linux is supported.
#[cfg(not(target_os = "linux"))]
pub fn permitted() -> bool {
    false
}
