//! Products by the vector instructions of 64-bit Arm (NEON), with the sums of the other kernels.
//!
//! `sdot` adds the products of each four signed bytes to 32 bits. It is written in assembly, since its intrinsic is not
//! stable, and needs the extension `dotprod`. Without it, products are added up in 16 and then 32 bits: a product is at
//! most 128 · 127. 8-bit levels are multiplied as signed numbers ([`super::offsets`]).

use std::arch::aarch64::{
    float32x4_t, int8x16_t, int32x4_t, vaddq_f32, vaddq_s32, vcvtq_f32_s32, vdupq_n_f32,
    vdupq_n_s32, vfmaq_f32, vfmaq_n_f32, vfmsq_f32, vget_low_s8, vgetq_lane_f32, vld1q_f32,
    vld1q_s8, vld1q_s32, vmull_high_s8, vmull_s8, vmulq_n_f32, vpaddlq_s16, vpaddq_s32,
    vreinterpretq_s8_s32, vst1q_f32,
};
use std::arch::asm;
use std::array::from_mut;
use std::array::from_ref;

use super::layout::{self, FOURS, LEN, Order, STEPS, has_eight_bits, is_fine, order};
use super::portable::Levels;
use super::{BLOCK, FEW, Rounded, SUB, Task, levels};
use crate::PackedFormat;
use crate::cpu::packed::PackedView;

/// Sub-blocks per chunk.
const SUBS: usize = LEN / SUB;
/// Elements of a register.
const LANES: usize = 4;
/// Registers that have the elements of the registers of AVX-512.
const PARTS: usize = 16 / LANES;
/// Rows of W per panel.
pub(super) const PANEL: usize = PARTS * LANES;
/// Rows of x that are multiplied with a panel at a time.
const TILE: usize = 4;

/// Returns true if this CPU has the instructions.
pub(super) fn supported() -> bool {
    std::arch::is_aarch64_feature_detected!("neon")
}

/// Returns true if this CPU has the instructions and `sdot`.
pub(super) fn dot_supported() -> bool {
    supported() && std::arch::is_aarch64_feature_detected!("dotprod")
}

/// Computes a task's outputs.
///
/// # Safety
/// The CPU has the instructions ([`supported`]).
#[target_feature(enable = "neon")]
pub(super) unsafe fn run(task: &Task<'_>) {
    // SAFETY: as the caller guarantees.
    unsafe { outputs::<false>(task) };
}

/// Computes a task's outputs.
///
/// # Safety
/// The CPU has the instructions ([`dot_supported`]).
#[target_feature(enable = "neon,dotprod")]
pub(super) unsafe fn run_dot(task: &Task<'_>) {
    // SAFETY: as the caller guarantees.
    unsafe { outputs::<true>(task) };
}

/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn outputs<const DOT: bool>(task: &Task<'_>) {
    // SAFETY: as the caller guarantees.
    unsafe {
        match task.x.len() {
            ..=FEW => few::<DOT>(task),
            _ => many::<DOT>(task),
        }
    }
}

/// `sum + q p`, with the products of four neighbouring bytes added up.
///
/// # Safety
/// The CPU has the instructions, and `sdot` if `DOT`.
#[inline(always)]
unsafe fn add_products<const DOT: bool>(
    mut sum: int32x4_t,
    q: int8x16_t,
    p: int8x16_t,
) -> int32x4_t {
    // SAFETY: as the caller guarantees. The instruction changes only the operand.
    unsafe {
        if DOT {
            asm!(
                "sdot {sum:v}.4s, {q:v}.16b, {p:v}.16b",
                sum = inout(vreg) sum,
                q = in(vreg) q,
                p = in(vreg) p,
                options(pure, nomem, nostack, preserves_flags)
            );
            return sum;
        }
        let low = vpaddlq_s16(vmull_s8(vget_low_s8(q), vget_low_s8(p)));
        let high = vpaddlq_s16(vmull_high_s8(q, p));
        vaddq_s32(sum, vpaddq_s32(low, high))
    }
}

/// Reads a chunk of a row of W, with 8-bit levels as signed numbers.
#[inline(always)]
fn read(chunk: &mut Levels, w: PackedView<'_>, row: usize, column: usize) {
    chunk.read(w, row, column);
    if has_eight_bits(w.format as u8) {
        for level in &mut chunk.values {
            *level ^= 0x80;
        }
    }
}

