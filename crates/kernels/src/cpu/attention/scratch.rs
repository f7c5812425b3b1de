//! Memory for the blocks of one task, kept by its thread for the next one.

use std::cell::Cell;

use super::heads::Heads;
use super::mask::QUERIES;

thread_local! {
    static KEPT: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// More than this is given back after use.
const MOST_KEPT: usize = 1 << 19;

/// Calls `f` with `len` floats, which hold anything.
pub fn with<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut memory = KEPT.take();
    if memory.len() < len {
        memory = vec![0.0; len];
    }
    let result = f(&mut memory[..len]);
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

/// `scale · x[i][l]` at `out[l · QUERIES + i]`, for the `count` tokens from `from` on; 0 for those after them.
#[inline(always)]
pub fn transpose(
    x: &Heads<'_>,
    [b, h, from]: [usize; 3],
    count: usize,
    scale: f32,
    out: &mut [f32],
) {
    let head_dim = x.dims()[3];
    let out = &mut out[..head_dim * QUERIES];
    let mut first = 0;
    // Eight tokens at a time make whole rows of eight: the compiler turns those into shuffles.
    while first + 8 <= count {
        let mut rows: [&[f32]; 8] = [&[]; 8];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = &x.vector([b, h, from + first + i])[..head_dim];
        }
        let mut l = 0;
        while l + 8 <= head_dim {
            // Column by column, so that each is stored at once.
            let mut eights = [[0.0f32; 8]; 8];
            for (eight, row) in eights.iter_mut().zip(&rows) {
                if let Some(of_row) = row[l..].first_chunk::<8>() {
                    *eight = *of_row;
                }
            }
            for j in 0..8 {
                let mut column = [0.0f32; 8];
                for (column, eight) in column.iter_mut().zip(&eights) {
                    *column = scale * eight[j];
                }
                let at = (l + j) * QUERIES + first;
                out[at..at + 8].copy_from_slice(&column);
            }
            l += 8;
        }
        while l < head_dim {
            for (i, row) in rows.iter().enumerate() {
                out[l * QUERIES + first + i] = scale * row[l];
            }
            l += 1;
        }
        first += 8;
    }
    for i in first..count {
        let row = x.vector([b, h, from + i]);
        for (l, x) in row.iter().enumerate() {
            out[l * QUERIES + i] = scale * x;
        }
    }
    if count < QUERIES {
        for row in out.chunks_exact_mut(QUERIES) {
            row[count..].fill(0.0);
        }
    }
}

/// The vectors of `count` tokens from `from` on as `[rows, width]`, filled up with zeros on both sides.
#[inline(always)]
pub fn copy(x: &Heads<'_>, [b, h, from]: [usize; 3], count: usize, width: usize, out: &mut [f32]) {
    for (i, out) in out.chunks_exact_mut(width).enumerate() {
        if i < count {
            let row = x.vector([b, h, from + i]);
            let (whole, rest) = out.split_at_mut(row.len());
            whole.copy_from_slice(row);
            rest.fill(0.0);
        } else {
            out.fill(0.0);
        }
    }
}
