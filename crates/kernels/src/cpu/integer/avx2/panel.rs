//! Products with many rows of x, as in [`super::super::panel`].

use std::arch::x86_64::{
    __m256i, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cvtepi32_ps, _mm256_fmadd_ps,
    _mm256_fnmadd_ps, _mm256_mul_ps, _mm256_permute2x128_si256, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_setzero_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32,
    _mm256_unpacklo_epi64,
};
use std::ops::Range;

use super::super::layout::{FOURS, LEN, STEPS, format, is_fine, order};
use super::super::registers::{READ, bytes_at, sub_blocks, with_format};
use super::super::{Rounded, SUB, Task, levels};
use super::chunk;
use super::load::{floats, integers, put_floats, put_integers};
use super::{add_products, add_products_16, add_sums_of_16, is_signed, sums_of_16_bits};
use crate::PackedFormat;
use crate::cpu::packed::PackedView;

/// Rows of W per register.
const LANES: usize = 8;
/// Rows of W per panel.
pub(super) const ROWS: usize = GROUPS * LANES;
/// Registers per panel and four columns.
const GROUPS: usize = 2;
/// Columns of W that are interleaved at a time: they stay in the L1 cache.
const COLUMNS: usize = 2 * LEN;
/// Rows of x that are multiplied at a time: their sums stay in registers.
const TILE: usize = 4;

/// A value for each row of a panel.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line<T>([[T; LANES]; GROUPS]);

/// Some columns of [`ROWS`] rows of W.
struct Panel {
    /// Four levels per element.
    levels: [Line<u32>; COLUMNS / 4],
    /// One per sub-block.
    scales: [Line<f32>; COLUMNS / SUB],
    /// `m + s o` of each sub-block.
    subtracted: [Line<f32>; COLUMNS / SUB],
}

/// Computes a task's outputs.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
pub(super) unsafe fn run<const VNNI: bool>(task: &Task<'_>) {
    // SAFETY: as the caller guarantees.
    unsafe { with_format!(task.w.format, panels(VNNI; task)) };
}

/// Computes a task's outputs.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn panels<const VNNI: bool, const FORMAT: u8>(task: &Task<'_>) {
    let k = task.w.shape[1];
    let mut panel = Box::new(Panel {
        levels: [Line([[0; LANES]; GROUPS]); COLUMNS / 4],
        scales: [Line([[0.0; LANES]; GROUPS]); COLUMNS / SUB],
        subtracted: [Line([[0.0; LANES]; GROUPS]); COLUMNS / SUB],
    });
    let mut sums = vec![Line([[0.0; LANES]; GROUPS]); task.x.len()];
    for start in task.outputs.clone().step_by(ROWS) {
        let rows = start..task.outputs.end.min(start + ROWS);
        sums.fill(Line([[0.0; LANES]; GROUPS]));
        for column in (0..k).step_by(COLUMNS) {
            let columns = column..k.min(column + COLUMNS);
            // SAFETY: as the caller guarantees.
            unsafe {
                panel.read::<VNNI, FORMAT>(task.w, rows.clone(), column);
                panel.multiply_all::<VNNI, FORMAT>(task.x, columns, &mut sums);
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            let sums = &sums.0.as_flattened()[..rows.len()];
            // SAFETY: the elements are within y, and only this task writes them.
            unsafe { task.sums.put_all(i, start, sums) };
        }
    }
}