/// The 16 levels or elements of x of a sub-block.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn sub_block<T>(values: &[T; LEN], sub: usize) -> int8x16_t {
    const { assert!(size_of::<T>() == 1) };
    let values = &values[sub * SUB..(sub + 1) * SUB];
    // SAFETY: the slice has the bytes of the register.
    unsafe { vld1q_s8(values.as_ptr().cast()) }
}

/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn floats(values: &[f32], at: usize) -> float32x4_t {
    let values = &values[at..at + LANES];
    // SAFETY: the slice has the elements of the register.
    unsafe { vld1q_f32(values.as_ptr()) }
}

/// The outputs of a few rows of x.
///
/// # Safety
/// The CPU has the instructions, and `sdot` if `DOT`.
#[inline(always)]
unsafe fn few<const DOT: bool>(task: &Task<'_>) {
    let format = task.w.format;
    let (offset, eight_bits) = (
        levels::offset(format).unwrap_or(0),
        has_eight_bits(format as u8),
    );
    let factor = if offset > 0 { f32::from(offset) } else { 1.0 };
    let chains = layout::chains(task.x.len());
    let mut chunk = Levels::ZERO;
    for j in task.outputs.clone() {
        // SAFETY: as the caller guarantees. The elements are within y, and only this task writes them.
        unsafe {
            let zero = vdupq_n_f32(0.0);
            let mut products = [[[zero; PARTS]; STEPS]; FEW];
            let mut below = [[zero; PARTS]; FEW];
            for (c, column) in (0..task.w.shape[1]).step_by(LEN).enumerate() {
                read(&mut chunk, task.w, j, column);
                let subtracted = match offset {
                    0 => &chunk.minimums,
                    _ => &chunk.scales,
                };
                for (i, row) in task.x.iter().enumerate() {
                    let x = &row.chunks[c];
                    let mut p = [0; LEN];
                    p.copy_from_slice(x.values.as_flattened());
                    for (part, below) in below[i].iter_mut().enumerate() {
                        let at = part * LANES;
                        *below = vfmaq_f32(*below, floats(subtracted, at), floats(&x.sums, at));
                    }
                    let start = |sub: usize| match eight_bits {
                        true => {
                            let (fours, _) = row.offsets[c].fours.as_chunks::<LANES>();
                            vld1q_s32(fours[sub].as_ptr())
                        }
                        false => vdupq_n_s32(0),
                    };
                    let add = |sum, sub| {
                        let (q, p) = (sub_block(&chunk.values, sub), sub_block(&p, sub));
                        add_products::<DOT>(sum, q, p)
                    };
                    match order(format as u8) {
                        Order::Weights => {
                            for sub in 0..SUBS {
                                let sum = vcvtq_f32_s32(add(start(sub), sub));
                                let all = &mut products[i][sub / PARTS % chains][sub % PARTS];
                                *all = vfmaq_n_f32(*all, sum, chunk.scales[sub] * x.scales[sub]);
                            }
                        }
                        Order::Halves => {
                            for sub in (0..SUBS).step_by(2) {
                                let sum = vaddq_s32(start(sub), start(sub + 1));
                                let sum = vcvtq_f32_s32(add(add(sum, sub), sub + 1));
                                let block = sub / 2;
                                let all = &mut products[i][block / PARTS][block % PARTS];
                                *all = vfmaq_n_f32(*all, sum, chunk.scales[sub] * x.scales[sub]);
                            }
                        }
                    }
                }
            }
            for i in 0..task.x.len() {
                let [a, b, c, d] = &products[i];
                let mut all = [zero; PARTS];
                for part in 0..PARTS {
                    let first = vaddq_f32(a[part], b[part]);
                    let sum = vaddq_f32(first, vaddq_f32(c[part], d[part]));
                    all[part] = vfmsq_f32(sum, below[i][part], vdupq_n_f32(factor));
                }
                let (first, second) = (vaddq_f32(all[0], all[2]), vaddq_f32(all[1], all[3]));
                let four = vaddq_f32(first, second);
                let even = vgetq_lane_f32::<0>(four) + vgetq_lane_f32::<2>(four);
                let odd = vgetq_lane_f32::<1>(four) + vgetq_lane_f32::<3>(four);
                task.sums.put(i, j, even + odd);
            }
        }
    }
}

/// A chunk of [`PANEL`] rows of W, whose levels are interleaved by fours.
struct Panel {
    levels: [[[u8; 4]; PANEL]; LEN / 4],
    scales: [[f32; PANEL]; SUBS],
    /// `m + s o` of each sub-block.
    subtracted: [[f32; PANEL]; SUBS],
}

