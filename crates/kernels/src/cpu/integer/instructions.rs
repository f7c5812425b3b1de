//! The instruction sets that have kernels for products in integers.

use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
use super::neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::offsets;
use super::{FEW, Rounded, Task, portable};
#[cfg(target_arch = "x86_64")]
use super::{avx2, panel, registers, tiles, vnni};
use crate::PackedFormat;
#[cfg(target_arch = "x86_64")]
use crate::cpu::packed::PackedView;
use crate::cpu::vector::wide;

/// An instruction set. All sets with fused multiply-adds compute the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::cpu) enum Instructions {
    /// Any CPU.
    Portable,
    /// x86-64 with AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX2 and AVX-VNNI.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// AVX-512 with AVX512-VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    /// AVX512-VNNI, and AMX for many rows of x.
    #[cfg(target_arch = "x86_64")]
    AmxInt8,
    /// 64-bit Arm.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// 64-bit Arm with products of four bytes.
    #[cfg(target_arch = "aarch64")]
    NeonDot,
}

impl Instructions {
    /// Every instruction set, from the slowest to the fastest.
    const ALL: &[Self] = &[
        Self::Portable,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        #[cfg(target_arch = "x86_64")]
        Self::AvxVnni,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512Vnni,
        #[cfg(target_arch = "x86_64")]
        Self::AmxInt8,
        #[cfg(target_arch = "aarch64")]
        Self::Neon,
        #[cfg(target_arch = "aarch64")]
        Self::NeonDot,
    ];

    /// The sets that this CPU has, from the slowest to the fastest.
    pub(super) fn supported() -> impl DoubleEndedIterator<Item = Self> {
        Self::ALL.iter().copied().filter(|set| set.is_supported())
    }

    /// The fastest set that this CPU has.
    pub(in crate::cpu) fn fastest() -> Self {
        // A virtual machine may take long to say what its CPU has.
        static FASTEST: OnceLock<Instructions> = OnceLock::new();
        *FASTEST.get_or_init(|| Self::supported().next_back().unwrap_or(Self::Portable))
    }

    /// The name of the instruction set; `None` for those of any CPU.
    pub(in crate::cpu) fn name(self) -> Option<&'static str> {
        match self {
            Self::Portable => None,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Some("AVX2"),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => Some("AVX-VNNI"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => Some("AVX512-VNNI"),
            #[cfg(target_arch = "x86_64")]
            Self::AmxInt8 => Some("AMX"),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => Some("NEON"),
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot => Some("NEON dot products"),
        }
    }

    fn is_supported(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::supported(),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => avx2::vnni_supported(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => vnni::supported(),
            #[cfg(target_arch = "x86_64")]
            Self::AmxInt8 => tiles::supported(),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => neon::supported(),
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot => neon::dot_supported(),
        }
    }

    /// Prepares the rows of x for products with weights of a format.
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        allow(unused_variables)
    )]
    pub(super) fn prepare(self, x: &mut [Rounded], format: PackedFormat) {
        #[cfg(target_arch = "x86_64")]
        if self != Self::Portable && x.len() <= FEW {
            registers::reorder(x, format);
        }
        #[cfg(target_arch = "x86_64")]
        if self == Self::Avx2 {
            offsets::prepare(x, format);
        }
        #[cfg(target_arch = "aarch64")]
        if self != Self::Portable {
            offsets::prepare(x, format);
        }
    }

    /// The rows of x that are multiplied by tile registers, in their order.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn tiles(self, x: &[Rounded], w: PackedView<'_>) -> tiles::Tiles {
        match self {
            Self::AmxInt8 if x.len() > FEW => tiles::Tiles::new(x, w.shape[1], w.format),
            _ => tiles::Tiles::default(),
        }
    }

    /// The number of rows of W that are multiplied at once with `rows` rows of x.
    pub(super) const fn outputs(self, rows: usize) -> usize {
        if rows <= FEW {
            return 1;
        }
        match self {
            Self::Portable => portable::PANEL,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::AvxVnni => avx2::PANEL,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni | Self::AmxInt8 => panel::ROWS,
            #[cfg(target_arch = "aarch64")]
            Self::Neon | Self::NeonDot => neon::PANEL,
        }
    }

    /// Computes a task's outputs. x is [prepared](Self::prepare).
    ///
    /// # Safety
    /// The CPU has the instructions.
    pub(super) unsafe fn run(self, task: Task<'_>) {
        // SAFETY: as the caller guarantees.
        #[allow(unused_unsafe)]
        unsafe {
            match self {
                Self::Portable => wide(task),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => avx2::run(&task),
                #[cfg(target_arch = "x86_64")]
                Self::AvxVnni => avx2::run_vnni(&task),
                #[cfg(target_arch = "x86_64")]
                Self::Avx512Vnni | Self::AmxInt8 if task.x.len() <= FEW => vnni::run(&task),
                #[cfg(target_arch = "x86_64")]
                Self::Avx512Vnni | Self::AmxInt8 => panel::run(&task),
                #[cfg(target_arch = "aarch64")]
                Self::Neon => neon::run(&task),
                #[cfg(target_arch = "aarch64")]
                Self::NeonDot => neon::run_dot(&task),
            }
        }
    }
}