impl Panel {
    /// Reads some rows of W from column `column`.
    ///
    /// # Safety
    /// The CPU has the instructions.
    #[inline(always)]
    unsafe fn read<const VNNI: bool, const FORMAT: u8>(
        &mut self,
        w: PackedView<'_>,
        rows: Range<usize>,
        column: usize,
    ) {
        const SUBS: usize = LEN / SUB;
        let k = w.shape[1];
        let chunk_bytes = w.format.row_bytes(LEN);
        let offset = levels::offset(w.format).map_or(0.0, f32::from);
        let mut copy = [0; READ];
        let columns = (column..k.min(column + COLUMNS)).step_by(LEN);
        for (part, column) in columns.enumerate() {
            for group in 0..GROUPS {
                let first = rows.start + group * LANES;
                // SAFETY: as the caller guarantees.
                unsafe {
                    let offset = _mm256_set1_ps(offset);
                    let nothing = _mm256_setzero_si256();
                    let mut all = [[nothing; LANES]; 2 * STEPS];
                    let mut scales = [[nothing; LANES]; 2];
                    let mut subtracted = [[nothing; LANES]; 2];
                    for lane in 0..rows.end.saturating_sub(first).min(LANES) {
                        let at =
                            (first + lane) * w.format.row_bytes(k) + column / LEN * chunk_bytes;
                        let bytes = bytes_at(w.bytes, at, &mut copy);
                        let chunk = chunk::read::<VNNI, FORMAT>(bytes);
                        for (all, levels) in all.iter_mut().zip(chunk.levels.as_flattened()) {
                            all[lane] = *levels;
                        }
                        for half in 0..2 {
                            let (scale, minimum) = (chunk.scales[half], chunk.minimums[half]);
                            let below = _mm256_fmadd_ps(scale, offset, minimum);
                            scales[half][lane] = _mm256_castps_si256(scale);
                            subtracted[half][lane] = _mm256_castps_si256(below);
                        }
                    }
                    let out = &mut self.levels[part * LEN / 4..][..LEN / 4];
                    let subs = const { sub_blocks(order(FORMAT)) };
                    let (subs, _) = subs.as_flattened().as_chunks::<2>();
                    for (all, subs) in all.iter().zip(subs) {
                        let columns = transposed(*all);
                        for (columns, sub) in columns.as_chunks::<FOURS>().0.iter().zip(subs) {
                            for (column, out) in columns.iter().zip(&mut out[sub * FOURS..]) {
                                put_integers(*column, &mut out.0[group]);
                            }
                        }
                    }
                    for half in 0..2 {
                        let start = part * SUBS + half * LANES;
                        let out = &mut self.scales[start..][..LANES];
                        for (column, out) in transposed(scales[half]).into_iter().zip(out) {
                            put_floats(_mm256_castsi256_ps(column), &mut out.0[group]);
                        }
                        let out = &mut self.subtracted[start..][..LANES];
                        for (column, out) in transposed(subtracted[half]).into_iter().zip(out) {
                            put_floats(_mm256_castsi256_ps(column), &mut out.0[group]);
                        }
                    }
                }
            }
        }
    }

    /// Adds the products with the columns of all rows of x to `sums`.
    ///
    /// # Safety
    /// The CPU has the instructions.
    #[inline(always)]
    unsafe fn multiply_all<const VNNI: bool, const FORMAT: u8>(
        &self,
        x: &[Rounded],
        columns: Range<usize>,
        sums: &mut [Line<f32>],
    ) {
        let (tiles, rest) = x.as_chunks::<TILE>();
        let (sums, rest_sums) = sums.as_chunks_mut::<TILE>();
        for (x, sums) in tiles.iter().zip(sums) {
            // SAFETY: as the caller guarantees.
            unsafe { self.multiply::<VNNI, TILE, FORMAT>(x, &columns, sums) };
        }
        for (x, sums) in rest.iter().zip(rest_sums) {
            let (x, sums) = (std::array::from_ref(x), std::array::from_mut(sums));
            // SAFETY: as the caller guarantees.
            unsafe { self.multiply::<VNNI, 1, FORMAT>(x, &columns, sums) };
        }
    }