/// The outputs of more rows of x.
///
/// # Safety
/// The CPU has the instructions, and `sdot` if `DOT`.
#[inline(always)]
unsafe fn many<const DOT: bool>(task: &Task<'_>) {
    let format = task.w.format;
    let mut panel = Box::new(Panel {
        levels: [[[0; 4]; PANEL]; LEN / 4],
        scales: [[0.0; PANEL]; SUBS],
        subtracted: [[0.0; PANEL]; SUBS],
    });
    let mut sums = vec![[0.0f32; PANEL]; task.x.len()];
    for start in task.outputs.clone().step_by(PANEL) {
        let count = PANEL.min(task.outputs.end - start);
        sums.fill([0.0; PANEL]);
        for (c, column) in (0..task.w.shape[1]).step_by(LEN).enumerate() {
            panel.read(task.w, start, count, column);
            let subs = LEN.min(task.w.shape[1] - column) / SUB;
            let (tiles, rest) = task.x.as_chunks::<TILE>();
            let (sums, rest_sums) = sums.as_chunks_mut::<TILE>();
            // SAFETY: as the caller guarantees.
            unsafe {
                for (x, sums) in tiles.iter().zip(sums) {
                    panel.multiply::<DOT, TILE>(format, x, c, subs, sums);
                }
                for (x, sums) in rest.iter().zip(rest_sums) {
                    panel.multiply::<DOT, 1>(format, from_ref(x), c, subs, from_mut(sums));
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            // SAFETY: the elements are within y, and only this task writes them.
            unsafe { task.sums.put_all(i, start, &sums[..count]) };
        }
    }
}

impl Panel {
    /// Reads a chunk of `count` rows of W from row `start` and column `column`.
    #[inline(always)]
    fn read(&mut self, w: PackedView<'_>, start: usize, count: usize, column: usize) {
        let offset = levels::offset(w.format).map_or(0.0, f32::from);
        let mut chunk = Levels::ZERO;
        for lane in 0..count {
            read(&mut chunk, w, start + lane, column);
            let (fours, _) = chunk.values.as_chunks::<4>();
            for (levels, four) in self.levels.iter_mut().zip(fours) {
                levels[lane] = *four;
            }
            for sub in 0..SUBS {
                let (scale, minimum) = (chunk.scales[sub], chunk.minimums[sub]);
                self.scales[sub][lane] = scale;
                self.subtracted[sub][lane] = scale.mul_add(offset, minimum);
            }
        }
    }

    /// Adds the products with chunk `c` of `I` rows of x to `sums`.
    ///
    /// # Safety
    /// The CPU has the instructions, and `sdot` if `DOT`.
    #[inline(always)]
    unsafe fn multiply<const DOT: bool, const I: usize>(
        &self,
        format: PackedFormat,
        x: &[Rounded; I],
        c: usize,
        subs: usize,
        sums: &mut [[f32; PANEL]; I],
    ) {
        let together = if is_fine(format as u8) {
            1
        } else {
            BLOCK / SUB
        };
        for sub in (0..subs).step_by(together) {
            // SAFETY: as the caller guarantees. The pointers are those of arrays with the elements of a register.
            unsafe {
                let mut products = [[vdupq_n_s32(0); PARTS]; I];
                if has_eight_bits(format as u8) {
                    for i in 0..I {
                        let offsets = &x[i].offsets[c].subs[sub..sub + together];
                        products[i] = [vdupq_n_s32(offsets.iter().sum()); PARTS];
                    }
                }
                for four in sub * FOURS..(sub + together) * FOURS {
                    let (levels, _) = self.levels[four].as_chunks::<LANES>();
                    for i in 0..I {
                        let p = vreinterpretq_s8_s32(vdupq_n_s32(x[i].chunks[c].four(four)));
                        for (products, levels) in products[i].iter_mut().zip(levels) {
                            let q = vld1q_s8(levels.as_ptr().cast());
                            *products = add_products::<DOT>(*products, q, p);
                        }
                    }
                }
                for i in 0..I {
                    let x = &x[i].chunks[c];
                    let sum: f32 = x.sums[sub..sub + together].iter().sum();
                    for (part, products) in products[i].iter().enumerate() {
                        let at = part * LANES;
                        let product = vcvtq_f32_s32(*products);
                        let scale = vmulq_n_f32(floats(&self.scales[sub], at), x.scales[sub]);
                        let added = vfmaq_f32(floats(&sums[i], at), product, scale);
                        let below = floats(&self.subtracted[sub], at);
                        let all = vfmsq_f32(added, below, vdupq_n_f32(sum));
                        vst1q_f32(sums[i][at..at + LANES].as_mut_ptr(), all);
                    }
                }
            }
        }
    }
}
