//! Matrix products with the bfloat16 instructions of x86-64.
//!
//! | instructions | used on | multiplications per cycle, compared with f32 |
//! |---|---|---|
//! | AMX | Linux, CPUs from Intel's Sapphire Rapids on | 16 × |
//! | AVX512-BF16 | CPUs of other vendors, from AMD's Zen 4 on | 2 × |
//! | AVX512-BF16 | not used: Intel's CPUs | ½ × |
//!
//! Packing rounds the operands to bfloat16 (to nearest, ties to even; NaN stays NaN, subnormals become zero) and
//! reorders them for the kernel. Products are summed in f32, in an order that depends only on k and the instructions:
//! see [`Amx`](Instructions::Amx) and [`Avx512`](Instructions::Avx512).
//!
//! `blocked` divides a product into cache-sized blocks, `pack` reorders an operand, and the kernels `amx` and `avx512`
//! multiply. `in_task` is for products within a task, which packs their operands itself.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod blocked;
mod element;
pub mod in_task;
#[cfg(target_arch = "x86_64")]
mod kernel;
#[cfg(target_arch = "x86_64")]
mod pack;

use std::sync::OnceLock;

use super::matrix::{Matrix, MatrixMut, Output, assert_fit};
use crate::Precision;
pub use element::Element;

/// The threads that compute a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// All threads of rayon's pool.
    All,
    /// Only the calling thread.
    This,
}

/// The instructions of a product in bfloat16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    /// AMX. The products of each 32 adjacent k are summed in two sums, of even and of odd k, with fused multiply-adds.
    /// The two are added up, and their sum is added to the element of C. Subnormal numbers become zero.
    Amx,
    /// AVX512-BF16. The products of each pair of k are added to a sum over at most 512 k with fused multiply-adds, the
    /// odd k first. These sums are added to the element of C. Subnormal numbers within a sum become zero.
    Avx512,
}

impl Instructions {
    /// Returns true if the CPU has the instructions, and the operating system permits their use.
    pub fn available(self) -> bool {
        static AMX: OnceLock<bool> = OnceLock::new();
        // Packing for either needs AVX-512.
        cpu::avx512() && (self == Self::Avx512 || *AMX.get_or_init(cpu::amx))
    }

    /// The name of the instruction set.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amx => "AMX",
            Self::Avx512 => "AVX512-BF16",
        }
    }
}

/// The instructions that [`product`] uses: none if no available ones are faster than f32.
pub fn instructions() -> Option<Instructions> {
    static FASTEST: OnceLock<Option<Instructions>> = OnceLock::new();
    *FASTEST.get_or_init(|| match () {
        () if Instructions::Amx.available() => Some(Instructions::Amx),
        () if Instructions::Avx512.available() && !cpu::is_intel() => Some(Instructions::Avx512),
        () => None,
    })
}

/// Returns true if this CPU multiplies faster in bfloat16 than in f32. Otherwise products use f32.
pub fn supported() -> bool {
    instructions().is_some()
}

/// Returns the precision that products use: f32 instead of bfloat16 without fast instructions, and of f16.
pub fn usable(precision: Precision) -> Precision {
    match precision {
        Precision::Bf16 if supported() => Precision::Bf16,
        _ => Precision::F32,
    }
}

/// The instruction sets of this CPU.
#[cfg(target_arch = "x86_64")]
mod cpu {
    use crate::cpu::amx::{Products, permitted};

    pub(super) fn amx() -> bool {
        permitted(Products::Bf16)
    }

    pub(super) fn avx512() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16")
    }

    /// Returns true for Intel's CPUs. They execute a `VDPBF16PS` every two cycles and two f32 multiply-adds every cycle:
    /// half the multiplications, measured on Sapphire Rapids.
    pub(super) fn is_intel() -> bool {
        let vendor = std::arch::x86_64::__cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx]
            .map(u32::to_le_bytes)
            .as_flattened()
            == b"GenuineIntel"
    }
}

/// Other architectures have none of the instructions.
#[cfg(not(target_arch = "x86_64"))]
mod cpu {
    pub(super) fn avx512() -> bool {
        false
    }

    pub(super) fn amx() -> bool {
        false
    }

    pub(super) fn is_intel() -> bool {
        false
    }
}

/// Computes `C = A B` or `C += A B` with packed operands and returns true. Returns false if the CPU lacks the
/// instructions: those of [`supported`] for bfloat16, and AVX-512 for f32. With [`Precision::F32`] the operands are
/// packed without rounding, once for all threads. It is fastest if C's rows are contiguous.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn product<E: Element>(
    c: &mut MatrixMut<'_>,
    a: Matrix<'_>,
    b: Matrix<'_, E>,
    output: Output,
    precision: Precision,
    threads: Threads,
) -> bool {
    assert_fit(c, a, b);
    // Asking for the instructions requests permission for AMX, which enlarges the state of every thread.
    if precision == Precision::Bf16 {
        let instructions = instructions();
        if let Some(instructions) = instructions {
            product_with(instructions, c, a, b, output, threads);
        }
        return instructions.is_some();
    }
    #[cfg(target_arch = "x86_64")]
    if cpu::avx512() {
        // SAFETY: the instructions are supported, and the sizes fit.
        unsafe { blocked::product::<avx512::Avx512<1>, E>(c, a, b, output, threads) };
        return true;
    }
    false
}

/// [`product`] in bfloat16 with the given instructions.
///
/// # Panics
/// Panics if the sizes do not fit, or the instructions are not available.
pub fn product_with<E: Element>(
    instructions: Instructions,
    c: &mut MatrixMut<'_>,
    a: Matrix<'_>,
    b: Matrix<'_, E>,
    output: Output,
    threads: Threads,
) {
    assert_fit(c, a, b);
    assert!(
        instructions.available(),
        "{instructions:?} is not available"
    );
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instructions are supported, and the sizes fit.
    unsafe {
        match instructions {
            Instructions::Amx => blocked::product::<amx::Amx, E>(c, a, b, output, threads),
            Instructions::Avx512 => {
                blocked::product::<avx512::Avx512<2>, E>(c, a, b, output, threads)
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (output, threads);
}
