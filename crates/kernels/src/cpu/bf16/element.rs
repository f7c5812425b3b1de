//! The types of the elements of a factor.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use crate::cpu::float16::{Bf16, F16};

/// A type of elements in memory.
pub trait Element: Copy + Send + Sync {
    /// The element in f32. Exact.
    fn value(self) -> f32;

    /// The adjacent elements from `from` on in f32, those that the mask selects. The others are zero.
    ///
    /// # Safety
    /// The CPU supports AVX512F and AVX512BW, and the selected elements are readable.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load(mask: u16, from: *const Self) -> __m512;
}

impl Element for f32 {
    #[inline(always)]
    fn value(self) -> f32 {
        self
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    unsafe fn load(mask: u16, from: *const Self) -> __m512 {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_maskz_loadu_ps(mask, from) }
    }
}

impl Element for Bf16 {
    #[inline(always)]
    fn value(self) -> f32 {
        self.value()
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    unsafe fn load(mask: u16, from: *const Self) -> __m512 {
        // SAFETY: guaranteed by the caller.
        let bits = _mm512_cvtepu16_epi32(unsafe { load_16_bits(mask, from.cast()) });
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
    }
}

impl Element for F16 {
    #[inline(always)]
    fn value(self) -> f32 {
        self.value()
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    unsafe fn load(mask: u16, from: *const Self) -> __m512 {
        // SAFETY: guaranteed by the caller.
        _mm512_cvtph_ps(unsafe { load_16_bits(mask, from.cast()) })
    }
}

/// Elements of 16 bits that the mask selects. The others are zero.
///
/// # Safety
/// As for [`Element::load`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn load_16_bits(mask: u16, from: *const i16) -> __m256i {
    // SAFETY: guaranteed by the caller.
    _mm512_castsi512_si256(unsafe { _mm512_maskz_loadu_epi16(u32::from(mask), from) })
}
