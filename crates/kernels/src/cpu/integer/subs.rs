//! The scales and minimums of the sub-blocks of a chunk, a byte each, in registers of 128 bits.

use std::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_cvtsi64_si128, _mm_or_si128, _mm_set1_epi8, _mm_setr_epi32,
    _mm_shuffle_epi32, _mm_srli_epi16, _mm_srlv_epi32, _mm_unpackhi_epi8, _mm_unpacklo_epi8,
};

use super::super::blocks::symmetric;
use super::load::sixteen;
use super::registers::READ;

/// The scales and minimums of q2_k.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn four_bit_subs(bytes: &[u8; READ]) -> (__m128i, __m128i) {
    let subs = sixteen(bytes, 0);
    let low = _mm_set1_epi8(15);
    (
        _mm_and_si128(subs, low),
        _mm_and_si128(_mm_srli_epi16::<4>(subs), low),
    )
}

/// The scales of q3_k, which are signed.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn signed_six_bit_subs(bytes: &[u8; READ]) -> __m128i {
    let mut scales = [0; 12];
    scales.copy_from_slice(&bytes[96..108]);
    sixteen(&symmetric::scales_q3(&scales).map(i8::cast_unsigned), 0)
}

/// The scales and minimums of q4_k and q5_k, those of a sub-block of 32 twice.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn six_bit_subs(bytes: &[u8; READ]) -> (__m128i, __m128i) {
    const EACH: i32 = 0x0101_0101;
    // The numbers of `cpu/blocks/six_bit_scales.rs`: scales 0 to 3, then 4 to 7, and the minimums likewise.
    let header = sixteen(bytes, 0);
    let first = _mm_shuffle_epi32::<0b10_10_01_01>(header);
    let first = _mm_srlv_epi32(first, _mm_setr_epi32(0, 2, 0, 2));
    let first = _mm_and_si128(
        first,
        _mm_setr_epi32(EACH * 63, EACH * 48, EACH * 63, EACH * 48),
    );
    let low = _mm_shuffle_epi32::<0b11_11_11_11>(header);
    let low = _mm_srlv_epi32(low, _mm_setr_epi32(0, 0, 0, 4));
    let low = _mm_and_si128(low, _mm_setr_epi32(0, EACH * 15, 0, EACH * 15));
    let subs = _mm_or_si128(first, low);
    (_mm_unpacklo_epi8(subs, subs), _mm_unpackhi_epi8(subs, subs))
}

/// The exponents of the scales of mxfp4, each twice.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn exponents(bytes: &[u8; READ]) -> __m128i {
    let mut eight = [0; 8];
    for (block, exponent) in eight.iter_mut().enumerate() {
        *exponent = bytes[17 * block];
    }
    let eight = _mm_cvtsi64_si128(i64::from_le_bytes(eight));
    _mm_unpacklo_epi8(eight, eight)
}
