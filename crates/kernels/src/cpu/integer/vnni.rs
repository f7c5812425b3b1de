//! Products with a few rows of x by the integer instructions of x86-64 (AVX512-VNNI): a row of W at a time is read as it
//! is stored, and multiplied in registers.

use std::arch::x86_64::{
    __m512, _mm512_add_ps, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps,
    _mm512_fnmadd_ps, _mm512_maskz_mov_ps, _mm512_mul_ps, _mm512_permutexvar_ps,
    _mm512_reduce_add_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512,
};

use super::chunk::{self, READ, bytes_at, format, with_format};
use super::load::{floats, integers};
use super::{Rounded, STEP, SUB, Task, levels};
use crate::PackedFormat;

/// Steps per chunk.
const STEPS: usize = chunk::LEN / STEP;

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
pub(super) unsafe fn run(task: &Task<'_>) {
    let mut first = 0;
    while first < task.x.len() {
        // Rows of W are read once per four rows of x.
        match &task.x[first..] {
            [x] => with_format!(task.w.format, rows(1; task, first, [x])),
            [x, y] => with_format!(task.w.format, rows(2; task, first, [x, y])),
            [x, y, z] => with_format!(task.w.format, rows(3; task, first, [x, y, z])),
            [x, y, z, a, ..] => with_format!(task.w.format, rows(4; task, first, [x, y, z, a])),
            [] => {}
        }
        first += 4;
    }
}

/// The outputs of `I` rows of x, from row `first`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
fn rows<const I: usize, const FORMAT: u8>(task: &Task<'_>, first: usize, x: [&Rounded; I]) {
    for j in task.outputs.clone() {
        let sums = inner_products::<I, FORMAT>(task, j, x);
        for (i, sum) in sums.iter().enumerate() {
            // SAFETY: the element is within y, and only this task writes it.
            unsafe { task.sums.put(first + i, j, *sum) };
        }
    }
}

/// The inner products of row `j` of W and some rows of x.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
fn inner_products<const I: usize, const FORMAT: u8>(
    task: &Task<'_>,
    j: usize,
    x: [&Rounded; I],
) -> [f32; I] {
    let (w, k) = (task.w, task.w.shape[1]);
    let chunk_bytes = w.format.row_bytes(chunk::LEN);
    let start = j * w.format.row_bytes(k);
    let mut copy = [0; READ];
    // One sum per step: several independent chains of additions.
    let mut products = [[_mm512_setzero_ps(); STEPS]; I];
    let mut below = [_mm512_setzero_ps(); I];
    for c in 0..k.div_ceil(chunk::LEN) {
        let bytes = bytes_at(w.bytes, start + c * chunk_bytes, &mut copy);
        let mut chunk = chunk::read::<FORMAT>(bytes);
        let subs = (k - c * chunk::LEN) / SUB;
        let steps = subs.div_ceil(STEP / SUB).min(STEPS);
        if subs < chunk::LEN / SUB {
            let within = (1 << subs) - 1;
            chunk.scales = _mm512_maskz_mov_ps(within, chunk.scales);
            chunk.minimums = _mm512_maskz_mov_ps(within, chunk.minimums);
        }
        for i in 0..I {
            let x = &x[i].chunks[c];
            let scales = _mm512_mul_ps(chunk.scales, floats(&x.scales));
            let sums = floats(&x.sums);
            below[i] = match levels::offset(w.format) {
                Some(1..) => _mm512_fmadd_ps(chunk.scales, sums, below[i]),
                _ => _mm512_fmadd_ps(chunk.minimums, sums, below[i]),
            };
            for step in 0..STEPS {
                if step == steps {
                    break;
                }
                let scale = _mm512_permutexvar_ps(integers(&LANES[step]), scales);
                let zero = _mm512_setzero_si512();
                let sum = _mm512_dpbusd_epi32(zero, chunk.levels[step], integers(&x.values[step]));
                products[i][step] =
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, products[i][step]);
            }
        }
    }
    let factor = match levels::offset(w.format) {
        Some(offset @ 1..) => f32::from(offset),
        _ => 1.0,
    };
    let mut sums = [0.0; I];
    for i in 0..I {
        let [a, b, c, d] = products[i];
        let all = _mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d));
        let all: __m512 = _mm512_fnmadd_ps(_mm512_set1_ps(factor), below[i], all);
        sums[i] = _mm512_reduce_add_ps(all);
    }
    sums
}

/// The sub-block of each lane of a step. A lane of 32 bits sums 4 products, so 4 lanes have the same scale.
const LANES: [[u32; 16]; STEPS] = {
    let mut lanes = [[0; 16]; STEPS];
    let mut at = 0;
    while at < 16 * STEPS {
        lanes[at / 16][at % 16] = (at / 4) as u32;
        at += 1;
    }
    lanes
};
