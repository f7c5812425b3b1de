//! Inner products with the integer instructions of x86-64 (AVX512-VNNI).

use std::arch::x86_64::{
    __m128, __m512, __m512i, _mm_fmadd_ps, _mm_loadu_ps, _mm_mul_ps, _mm_setzero_ps,
    _mm512_add_ps, _mm512_castps128_ps512, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32,
    _mm512_fmadd_ps, _mm512_loadu_si512, _mm512_permutexvar_ps, _mm512_reduce_add_ps,
    _mm512_setr_epi32, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_zextps128_ps512,
};

use super::{Levels, Rounded, Task};

/// Returns true if this CPU has the instructions.
pub(super) fn supported() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("fma")
}

/// Computes a task's outputs.
///
/// # Safety
/// The CPU has the instructions ([`supported`]).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
pub(super) unsafe fn run(task: Task<'_>) {
    task.run(|w, x| dot(w, x));
}

/// Sums of one of several independent chains of additions.
#[derive(Clone, Copy)]
struct Sums {
    products: __m512,
    minimums: __m128,
}

/// The inner product of a row of W and a row of x.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
pub(super) fn dot(w: &Levels, x: &Rounded) -> f32 {
    let zero = Sums {
        products: _mm512_setzero_ps(),
        minimums: _mm_setzero_ps(),
    };
    let steps = w.values.len().min(x.values.len());
    let mut sums = [zero; 2];
    for step in (0..steps - steps % 2).step_by(2) {
        sums[0] = add(sums[0], w, x, step);
        sums[1] = add(sums[1], w, x, step + 1);
    }
    if steps % 2 == 1 {
        sums[0] = add(sums[0], w, x, steps - 1);
    }
    let [one, other] = sums;
    let products = _mm512_reduce_add_ps(_mm512_add_ps(one.products, other.products));
    let minimums = [one.minimums, other.minimums].map(|sums| _mm512_zextps128_ps512(sums));
    products - _mm512_reduce_add_ps(_mm512_add_ps(minimums[0], minimums[1]))
}

/// Adds the products of one step. A lane of 32 bits sums 4 products, so 4 lanes have the same scale.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
fn add(sums: Sums, w: &Levels, x: &Rounded, step: usize) -> Sums {
    let lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    let scales = _mm_mul_ps(four(&w.scales[step]), four(&x.scales[step]));
    let scales = _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(scales));
    let (q, p) = (bytes(&w.values[step]), bytes(&x.values[step]));
    let products = _mm512_dpbusd_epi32(_mm512_setzero_si512(), q, p);
    let minimums = four(&w.minimums[step]);
    Sums {
        products: _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), scales, sums.products),
        minimums: _mm_fmadd_ps(minimums, four(&x.sums[step]), sums.minimums),
    }
}

#[target_feature(enable = "avx512f")]
fn bytes<T>(bytes: &[T; 64]) -> __m512i {
    const { assert!(size_of::<T>() == 1) };
    // SAFETY: the array has the 64 bytes of the vector.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
fn four(values: &[f32; 4]) -> __m128 {
    // SAFETY: the array has the four elements of the vector.
    unsafe { _mm_loadu_ps(values.as_ptr()) }
}
