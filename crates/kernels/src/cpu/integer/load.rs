//! Loads of vector registers.

use std::arch::x86_64::{
    __m128i, __m256i, __m512, __m512i, _mm_loadu_si128, _mm256_loadu_si256, _mm512_loadu_ps,
    _mm512_loadu_si512, _mm512_storeu_ps, _mm512_storeu_si512,
};

/// Returns the 64 bytes from `at`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn sixty_four<const LEN: usize>(bytes: &[u8; LEN], at: usize) -> __m512i {
    assert!(at + 64 <= LEN);
    // SAFETY: the bytes are within the array.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().add(at).cast()) }
}

/// Returns the 32 bytes from `at`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn thirty_two<const LEN: usize>(bytes: &[u8; LEN], at: usize) -> __m256i {
    assert!(at + 32 <= LEN);
    // SAFETY: the bytes are within the array.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().add(at).cast()) }
}

/// Returns the 16 bytes from `at`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn sixteen<const LEN: usize>(bytes: &[u8; LEN], at: usize) -> __m128i {
    assert!(at + 16 <= LEN);
    // SAFETY: the bytes are within the array.
    unsafe { _mm_loadu_si128(bytes.as_ptr().add(at).cast()) }
}

/// Returns the integers of an array of 64 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn integers<T: Integer, const LEN: usize>(values: &[T; LEN]) -> __m512i {
    const { assert!(size_of::<[T; LEN]>() == 64) };
    // SAFETY: the array has the 64 bytes of the vector.
    unsafe { _mm512_loadu_si512(values.as_ptr().cast()) }
}

/// Types whose arrays consist of initialized bytes.
pub(super) trait Integer {}

impl Integer for i8 {}
impl Integer for i32 {}
impl Integer for u8 {}
impl Integer for u16 {}
impl Integer for u32 {}

/// Writes integers to an array of 64 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn put_integers(values: __m512i, out: &mut [u32; 16]) {
    // SAFETY: the array has the 64 bytes of the vector.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), values) };
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn floats(values: &[f32; 16]) -> __m512 {
    // SAFETY: the array has the elements of the vector.
    unsafe { _mm512_loadu_ps(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn put_floats(values: __m512, out: &mut [f32; 16]) {
    // SAFETY: the array has the elements of the vector.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), values) };
}
