//! The products of a block of queries with operands rounded to bfloat16, in tile registers: [`TILE`] keys and queries at a
//! time.

use std::ops::Range;

use pulp::Simd;

use super::AttentionShape;
use super::mask::{KEYS, LANES, QUERIES, ROWS, WEIGHTS_ROW};
use super::tile::Left;
use super::visibility::Visibility;
use crate::cpu::bf16::in_task::{Packed, Registers, TILE, packed_len};
use crate::cpu::matrix::Matrix;

/// Returns true if the products of these sizes are faster in tile registers: fewer queries leave most of a tile empty, and with
/// fewer keys packing takes as long as it saves.
pub fn suit(shape: &AttentionShape) -> bool {
    shape.q_len >= TILE && shape.k_len > QUERIES
}

/// The lengths of a packed left operand (keys, values or weights) and of a right one (vectors of keys or queries): 0 if
/// nothing is `packed`.
pub fn lens(packed: bool, width: usize) -> [usize; 2] {
    if !packed {
        return [0; 2];
    }
    let (vectors, weights) = (packed_len(KEYS, width), packed_len(KEYS, QUERIES));
    [vectors.max(weights), vectors]
}

/// Rows `[count, width]` of memory, `stride` elements apart.
#[inline(always)]
pub fn rows(data: &[f32], [count, width]: [usize; 2], stride: usize) -> Matrix<'_> {
    Matrix::new(data, [count, width], [stride, 1])
}

/// The weights, or their gradients, of `keys` keys of a chunk: `[keys, QUERIES]`.
#[inline(always)]
pub fn of_chunk(data: &[f32], keys: usize) -> Matrix<'_> {
    rows(data, [keys, QUERIES], WEIGHTS_ROW)
}

/// `out[key · WEIGHTS_ROW + query] = vectors[key] · queries[query]` for the visible keys: in tile registers with packed queries
/// `[head_dim, QUERIES]`, or else in f32. `vectors` are the rows of the keys or values and their stride.
#[inline(always)]
pub fn scores<S: Simd>(
    simd: S,
    visibility: &Visibility,
    (vectors, row): (&[f32], usize),
    (queries, head_dim): (&[f32], usize),
    tiles: Option<(&Registers, Packed<'_>)>,
    left: &mut [f32],
    out: &mut [f32],
) {
    let Some((registers, queries)) = tiles else {
        let left = Left {
            data: vectors,
            row,
            step: 1,
        };
        return visibility.scores(simd, left, queries, head_dim, out);
    };
    let vectors = rows(vectors, [visibility.keys(), head_dim], row);
    let vectors = registers.pack_left(vectors, left);
    for (keys, queries_of) in visibility.key_tiles() {
        assert!(keys.end * WEIGHTS_ROW <= out.len());
        let block = [keys, queries_of, 0..vectors.depth()];
        let out = (out.as_mut_ptr(), WEIGHTS_ROW);
        // SAFETY: rows of the scores, which are borrowed exclusively.
        unsafe { registers.multiply(block, out, vectors, queries, false) };
    }
}

/// The queries of a block and the gradients of their outputs as right operands, for the backward pass.
pub struct PackedQueries<'a> {
    registers: &'a Registers,
    columns: Packed<'a>,
    grad_columns: Packed<'a>,
    rows: Packed<'a>,
    grad_rows: Packed<'a>,
    width: usize,
}

