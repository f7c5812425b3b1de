//! Inner products with the integer instructions of x86-64 (AVX512-VNNI).

use std::arch::x86_64::{
    __m128, __m512, __m512i, _mm_add_ps, _mm_fmadd_ps, _mm_loadu_ps, _mm_mul_ps, _mm_set1_ps,
    _mm_setzero_ps, _mm512_add_ps, _mm512_castps128_ps512, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32,
    _mm512_fmadd_ps, _mm512_loadu_si512, _mm512_permutexvar_ps, _mm512_reduce_add_ps,
    _mm512_setr_epi32, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_sub_ps,
    _mm512_zextps128_ps512,
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
    below: __m128,
}

/// The inner product of a row of W and a row of x.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
pub(super) fn dot(w: &Levels, x: &Rounded) -> f32 {
    let (factor, subtracted) = w.subtracted();
    let steps = w.values.len().min(x.values.len());
    // Slices of one length, so that their bounds are checked once.
    let (q, p) = (&w.values[..steps], &x.values[..steps]);
    let scales = (&w.scales[..steps], &x.scales[..steps]);
    let below = (&subtracted[..steps], &x.sums[..steps]);
    let add = |sums: Sums, step: usize| {
        // A lane of 32 bits sums 4 products, so 4 lanes have the same scale.
        let lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        let scale = _mm_mul_ps(four(&scales.0[step]), four(&scales.1[step]));
        let scale = _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(scale));
        let zero = _mm512_setzero_si512();
        let products = _mm512_dpbusd_epi32(zero, bytes(&q[step]), bytes(&p[step]));
        let (below, sum) = (four(&below.0[step]), four(&below.1[step]));
        Sums {
            products: _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), scale, sums.products),
            below: _mm_fmadd_ps(below, sum, sums.below),
        }
    };
    let zero = Sums {
        products: _mm512_setzero_ps(),
        below: _mm_setzero_ps(),
    };
    let mut sums = [zero; 2];
    let mut step = 0;
    while step + 1 < steps {
        sums[0] = add(sums[0], step);
        sums[1] = add(sums[1], step + 1);
        step += 2;
    }
    if step < steps {
        sums[0] = add(sums[0], step);
    }
    let [one, other] = sums;
    let below = _mm_mul_ps(_mm_add_ps(one.below, other.below), _mm_set1_ps(factor));
    let products = _mm512_add_ps(one.products, other.products);
    _mm512_reduce_add_ps(_mm512_sub_ps(products, _mm512_zextps128_ps512(below)))
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
