//! Products with a few rows of x, as in [`super::super::vnni`].

use std::arch::x86_64::{
    __m256, _mm_add_ps, _mm_cvtss_f32, _mm_movehl_ps, _mm_shuffle_ps, _mm256_add_epi32,
    _mm256_add_ps, _mm256_and_ps, _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_cmpgt_epi32,
    _mm256_cvtepi32_ps, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_mul_ps,
    _mm256_permutevar8x32_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32,
    _mm256_setzero_ps, _mm256_setzero_si256,
};

use super::super::layout::{self, LEN, Order, STEPS, format, order};
use super::super::registers::{AHEAD, READ, bytes_at, lanes, with_format};
use super::super::{Rounded, SUB, Task, levels};
use super::chunk::{self, Two};
use super::load::{floats, integers};
use super::{add_pairs, add_products, is_signed};
use crate::PackedFormat;
use crate::cpu::prefetch::prefetch;

/// Computes a task's outputs. x is in the order of the format's levels ([`registers::reorder`]).
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
pub(super) unsafe fn run<const VNNI: bool>(task: &Task<'_>) {
    for (group, x) in task.x.chunks(4).enumerate() {
        // SAFETY: as the caller guarantees.
        unsafe {
            match x {
                [x] => with_format!(task.w.format, rows(VNNI, 1; task, 4 * group, [x])),
                [x, y] => with_format!(task.w.format, rows(VNNI, 2; task, 4 * group, [x, y])),
                [x, y, z] => with_format!(task.w.format, rows(VNNI, 3; task, 4 * group, [x, y, z])),
                [x, y, z, a, ..] => {
                    with_format!(task.w.format, rows(VNNI, 4; task, 4 * group, [x, y, z, a]));
                }
                [] => {}
            }
        }
    }
}

/// The outputs of `I` rows of x, from row `first`.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn rows<const VNNI: bool, const I: usize, const FORMAT: u8>(
    task: &Task<'_>,
    first: usize,
    x: [&Rounded; I],
) {
    for j in task.outputs.clone() {
        // SAFETY: as the caller guarantees. The elements are within y, and only this task writes them.
        unsafe {
            let sums = inner_products::<VNNI, I, FORMAT>(task, j, x);
            for (i, sum) in sums.iter().enumerate() {
                task.sums.put(first + i, j, *sum);
            }
        }
    }
}