impl<'a> PackedQueries<'a> {
    /// Packs queries and gradients, first as columns `[head_dim, QUERIES]` and then as rows `[QUERIES, width]`.
    #[inline(always)]
    pub fn new(
        registers: &'a Registers,
        [columns, grad_columns, query_rows, grad_rows]: [&[f32]; 4],
        [head_dim, width]: [usize; 2],
        memory: [&'a mut [f32]; 4],
    ) -> Self {
        let [first, second, third, fourth] = memory;
        let as_columns = [head_dim, QUERIES];
        let as_rows = [QUERIES, width];
        Self {
            registers,
            columns: registers.pack_right(rows(columns, as_columns, QUERIES), first),
            grad_columns: registers.pack_right(rows(grad_columns, as_columns, QUERIES), second),
            rows: registers.pack_right(rows(query_rows, as_rows, width), third),
            grad_rows: registers.pack_right(rows(grad_rows, as_rows, width), fourth),
            width,
        }
    }

    /// The queries, for [`scores`] of keys.
    pub fn of_keys(&self) -> (&Registers, Packed<'a>) {
        (self.registers, self.columns)
    }

    /// The gradients of the outputs, for [`scores`] of values.
    pub fn of_values(&self) -> (&Registers, Packed<'a>) {
        (self.registers, self.grad_columns)
    }

    /// Adds the contributions of a chunk of keys to the gradients of values, keys and queries, or overwrites those of the keys
    /// and of the queries, if not to be added. `weights` and `grads` are those of the chunk, `keys` its keys.
    ///
    /// # Safety
    /// The rows of the chunk from the first two addresses on, of `width` elements, and those of `count` queries from the third
    /// on, of the width of the keys, are writable and readable. Nothing else accesses them.
    #[inline(always)]
    pub unsafe fn gradients(
        &self,
        visibility: &Visibility,
        [weights, grads]: [&mut [f32]; 2],
        (keys, count): (Matrix<'_>, usize),
        [values_out, keys_out, queries_out]: [(*mut f32, usize); 3],
        [add_keys, add_queries]: [bool; 2],
        [left, right]: [&mut [f32]; 2],
    ) {
        visibility.clear_others(weights);
        visibility.clear_others(grads);
        let len = visibility.keys();
        for (out, rows, vectors) in [
            (values_out, &*weights, self.grad_rows),
            (keys_out, &*grads, self.rows),
        ] {
            let rows = self.registers.pack_left(of_chunk(rows, len), left);
            let (factors, width) = ((rows, vectors), self.width);
            // SAFETY: guaranteed by the caller.
            unsafe { by_keys(self.registers, visibility, factors, out, width, add_keys) };
        }
        let grads = self
            .registers
            .pack_left(of_chunk(grads, len).transposed(), left);
        let factors = (grads, self.registers.pack_right(keys, right));
        let sizes = [count, keys.columns];
        // SAFETY: guaranteed by the caller.
        unsafe {
            by_queries(
                self.registers,
                visibility,
                factors,
                queries_out,
                sizes,
                add_queries,
            );
        }
    }
}

/// `out[key] (+)= Σ weights[key, query] · vectors[query]`. `weights` is `[len, QUERIES]` and `vectors` `[QUERIES, width]`.
///
/// # Safety
/// The rows of the chunk's keys from `out` on, `width` elements each, are writable and readable. Nothing else accesses them.
#[inline(always)]
unsafe fn by_keys(
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

impl Visibility {
    /// The number of keys.
    fn keys(&self) -> usize {
        self.rows[..self.count]
            .last()
            .map_or(0, |rows| rows.keys.end)
    }

    /// For each [`TILE`] keys, the keys, and the queries to which some of them are visible in steps of [`TILE`].
    #[inline(always)]
    fn key_tiles(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let groups = self.rows[..self.count].chunks(TILE / ROWS);
        groups.map(|rows| {
            let keys = rows[0].keys.start..rows[rows.len() - 1].keys.end;
            (keys, whole_tiles(rows.iter().map(|rows| &rows.queries)))
        })
    }

    /// For each [`TILE`] of `count` queries, the index of the first query and the keys visible to them in steps of [`TILE`].
    #[inline(always)]
    fn query_tiles(&self, count: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let groups = self.queries[..count.div_ceil(ROWS)].chunks(TILE / ROWS);
        let tiles = groups.map(|keys| whole_tiles(keys.iter()));
        tiles.enumerate().map(|(i, keys)| (i * TILE, keys))
    }

    /// Sets the weights that are not computed to 0, so that products of whole tiles can read them.
    #[inline(always)]
    pub fn clear_others(&self, weights: &mut [f32]) {
        for rows in self.all_key_rows() {
            for key in rows.keys.clone() {
                let weights = &mut weights[key * WEIGHTS_ROW..][..QUERIES];
                weights[..rows.columns.start * LANES].fill(0.0);
                weights[rows.columns.end * LANES..].fill(0.0);
            }
        }
    }
}

/// A range of whole tiles that covers the ranges.
#[inline(always)]
fn whole_tiles<'a>(ranges: impl Iterator<Item = &'a Range<usize>>) -> Range<usize> {
    let (mut start, mut end) = (usize::MAX, 0);
    for range in ranges.filter(|range| !range.is_empty()) {
        start = start.min(range.start);
        end = end.max(range.end);
    }
    start.min(end) / TILE * TILE..end.next_multiple_of(TILE)
}
