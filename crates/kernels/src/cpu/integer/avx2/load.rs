//! Loads and stores of vector registers.

use std::arch::x86_64::{
    __m256, __m256i, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_storeu_ps, _mm256_storeu_si256,
};

use super::super::load::Integer;

/// Returns the integers of an array of 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn integers<T: Integer, const LEN: usize>(values: &[T; LEN]) -> __m256i {
    const { assert!(size_of::<[T; LEN]>() == 32) };
    // SAFETY: the array has the 32 bytes of the vector.
    unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
}

/// Writes integers to an array of 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn put_integers(values: __m256i, out: &mut [u32; 8]) {
    // SAFETY: the array has the 32 bytes of the vector.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), values) };
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn floats(values: &[f32; 8]) -> __m256 {
    // SAFETY: the array has the elements of the vector.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn put_floats(values: __m256, out: &mut [f32; 8]) {
    // SAFETY: the array has the elements of the vector.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), values) };
}
