//! Memory for the blocks of one task, kept by its thread for the next one.

use std::cell::Cell;

use pulp::Simd;

use super::heads::Heads;
use super::mask::LANES;

thread_local! {
    static KEPT: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// More than this is given back after use.
const MOST_KEPT: usize = 1 << 19;

/// Calls `f` with `len` floats, which hold anything and begin where a cache line does: a vector that lies in two lines
/// takes twice the time to read.
pub fn with<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    const ALIGNMENT: usize = 64;
    let mut memory = KEPT.take();
    if memory.len() < len + ALIGNMENT {
        memory = vec![0.0; len + ALIGNMENT];
    }
    let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    let result = f(&mut memory[start..start + len]);
    if memory.len() <= MOST_KEPT {
        KEPT.set(memory);
    }
    result
}

/// The first `len` of some memory, which then begins after them.
#[inline(always)]
pub fn take<'a>(memory: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let (taken, rest) = std::mem::take(memory).split_at_mut(len);
    *memory = rest;
    taken
}

/// The vectors of `count` tokens from `from` on as `[rows, width]`, filled up with zeros on both sides.
#[inline(always)]
pub fn copy(x: &Heads<'_>, [b, h, from]: [usize; 3], count: usize, width: usize, out: &mut [f32]) {
    let (copied, rest) = out.split_at_mut(count * width);
    rest.fill(0.0);
    let head_dim = x.dims()[3];
    let data = x.tokens(b, h, from..from + count);
    let stride = x.token_stride();
    if head_dim == width && copy_rows(data, stride, width, copied) {
        return;
    }
    for (i, out) in copied.chunks_exact_mut(width).enumerate() {
        copy_row(&data[i * stride..][..head_dim], out);
        out[head_dim..].fill(0.0);
    }
}

/// Copies whole rows of a common width and says so, or else does nothing: a width that is known takes half the time.
#[inline(always)]
fn copy_rows(x: &[f32], stride: usize, width: usize, out: &mut [f32]) -> bool {
    match width {
        16 => copy_rows_of::<16>(x, stride, out),
        32 => copy_rows_of::<32>(x, stride, out),
        64 => copy_rows_of::<64>(x, stride, out),
        128 => copy_rows_of::<128>(x, stride, out),
        _ => return false,
    }
    true
}

#[inline(always)]
fn copy_rows_of<const WIDTH: usize>(x: &[f32], stride: usize, out: &mut [f32]) {
    for (i, out) in out.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
        if let Some(x) = x[i * stride..].first_chunk() {
            *out = *x;
        }
    }
}

/// `out = x`, as long as the shorter one is. A row is too short for the library's copy.
#[inline(always)]
pub fn copy_row(x: &[f32], out: &mut [f32]) {
    let len = x.len().min(out.len());
    let (x, out) = (&x[..len], &mut out[..len]);
    if copy_rows(x, len, len, out) {
        return;
    }
    let (x, x_rest) = x.as_chunks::<LANES>();
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    for (out, x) in out.iter_mut().zip(x) {
        *out = *x;
    }
    for (out, x) in out_rest.iter_mut().zip(x_rest) {
        *out = *x;
    }
}

/// `out = factor x`, as long as `out` is.
#[inline(always)]
pub fn scale_row<S: Simd>(simd: S, factor: f32, x: &[f32], out: &mut [f32]) {
    let (x, x_rest) = S::as_simd_f32s(&x[..out.len()]);
    let (out, out_rest) = S::as_mut_simd_f32s(out);
    let factors = simd.splat_f32s(factor);
    for (out, x) in out.iter_mut().zip(x) {
        *out = simd.mul_f32s(factors, *x);
    }
    for (out, x) in out_rest.iter_mut().zip(x_rest) {
        *out = factor * *x;
    }
}
