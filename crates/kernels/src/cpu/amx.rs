//! The tile registers of x86-64 (AMX): the permission to use them, and their configuration.
//!
//! There are eight registers of up to 16 rows of up to 64 bytes.

use std::arch::asm;
use std::sync::OnceLock;

/// The products that a CPU with AMX may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Products {
    /// Of bfloat16, summed in f32.
    Bf16,
    /// Of 8-bit integers, summed in 32 bits.
    Int8,
}

/// Returns true if the CPU has the products, and the operating system permits the use of the registers to the process,
/// which this function requests.
pub(super) fn permitted(products: Products) -> bool {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    // Only where they are to be used: permission enlarges the state of every thread.
    system::has(products) && *PERMITTED.get_or_init(system::permits)
}

#[cfg(target_os = "linux")]
mod system {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    use super::Products;

    /// The CPU has the registers and the products.
    pub(super) fn has(products: Products) -> bool {
        /// The bits of EDX of leaf 7.
        const BF16: u32 = 1 << 22;
        const TILE: u32 = 1 << 24;
        const INT8: u32 = 1 << 25;
        let bits = TILE
            | match products {
                Products::Bf16 => BF16,
                Products::Int8 => INT8,
            };
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & bits == bits
    }

    /// Requests permission.
    pub(super) fn permits() -> bool {
        /// The number of the system call `arch_prctl`, of its request for permission, and of the state of tile registers.
        const ARCH_PRCTL: i64 = 158;
        const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
        const XFEATURE_XTILEDATA: u64 = 18;
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
}

/// Only Linux is supported.
#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn has(_: super::Products) -> bool {
        false
    }

    pub(super) fn permits() -> bool {
        false
    }
}

/// The rows of a register, and their bytes.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) rows: u8,
    pub(super) row_bytes: u16,
}

impl Shape {
    /// A whole register.
    pub(super) const WHOLE: Self = Self {
        rows: 16,
        row_bytes: 64,
    };
}

/// The operand of `ldtilecfg`.
#[repr(C, align(64))]
pub(super) struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Configuration {
    /// Registers of these shapes.
    pub(super) const fn new(shapes: [Shape; 8]) -> Self {
        let mut configuration = Self {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        let mut register = 0;
        while register < shapes.len() {
            configuration.row_bytes[register] = shapes[register].row_bytes;
            configuration.rows[register] = shapes[register].rows;
            register += 1;
        }
        configuration
    }

    /// Configures the registers of this thread, until the result is dropped.
    ///
    /// # Safety
    /// The registers are [`permitted`].
    pub(super) unsafe fn load(&self) -> Configured {
        // SAFETY: guaranteed by the caller; the configuration is valid.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) self, options(nostack, preserves_flags, readonly));
        }
        Configured(())
    }
}

/// A thread whose tile registers are in use. Dropping it releases them: a context switch then no longer saves them.
pub struct Configured(());

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: the CPU supports the instruction, since the registers are configured.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
    }
}