/// The inner products of row `j` of W and some rows of x.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn inner_products<const VNNI: bool, const I: usize, const FORMAT: u8>(
    task: &Task<'_>,
    j: usize,
    x: [&Rounded; I],
) -> [f32; I] {
    let (w, k) = (task.w, task.w.shape[1]);
    let offset = const { levels::offset(PackedFormat::ALL[FORMAT as usize]) };
    let chunk_bytes = const { PackedFormat::ALL[FORMAT as usize].row_bytes(LEN) };
    let start = j * w.format.row_bytes(k);
    let mut copy = [0; READ];
    let count = k.div_ceil(LEN);
    // Slices of one length, so that their bounds are checked once.
    let mut chunks = [&x[0].chunks[..count]; I];
    let mut offsets = [&x[0].offsets[..0]; I];
    for i in 0..I {
        chunks[i] = &x[i].chunks[..count];
        if const { is_signed(VNNI, FORMAT) } {
            offsets[i] = &x[i].offsets[..count];
        }
    }
    // SAFETY: as the caller guarantees.
    unsafe {
        let mut products = [[[_mm256_setzero_ps(); 2]; STEPS]; I];
        let mut below = [[_mm256_setzero_ps(); 2]; I];
        for (c, column) in (0..k).step_by(LEN).enumerate() {
            let at = start + c * chunk_bytes;
            let bytes = bytes_at(w.bytes, at, &mut copy);
            // Any address may be prefetched.
            let ahead = w.bytes.as_ptr().wrapping_add(at + AHEAD);
            for line in 0..chunk_bytes.div_ceil(64) {
                prefetch(ahead.wrapping_add(line * 64).cast());
            }
            let chunk = chunk::read::<VNNI, FORMAT>(bytes);
            let scales = within(chunk.scales, (k - column) / SUB);
            let subtracted = match offset {
                Some(1..) => scales,
                _ => within(chunk.minimums, (k - column) / SUB),
            };
            for i in 0..I {
                let x = &chunks[i][c];
                let (x_scales, x_sums) = (x.scales.as_chunks().0, x.sums.as_chunks().0);
                let mut both = scales;
                for part in 0..2 {
                    both[part] = _mm256_mul_ps(scales[part], floats(&x_scales[part]));
                    below[i][part] =
                        _mm256_fmadd_ps(subtracted[part], floats(&x_sums[part]), below[i][part]);
                }
                let (values, _) = x.values.as_flattened().as_chunks::<32>();
                let shared = const { shared(FORMAT) };
                for step in (0..STEPS).step_by(shared) {
                    let (indices, _) = const { &lanes(order(FORMAT)) }[step].as_chunks::<8>();
                    for part in 0..2 {
                        let values = [
                            &values[2 * step + part],
                            &values[2 * (step + shared) - 2 + part],
                        ];
                        let q = [
                            chunk.levels[step][part],
                            chunk.levels[step + shared - 1][part],
                        ];
                        let mut sum = _mm256_setzero_si256();
                        if const { is_signed(VNNI, FORMAT) } {
                            let (fours, _) = offsets[i][c].fours.as_chunks::<8>();
                            sum = integers(&fours[2 * step + part]);
                            if shared == 2 {
                                sum = _mm256_add_epi32(sum, integers(&fours[2 * step + 2 + part]));
                            }
                        }
                        sum = match shared {
                            1 => add_products::<VNNI, FORMAT>(sum, q[0], integers(values[0])),
                            _ => add_pairs::<VNNI, FORMAT>(sum, q, values.map(|p| integers(p))),
                        };
                        // The indices of a register are below or above 8: the permutation uses their lower bits.
                        let scale = both[step / 2];
                        let scale = _mm256_permutevar8x32_ps(scale, integers(&indices[part]));
                        let products = &mut products[i][step / shared % layout::chains(I)][part];
                        *products = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, *products);
                    }
                }
            }
        }
        let factor = match offset {
            Some(offset @ 1..) => f32::from(offset),
            _ => 1.0,
        };
        let mut sums = [0.0; I];
        for i in 0..I {
            let mut all = [_mm256_setzero_ps(); 2];
            for part in 0..2 {
                let [a, b, c, d] = products[i].map(|products| products[part]);
                let sum = _mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d));
                all[part] = _mm256_fnmadd_ps(_mm256_set1_ps(factor), below[i][part], sum);
            }
            sums[i] = total(all);
        }
        sums
    }
}

/// The number of steps whose lanes have the same scales.
const fn shared(format: u8) -> usize {
    match order(format) {
        Order::Weights => 1,
        Order::Halves => 2,
    }
}

/// Replaces the values of sub-blocks from `subs` by zeros. The elements of x that follow the last ones are zeros, but not
/// so are the bytes that are read as scales.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn within(values: Two<__m256>, subs: usize) -> Two<__m256> {
    let subs = subs.min(LEN / SUB) as i32;
    // SAFETY: as the caller guarantees.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let mask = |first: i32| {
            _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(subs - first), lanes))
        };
        [
            _mm256_and_ps(values[0], mask(0)),
            _mm256_and_ps(values[1], mask(8)),
        ]
    }
}

/// The sum of 16 elements, by halves.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn total([first, second]: Two<__m256>) -> f32 {
    // SAFETY: as the caller guarantees.
    unsafe {
        let eight = _mm256_add_ps(first, second);
        let four = _mm_add_ps(
            _mm256_extractf128_ps::<1>(eight),
            _mm256_castps256_ps128(eight),
        );
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ps(two, _mm_shuffle_ps::<1>(two, two)))
    }
}
