//! Products by the 256-bit instructions of x86-64 (AVX2), with the sums of [`super::vnni`] and [`super::panel`]: an
//! element of their registers is here one of two registers.
//!
//! `vpmaddubsw` multiplies unsigned by signed bytes, and adds each two products in 16 bits. Where a sum does not fit, it
//! saturates. Its operands are therefore limited:
//!
//! - Levels below 64 (formats of 2 to 6 bits) times x in ±127: a sum is at most 2 · 63 · 127 = 16,002. Smaller levels
//!   leave room for several sums ([`sums_of_16_bits`]).
//! - 8-bit levels would reach 2 · 255 · 127 = 64,770. They are read as signed numbers `w = q - 128`, and their
//!   magnitudes multiplied by x with the signs of `w`: at most 2 · 128 · 127 = 32,512. The sums begin with
//!   `128 Σ p` instead, which depends only on x ([`super::offsets`]).
//!
//! So all sums are exact. CPUs with AVX-VNNI have `vpdpbusd` for these registers, which adds in 32 bits.

mod chunk;
mod few;
mod load;
mod panel;

use std::arch::x86_64::{
    __m256i, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_dpbusd_avx_epi32,
    _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_set1_epi16, _mm256_setzero_si256,
    _mm256_sign_epi8,
};

use super::layout::{FOURS, has_eight_bits, is_fine};
use super::{FEW, Task};

/// Rows of W per panel.
pub(super) const PANEL: usize = panel::ROWS;

/// Returns true if this CPU has the instructions.
pub(super) fn supported() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

/// Returns true if this CPU has the instructions and `vpdpbusd` for them.
pub(super) fn vnni_supported() -> bool {
    supported() && is_x86_feature_detected!("avxvnni")
}

/// Computes a task's outputs.
///
/// # Safety
/// The CPU has the instructions ([`supported`]).
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run(task: &Task<'_>) {
    // SAFETY: as the caller guarantees.
    unsafe {
        match task.x.len() {
            ..=FEW => few::run::<false>(task),
            _ => panel::run::<false>(task),
        }
    }
}

/// Computes a task's outputs.
///
/// # Safety
/// The CPU has the instructions ([`vnni_supported`]).
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) unsafe fn run_vnni(task: &Task<'_>) {
    // SAFETY: as the caller guarantees.
    unsafe {
        match task.x.len() {
            ..=FEW => few::run::<true>(task),
            _ => panel::run::<true>(task),
        }
    }
}

/// Returns true if the levels are read as signed numbers.
const fn is_signed(vnni: bool, format: u8) -> bool {
    !vnni && has_eight_bits(format)
}

/// The number of sums of two products that fit into 16 bits, of those with a common scale. It is a power of two, and so
/// divides the number of those.
const fn sums_of_16_bits(format: u8) -> usize {
    use super::layout::format::{MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K};
    let largest = match format {
        Q2_K => 3,
        Q3_K => 7,
        Q4_0 | Q4_1 | Q4_K => 15,
        MXFP4 => 24,
        Q5_0 | Q5_1 | Q5_K => 31,
        Q6_K => 63,
        _ => 128,
    };
    let fitting = i16::MAX as usize / (2 * 127 * largest);
    let (most, all) = (
        1 << fitting.ilog2(),
        if is_fine(format) { FOURS } else { 2 * FOURS },
    );
    if most < all { most } else { all }
}

/// `sum + q p`, with the products of four neighbouring bytes added up: `q` is signed as [`is_signed`] states.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn add_products<const VNNI: bool, const FORMAT: u8>(
    sum: __m256i,
    q: __m256i,
    p: __m256i,
) -> __m256i {
    // SAFETY: as the caller guarantees.
    unsafe {
        if VNNI {
            return _mm256_dpbusd_avx_epi32(sum, q, p);
        }
        let products = add_products_16::<VNNI, FORMAT>(_mm256_setzero_si256(), q, p);
        add_sums_of_16(sum, products)
    }
}

/// [`add_products`] of two registers each.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn add_pairs<const VNNI: bool, const FORMAT: u8>(
    sum: __m256i,
    q: [__m256i; 2],
    p: [__m256i; 2],
) -> __m256i {
    // SAFETY: as the caller guarantees. Two sums fit into 16 bits.
    unsafe {
        if VNNI || const { sums_of_16_bits(FORMAT) < 2 } {
            let sum = add_products::<VNNI, FORMAT>(sum, q[0], p[0]);
            return add_products::<VNNI, FORMAT>(sum, q[1], p[1]);
        }
        let first = add_products_16::<VNNI, FORMAT>(_mm256_setzero_si256(), q[0], p[0]);
        add_sums_of_16(sum, add_products_16::<VNNI, FORMAT>(first, q[1], p[1]))
    }
}

/// `sum + q p` in 16 bits, with the products of two neighbouring bytes added up.
///
/// # Safety
/// As for [`add_products`]. At most [`sums_of_16_bits`] may be added to 0.
#[inline(always)]
unsafe fn add_products_16<const VNNI: bool, const FORMAT: u8>(
    sum: __m256i,
    q: __m256i,
    p: __m256i,
) -> __m256i {
    // SAFETY: as the caller guarantees.
    unsafe {
        let products = if const { is_signed(VNNI, FORMAT) } {
            _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(p, q))
        } else {
            _mm256_maddubs_epi16(q, p)
        };
        _mm256_add_epi16(sum, products)
    }
}

/// Adds each two sums of 16 bits to a sum of 32.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn add_sums_of_16(sum: __m256i, sums: __m256i) -> __m256i {
    // SAFETY: as the caller guarantees.
    unsafe { _mm256_add_epi32(sum, _mm256_madd_epi16(sums, _mm256_set1_epi16(1))) }
}
