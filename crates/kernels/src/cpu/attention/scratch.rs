//! Scratch memory of tasks, which each thread keeps for its next task.

use std::cell::Cell;

use super::heads::Heads;
use super::rows::{copy_row, copy_rows};

thread_local! {
    static KEPT: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Larger buffers are freed after use.
const MOST_KEPT: usize = 1 << 19;

/// Calls `f` with `len` floats of arbitrary content. They are aligned to a cache line, since reading a vector
/// across two lines takes twice as long.
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

/// Splits the first `len` elements off `memory`.
#[inline(always)]
pub fn take<'a>(memory: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let (taken, rest) = std::mem::take(memory).split_at_mut(len);
    *memory = rest;
    taken
}

/// Copies the vectors of `count` tokens from `from` on to `out` `[rows, width]`, padded with zeros in both
/// dimensions.
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
