//! The products of a block of queries with operands rounded to bfloat16, in tile registers: [`TILE`] keys and queries at a
//! time.

use super::mask::{KEYS, QUERIES, WEIGHTS_ROW};
use super::visibility::Visibility;
use crate::cpu::bf16::in_task::{Packed, Registers, TILE, packed_len};
use crate::cpu::matrix::Matrix;

/// The length of a packed left operand: keys, values or weights.
pub const fn left_len(head_dim: usize) -> usize {
    let (vectors, weights) = (packed_len(KEYS, head_dim), packed_len(KEYS, QUERIES));
    if vectors > weights { vectors } else { weights }
}

/// The length of a packed right operand: vectors of keys or queries.
pub const fn right_len(width: usize) -> usize {
    packed_len(width, KEYS)
}

/// Rows `[count, width]` of memory, `stride` elements apart.
#[inline(always)]
pub fn rows(data: &[f32], [count, width]: [usize; 2], stride: usize) -> Matrix<'_> {
    Matrix::new(data, [count, width], [stride, 1])
}

/// The weights, or their gradients, of `keys` keys of a chunk: `[keys, QUERIES]`.
#[inline(always)]
pub fn weights(data: &[f32], keys: usize) -> Matrix<'_> {
    rows(data, [keys, QUERIES], WEIGHTS_ROW)
}

/// `out[key · WEIGHTS_ROW + query] = keys[key] · queries[query]` for the tiles with a visible key. `keys` is `[len, depth]`
/// and `queries` `[depth, QUERIES]`.
#[inline(always)]
pub fn scores(
    registers: &Registers,
    visibility: &Visibility,
    (keys, queries): (Packed<'_>, Packed<'_>),
    out: &mut [f32],
) {
    for (keys_of, queries_of) in visibility.key_tiles() {
        assert!(keys_of.end * WEIGHTS_ROW <= out.len());
        let block = [keys_of, queries_of, 0..keys.depth()];
        // SAFETY: rows of the scores, which are borrowed exclusively.
        unsafe {
            registers.multiply(block, (out.as_mut_ptr(), WEIGHTS_ROW), keys, queries, false);
        }
    }
}

/// `out[key] (+)= Σ weights[key, query] · vectors[query]`. `weights` is `[len, QUERIES]` and `vectors` `[QUERIES, width]`.
///
/// # Safety
/// The rows of the chunk's keys from `out` on, `width` elements each, are writable and readable. Nothing else accesses them.
#[inline(always)]
pub unsafe fn by_keys(
    registers: &Registers,
    visibility: &Visibility,
    (weights, vectors): (Packed<'_>, Packed<'_>),
    (out, out_row): (*mut f32, usize),
    width: usize,
    add: bool,
) {
    for (keys, queries) in visibility.key_tiles() {
        let block = [keys, 0..width, queries];
        // SAFETY: guaranteed by the caller.
        unsafe { registers.multiply(block, (out, out_row), weights, vectors, add) };
    }
}

/// `out[query] (+)= Σ weights[key, query] · vectors[key]` for `count` queries. `weights` is `[QUERIES, len]` and `vectors`
/// `[len, width]`.
///
/// # Safety
/// The rows of the queries from `out` on, `width` elements each, are writable and readable. Nothing else accesses them.
#[inline(always)]
pub unsafe fn by_queries(
    registers: &Registers,
    visibility: &Visibility,
    (weights, vectors): (Packed<'_>, Packed<'_>),
    (out, out_row): (*mut f32, usize),
    [count, width]: [usize; 2],
    add: bool,
) {
    for (query, keys) in visibility.query_tiles(count) {
        let block = [query..count.min(query + TILE), 0..width, keys];
        // SAFETY: guaranteed by the caller.
        unsafe { registers.multiply(block, (out, out_row), weights, vectors, add) };
    }
}