    /// Adds the products with the columns of `I` rows of x to `sums`.
    ///
    /// # Safety
    /// The CPU has the instructions.
    #[inline(always)]
    unsafe fn multiply<const VNNI: bool, const I: usize, const FORMAT: u8>(
        &self,
        x: &[Rounded; I],
        columns: &Range<usize>,
        sums: &mut [Line<f32>; I],
    ) {
        // Sub-blocks with a common scale, and the groups of four columns whose products are added up in 16 bits.
        let (together, run) = const {
            let together = if is_fine(FORMAT) { 1 } else { 2 };
            let run = if VNNI { 1 } else { sums_of_16_bits(FORMAT) };
            (together, run)
        };
        let chunks = columns.start / LEN;
        for (part, start) in columns.clone().step_by(LEN).enumerate() {
            let mut parts = [&x[0].chunks[chunks + part]; I];
            for i in 0..I {
                parts[i] = &x[i].chunks[chunks + part];
            }
            let subs = LEN.min(columns.end - start) / SUB;
            let levels = &self.levels[part * LEN / 4..][..LEN / 4];
            let scales = &self.scales[part * LEN / SUB..][..LEN / SUB];
            let below = &self.subtracted[part * LEN / SUB..][..LEN / SUB];
            for sub in (0..subs).step_by(together) {
                // SAFETY: as the caller guarantees. A run of sums fits into 16 bits.
                unsafe {
                    let mut products = [[_mm256_setzero_si256(); GROUPS]; I];
                    if const { is_signed(VNNI, FORMAT) } {
                        for i in 0..I {
                            let offsets = &x[i].offsets[chunks + part].subs;
                            let offset: i32 = offsets[sub..sub + together].iter().sum();
                            products[i] = [_mm256_set1_epi32(offset); GROUPS];
                        }
                    }
                    for first in (sub * FOURS..(sub + together) * FOURS).step_by(run) {
                        let mut short = [[_mm256_setzero_si256(); GROUPS]; I];
                        #[expect(
                            clippy::needless_range_loop,
                            reason = "the loop has a constant length: it is unrolled, and the sums stay in registers"
                        )]
                        for four in first..first + run {
                            let Line(q) = &levels[four];
                            let q = [integers(&q[0]), integers(&q[1])];
                            for i in 0..I {
                                let p = _mm256_set1_epi32(parts[i].four(four));
                                for group in 0..GROUPS {
                                    if VNNI {
                                        let sum = products[i][group];
                                        products[i][group] =
                                            add_products::<VNNI, FORMAT>(sum, q[group], p);
                                    } else {
                                        let sum = short[i][group];
                                        short[i][group] =
                                            add_products_16::<VNNI, FORMAT>(sum, q[group], p);
                                    }
                                }
                            }
                        }
                        if !VNNI {
                            for (products, short) in products
                                .as_flattened_mut()
                                .iter_mut()
                                .zip(short.as_flattened())
                            {
                                *products = add_sums_of_16(*products, *short);
                            }
                        }
                    }
                    for i in 0..I {
                        let scale = _mm256_set1_ps(parts[i].scales[sub]);
                        let mut sum = 0.0;
                        for sub in sub..sub + together {
                            sum += parts[i].sums[sub];
                        }
                        let sum = _mm256_set1_ps(sum);
                        #[expect(
                            clippy::needless_range_loop,
                            reason = "the loop has a constant length: it is unrolled, and the sums stay in registers"
                        )]
                        for group in 0..GROUPS {
                            let product = _mm256_cvtepi32_ps(products[i][group]);
                            let scale = _mm256_mul_ps(floats(&scales[sub].0[group]), scale);
                            let below = floats(&below[sub].0[group]);
                            let all = &mut sums[i].0[group];
                            let added = _mm256_fmadd_ps(product, scale, floats(all));
                            put_floats(_mm256_fnmadd_ps(below, sum, added), all);
                        }
                    }
                }
            }
        }
    }
}

/// The columns of 8 rows of 8 elements.
#[inline]
#[target_feature(enable = "avx2")]
fn transposed(rows: [__m256i; LANES]) -> [__m256i; LANES] {
    let mut fours = rows;
    for i in (0..LANES).step_by(4) {
        let low = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
        let high = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
        let next_low = _mm256_unpacklo_epi32(rows[i + 2], rows[i + 3]);
        let next_high = _mm256_unpackhi_epi32(rows[i + 2], rows[i + 3]);
        fours[i] = _mm256_unpacklo_epi64(low, next_low);
        fours[i + 1] = _mm256_unpackhi_epi64(low, next_low);
        fours[i + 2] = _mm256_unpacklo_epi64(high, next_high);
        fours[i + 3] = _mm256_unpackhi_epi64(high, next_high);
    }
    let mut columns = rows;
    for j in 0..4 {
        columns[j] = _mm256_permute2x128_si256::<0x20>(fours[j], fours[4 + j]);
        columns[4 + j] = _mm256_permute2x128_si256::<0x31>(fours[j], fours[4 + j]);
    }
    columns
}
