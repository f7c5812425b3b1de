//! Products with many rows of x by the integer instructions of x86-64 (AVX512-VNNI).
//!
//! A panel has [`ROWS`] rows of W, whose levels are interleaved: a register has four consecutive levels of 16 rows, so that
//! it is multiplied with four elements of x in all lanes, and the lanes' sums are outputs. Panels are made in
//! the caches, [`COLUMNS`] columns at a time, and multiplied with all rows of x: by [tile registers](super::tiles) if there are some.

use std::arch::x86_64::{
    __m512i, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32,
    _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps,
    _mm512_setzero_ps, _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};
use std::ops::Range;

use super::chunk;
use super::layout::{self, FOURS, LEN, format, order};
use super::load::{floats, integers, put_floats, put_integers};
use super::registers::{READ, bytes_at, sub_blocks, with_format};
use super::{Rounded, STEP, SUB, Task, levels};
use crate::PackedFormat;
use crate::cpu::packed::PackedView;

/// Rows of W per register.
const LANES: usize = 16;
/// Rows of W per panel.
pub(super) const ROWS: usize = GROUPS * LANES;
/// Registers per panel and four columns.
pub(super) const GROUPS: usize = 2;
/// Columns of W that are interleaved at a time: they stay in the L1 cache.
const COLUMNS: usize = 2 * LEN;
/// Rows of x that are multiplied at a time: their sums stay in registers.
const TILE: usize = 4;

/// A value for each row of a panel.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Line<T>(pub(super) [[T; LANES]; GROUPS]);

/// Some columns of [`ROWS`] rows of W.
pub(super) struct Panel {
    /// Four levels per element.
    pub(super) levels: [Line<u32>; COLUMNS / 4],
    /// One per sub-block.
    pub(super) scales: [Line<f32>; COLUMNS / SUB],
    /// `m + s o` of each sub-block.
    pub(super) subtracted: [Line<f32>; COLUMNS / SUB],
}

