//! Products with a few rows of x by the integer instructions of x86-64 (AVX512-VNNI): a row of W at a time is read as it
//! is stored, and multiplied in registers.

use std::arch::x86_64::{
    _mm512_add_ps, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_fnmadd_ps,
    _mm512_maskz_mov_ps, _mm512_mul_ps, _mm512_permutexvar_ps, _mm512_reduce_add_ps,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512,
};

use super::chunk;
use super::layout::{self, LEN, Order, STEPS, format, order};
use super::load::{floats, integers};
use super::registers::{AHEAD, READ, bytes_at, lanes, with_format};
use super::{Rounded, SUB, Task, levels};
use crate::PackedFormat;
use crate::cpu::prefetch::prefetch;

/// Returns true if this CPU has the instructions.
pub(super) fn supported() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("fma")
}

/// Computes a task's outputs. x is in the order of the format's levels ([`super::registers::reorder`]).
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
    let offset = const { levels::offset(PackedFormat::ALL[FORMAT as usize]) };
    let chunk_bytes = const { PackedFormat::ALL[FORMAT as usize].row_bytes(LEN) };
    let start = j * w.format.row_bytes(k);
    let mut copy = [0; READ];
    // Registers whose lanes have the same scales.
    let shared = match const { order(FORMAT) } {
        Order::Weights => 1,
        Order::Halves => 2,
    };
    // Several independent chains of additions, as many as registers hold.
    let chains = layout::chains(I);
    let mut products = [[_mm512_setzero_ps(); STEPS]; I];
    let mut below = [_mm512_setzero_ps(); I];
    let count = k.div_ceil(LEN);
    // Slices of one length, so that their bounds are checked once.
    let mut chunks = [&x[0].chunks[..count]; I];
    for (chunks, x) in chunks.iter_mut().zip(x) {
        *chunks = &x.chunks[..count];
    }
    for (c, column) in (0..k).step_by(LEN).enumerate() {
        let bytes = bytes_at(w.bytes, start + c * chunk_bytes, &mut copy);
        // Any address may be prefetched.
        let ahead = w
            .bytes
            .as_ptr()
            .wrapping_add(start + c * chunk_bytes + AHEAD);
        for line in 0..chunk_bytes.div_ceil(64) {
            prefetch(ahead.wrapping_add(line * 64).cast());
        }
        let chunk = chunk::read::<FORMAT>(bytes);
        // The elements of x that follow the last ones are zeros, but not so are what is read as scales.
        let subs = (k - column) / SUB;
        let within = u16::MAX >> (16 - subs.min(16));
        let scales = _mm512_maskz_mov_ps(within, chunk.scales);
        let subtracted = match offset {
            Some(1..) => scales,
            _ => _mm512_maskz_mov_ps(within, chunk.minimums),
        };
        for i in 0..I {
            let x = &chunks[i][c];
            let scales = _mm512_mul_ps(scales, floats(&x.scales));
            below[i] = _mm512_fmadd_ps(subtracted, floats(&x.sums), below[i]);
            for step in (0..STEPS).step_by(shared) {
                let lanes = const { lanes(order(FORMAT)) };
                let scale = _mm512_permutexvar_ps(integers(&lanes[step]), scales);
                let mut sum = _mm512_setzero_si512();
                for step in step..step + shared {
                    sum = _mm512_dpbusd_epi32(sum, chunk.levels[step], integers(&x.values[step]));
                }
                let sum = _mm512_cvtepi32_ps(sum);
                let products = &mut products[i][step / shared % chains];
                *products = _mm512_fmadd_ps(sum, scale, *products);
            }
        }
    }
    let factor = match offset {
        Some(offset @ 1..) => f32::from(offset),
        _ => 1.0,
    };
    let mut sums = [0.0; I];
    for i in 0..I {
        let [a, b, c, d] = products[i];
        let all = _mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d));
        let all = _mm512_fnmadd_ps(_mm512_set1_ps(factor), below[i], all);
        sums[i] = _mm512_reduce_add_ps(all);
    }
    sums
}