/// Computes a task's outputs.
///
/// # Safety
/// The CPU has the instructions ([`super::vnni::supported`], and [`super::tiles::supported`] if the task has tiles).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
pub(super) unsafe fn run(task: &Task<'_>) {
    with_format!(task.w.format, panels(; task));
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
fn panels<const FORMAT: u8>(task: &Task<'_>) {
    let k = task.w.shape[1];
    let mut panel = Box::new(Panel {
        levels: [Line([[0; LANES]; GROUPS]); COLUMNS / 4],
        scales: [Line([[0.0; LANES]; GROUPS]); COLUMNS / SUB],
        subtracted: [Line([[0.0; LANES]; GROUPS]); COLUMNS / SUB],
    });
    let tiles = task.tiles;
    let (by_tiles, others) = task.x.split_at(tiles.rows());
    let mut sums = vec![Line([[0.0; LANES]; GROUPS]); task.x.len().max(tiles.padded_rows())];
    // SAFETY: tiles are made if the registers are supported.
    let mut running = unsafe { tiles.start() };
    for start in task.outputs.clone().step_by(ROWS) {
        let rows = start..task.outputs.end.min(start + ROWS);
        sums.fill(Line([[0.0; LANES]; GROUPS]));
        for column in (0..k).step_by(COLUMNS) {
            panel.read::<FORMAT>(task.w, rows.clone(), column);
            let columns = column..k.min(column + COLUMNS);
            if let Some(running) = &mut running {
                running.multiply(&panel, &columns, &mut sums);
            }
            panel.multiply_all(task.w.format, others, columns, &mut sums[by_tiles.len()..]);
        }
        for (i, sums) in sums.iter().enumerate().take(task.x.len()) {
            let sums = &sums.0.as_flattened()[..rows.len()];
            // SAFETY: the elements are within y, and only this task writes them.
            unsafe { task.sums.put_all(i, start, sums) };
        }
    }
}

impl Panel {
    /// Reads some rows of W from column `column`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
    fn read<const FORMAT: u8>(&mut self, w: PackedView<'_>, rows: Range<usize>, column: usize) {
        const STEPS: usize = LEN / STEP;
        const SUBS: usize = LEN / SUB;
        let k = w.shape[1];
        let chunk_bytes = w.format.row_bytes(LEN);
        let offset = levels::offset(w.format).map_or(0.0, f32::from);
        let offset = _mm512_set1_ps(offset);
        let mut copy = [0; READ];
        let nothing = _mm512_setzero_si512();
        for (part, column) in (column..k.min(column + COLUMNS)).step_by(LEN).enumerate() {
            for group in 0..GROUPS {
                let first = rows.start + group * LANES;
                let mut all = [[nothing; LANES]; STEPS];
                let (mut scales, mut subtracted) = ([nothing; LANES], [nothing; LANES]);
                for lane in 0..rows.end.saturating_sub(first).min(LANES) {
                    let at = (first + lane) * w.format.row_bytes(k) + column / LEN * chunk_bytes;
                    let chunk = chunk::read::<FORMAT>(bytes_at(w.bytes, at, &mut copy));
                    for (all, levels) in all.iter_mut().zip(chunk.levels) {
                        all[lane] = levels;
                    }
                    let below = _mm512_fmadd_ps(chunk.scales, offset, chunk.minimums);
                    scales[lane] = _mm512_castps_si512(chunk.scales);
                    subtracted[lane] = _mm512_castps_si512(below);
                }
                let out = &mut self.levels[part * LEN / 4..][..LEN / 4];
                let subs = const { sub_blocks(order(FORMAT)) };
                for (step, subs) in subs.iter().enumerate() {
                    let columns = transposed(all[step]);
                    for (columns, sub) in columns.as_chunks::<FOURS>().0.iter().zip(subs) {
                        for (column, out) in columns.iter().zip(&mut out[sub * FOURS..]) {
                            put_integers(*column, &mut out.0[group]);
                        }
                    }
                }
                let out = &mut self.scales[part * SUBS..][..SUBS];
                for (column, out) in transposed(scales).into_iter().zip(out) {
                    put_floats(_mm512_castsi512_ps(column), &mut out.0[group]);
                }
                let out = &mut self.subtracted[part * SUBS..][..SUBS];
                for (column, out) in transposed(subtracted).into_iter().zip(out) {
                    put_floats(_mm512_castsi512_ps(column), &mut out.0[group]);
                }
            }
        }
    }

    /// Adds the products with the columns of all rows of x to `sums`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
    fn multiply_all(
        &self,
        format: PackedFormat,
        x: &[Rounded],
        columns: Range<usize>,
        sums: &mut [Line<f32>],
    ) {
        let is_fine = layout::is_fine(format as u8);
        let (tiles, rest) = x.as_chunks::<TILE>();
        let (sums, rest_sums) = sums.as_chunks_mut::<TILE>();
        for (x, sums) in tiles.iter().zip(sums) {
            match is_fine {
                true => self.multiply::<TILE, 1>(x, &columns, sums),
                false => self.multiply::<TILE, 2>(x, &columns, sums),
            }
        }
        for (x, sums) in rest.iter().zip(rest_sums) {
            let (x, sums) = (std::array::from_ref(x), std::array::from_mut(sums));
            match is_fine {
                true => self.multiply::<1, 1>(x, &columns, sums),
                false => self.multiply::<1, 2>(x, &columns, sums),
            }
        }
    }

    /// Adds the products with the columns of `I` rows of x to `sums`; `SUBS` sub-blocks have a common scale.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
    fn multiply<const I: usize, const SUBS: usize>(
        &self,
        x: &[Rounded; I],
        columns: &Range<usize>,
        sums: &mut [Line<f32>; I],
    ) {
        let chunks = columns.start / LEN;
        let mut all = [[_mm512_setzero_ps(); GROUPS]; I];
        for i in 0..I {
            for (all, sums) in all[i].iter_mut().zip(&sums[i].0) {
                *all = floats(sums);
            }
        }
        for (part, start) in columns.clone().step_by(LEN).enumerate() {
            let mut parts = [&x[0].chunks[chunks + part]; I];
            for i in 0..I {
                parts[i] = &x[i].chunks[chunks + part];
            }
            let subs = LEN.min(columns.end - start) / SUB;
            let lines = part * LEN / 4;
            let levels = &self.levels[lines..][..LEN / 4];
            let scales = &self.scales[part * LEN / SUB..][..LEN / SUB];
            let below = &self.subtracted[part * LEN / SUB..][..LEN / SUB];
            for sub in (0..subs).step_by(SUBS) {
                let mut products = [[_mm512_setzero_si512(); GROUPS]; I];
                #[expect(
                    clippy::needless_range_loop,
                    reason = "the loop has a constant length: it is unrolled, and the sums stay in registers"
                )]
                for four in sub * FOURS..(sub + SUBS) * FOURS {
                    let Line(q) = &levels[four];
                    let (first, second) = (integers(&q[0]), integers(&q[1]));
                    for i in 0..I {
                        let p = _mm512_set1_epi32(parts[i].four(four));
                        products[i][0] = _mm512_dpbusd_epi32(products[i][0], first, p);
                        products[i][1] = _mm512_dpbusd_epi32(products[i][1], second, p);
                    }
                }
                for i in 0..I {
                    let scale = _mm512_set1_ps(parts[i].scales[sub]);
                    let mut sum = 0.0;
                    for sub in sub..sub + SUBS {
                        sum += parts[i].sums[sub];
                    }
                    let sum = _mm512_set1_ps(sum);
                    for group in 0..GROUPS {
                        let product = _mm512_cvtepi32_ps(products[i][group]);
                        let scale = _mm512_mul_ps(floats(&scales[sub].0[group]), scale);
                        let below = floats(&below[sub].0[group]);
                        let all = &mut all[i][group];
                        *all = _mm512_fnmadd_ps(below, sum, _mm512_fmadd_ps(product, scale, *all));
                    }
                }
            }
        }
        for i in 0..I {
            for (all, sums) in all[i].iter().zip(&mut sums[i].0) {
                put_floats(*all, sums);
            }
        }
    }
}

/// The columns of 16 rows of 16 elements.
#[inline]
#[target_feature(enable = "avx512f")]
fn transposed(rows: [__m512i; LANES]) -> [__m512i; LANES] {
    let mut fours = rows;
    for i in (0..LANES).step_by(4) {
        let low = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        let high = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
        let next_low = _mm512_unpacklo_epi32(rows[i + 2], rows[i + 3]);
        let next_high = _mm512_unpackhi_epi32(rows[i + 2], rows[i + 3]);
        fours[i] = _mm512_unpacklo_epi64(low, next_low);
        fours[i + 1] = _mm512_unpackhi_epi64(low, next_low);
        fours[i + 2] = _mm512_unpacklo_epi64(high, next_high);
        fours[i + 3] = _mm512_unpackhi_epi64(high, next_high);
    }
    let mut columns = rows;
    for j in 0..4 {
        let [a, b, c, d] = [fours[j], fours[4 + j], fours[8 + j], fours[12 + j]];
        let first = _mm512_shuffle_i32x4::<0x44>(a, b);
        let second = _mm512_shuffle_i32x4::<0x44>(c, d);
        columns[j] = _mm512_shuffle_i32x4::<0x88>(first, second);
        columns[4 + j] = _mm512_shuffle_i32x4::<0xdd>(first, second);
        let first = _mm512_shuffle_i32x4::<0xee>(a, b);
        let second = _mm512_shuffle_i32x4::<0xee>(c, d);
        columns[8 + j] = _mm512_shuffle_i32x4::<0x88>(first, second);
        columns[12 + j] = _mm512_shuffle_i32x4::<0xdd>(first, second);
    }
    columns
}
