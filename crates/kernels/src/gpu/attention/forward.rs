//! The forward pass: a cube sums the values of a tile of queries over tiles of keys, with a running maximum of the scores
//! and a running sum of their exponentials (Dao et al. 2022, "FlashAttention").

#![allow(unsafe_code)]

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::combine;
use super::operands::{Operands, VectorStrides, Vectors};
use super::scores::{
    HIDDEN, Numbers, Place, Variant, kept_factor, key_range, masked_scores, may_see_tile, row_place,
};
use super::tile::{
    CHUNK_COLUMNS, COLUMNS, LANES, SCORE_COLUMNS, Tile, WEIGHT_LINE, add_weighted, from_last,
    products, store,
};
use crate::gpu::launch::empty;

/// Queries of a head that are so few that the heads of a group share a cube, and that the keys are divided among cubes.
const FEW_QUERIES: usize = 8;

/// The number of cubes that keeps a large GPU busy.
const MOST_CUBES: usize = 512;

/// The fewest keys of a cube, if the keys are divided.
const FEWEST_KEYS: usize = 256;

/// Returns the output, in the layout `output` and of this shape, and the log-sums, `[batch, heads, q_len, 1]`.
pub(super) fn forward<R: CubeRuntime>(
    operands: &Operands<R>,
    output: VectorStrides,
    shape: Shape,
    trains: bool,
) -> [CubeTensor<R>; 2] {
    let task = &operands.task;
    let few = task.q_len <= FEW_QUERIES;
    let group = task.heads / task.kv_heads;
    let (heads, queries) = match few {
        true => (task.kv_heads, group * task.q_len),
        false => (task.heads, task.q_len),
    };
    let mut tile = Tile::new(task.head_dim);
    if few {
        tile.stacked = true;
        tile.rows = tile
            .rows
            .min(queries.div_ceil(LANES) * LANES)
            .next_power_of_two();
    }
    let cubes = [queries.div_ceil(tile.rows), task.batch * heads];
    let keys = task.keys();
    // The split depends on sizes only, so that the result is reproducible.
    let busy = MOST_CUBES.div_ceil(cubes[0] * cubes[1]);
    let splits = match few && !trains {
        true => busy.min(keys.len() / FEWEST_KEYS).max(1),
        false => 1,
    };
    let of_split = keys.len().div_ceil(splits).div_ceil(COLUMNS) * COLUMNS;
    let splits = keys.len().div_ceil(of_split);

    let q = &operands.q;
    let empty = |shape: Vec<usize>, kind| empty(q, Shape::from(shape), kind);
    let rows = task.batch * task.heads * task.q_len;
    let log_sums = empty(
        vec![splits * task.batch, task.heads, task.q_len, 1],
        DType::F32,
    );
    let result = empty(shape.to_vec(), q.dtype);
    let (sums, vectors) = match splits {
        1 => (result.clone(), output),
        _ => (
            empty(vec![splits, rows, task.head_dim], DType::F32),
            VectorStrides::by_heads(task.heads, task.q_len, task.head_dim),
        ),
    };
    let address = operands.address([&sums, &log_sums]);
    let kinds = operands.kinds(sums.dtype);
    // SAFETY: `Operands` checks the shapes of all tensors. The kernel reads queries below `q_len`, keys below `k_len` and
    // elements below `head_dim`, and writes one vector and one log-sum per query, head, sequence and split.
    unsafe {
        attend::launch_unchecked::<R>(
            &q.client,
            CubeCount::Static(cubes[0] as u32, cubes[1] as u32, splits as u32),
            CubeDim::new_2d(LANES as u32, LANES as u32),
            address,
            q.clone().into_array_arg(),
            operands.k.clone().into_array_arg(),
            operands.v.clone().into_array_arg(),
            operands.bias().into_array_arg(),
            operands.words().into_array_arg(),
            sums.clone().into_array_arg(),
            log_sums.clone().into_array_arg(),
            operands.strides[0].launch(),
            operands.strides[1].launch(),
            operands.strides[2].launch(),
            vectors.launch(),
            operands.numbers(),
            keys.start,
            keys.end,
            of_split,
            rows,
            task.variant(tile),
            kinds[0],
            kinds[1],
            kinds[2],
            kinds[3],
        );
    }
    if splits > 1 {
        combine::combine(task, splits, sums, log_sums.clone(), &result, output);
    }
    [result, log_sums]
}

/// A cube computes the queries of a tile of a head, or of a group of heads if they are stacked, over a range of keys.
/// `sums` are f32 and have another dimension if there are several ranges.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn attend<T: Float, N: Float, O: Float, W: Numeric>(
    q: &Array<T>,
    k: &Array<T>,
    v: &Array<T>,
    bias: &Array<T>,
    words: &Array<W>,
    sums: &mut Array<O>,
    log_sums: &mut Array<f32>,
    of_q: Vectors,
    of_k: Vectors,
    of_v: Vectors,
    of_sums: Vectors,
    numbers: Numbers,
    first_key: usize,
    end_key: usize,
    of_split: usize,
    rows: usize,
    #[comptime] variant: Variant,
    #[define(T)] _kind: StorageType,
    #[define(N)] _operands: StorageType,
    #[define(O)] _output: StorageType,
    #[define(W)] _integers: StorageType,
) {
    let tile = comptime!(variant.tile);
    let unit_rows = comptime!(tile.unit_rows());
    let mut cube_heads = numbers.heads;
    let mut all_queries = numbers.q_len;
    if comptime!(tile.stacked) {
        cube_heads = numbers.heads / numbers.group;
        all_queries = numbers.q_len * numbers.group;
    }
    let sequence = CUBE_POS_Y as usize / cube_heads;
    let cube_head = CUBE_POS_Y as usize % cube_heads;
    let mut head = cube_head;
    let mut kv_head = cube_head / numbers.group;
    if comptime!(tile.stacked) {
        head = cube_head * numbers.group;
        kv_head = cube_head;
    }
    // With a causal reach, the last queries take longest, so they start first.
    let first_row = from_last(CUBE_POS_X, CUBE_COUNT_X) * comptime!(tile.rows);
    let mut queries = (0usize, numbers.q_len);
    if comptime!(!tile.stacked) {
        queries = (
            first_row,
            min(first_row + comptime!(tile.rows), numbers.q_len),
        );
    }
    let split = CUBE_POS_Z as usize;
    let from = first_key + split * of_split;
    let keys = (from, min(from + of_split, end_key));
    let (start, end) = key_range::<W>(words, sequence, queries, keys, &numbers, variant);
    let place = Place { sequence, head };
    let q_lines = of_q.lines(sequence, head, numbers.q_len, first_row, all_queries);

    let mut tiles = SharedMemory::<N>::new(comptime!(tile.memory()));
    let mut reduced = SharedMemory::<f32>::new(comptime!(tile.rows * LANES));
    let mut scores = Array::<f32>::new(comptime!(tile.unit_scores()));
    let mut outputs = Array::<f32>::new(comptime!(tile.unit_sums()));
    let mut most = Array::<f32>::new(unit_rows);
    let mut totals = Array::<f32>::new(unit_rows);
    #[unroll]
    for row in 0..unit_rows {
        most[row] = HIDDEN;
        totals[row] = 0.0;
    }
    #[unroll]
    for n in 0..comptime!(tile.unit_sums()) {
        outputs[n] = 0.0;
    }
    let unit_row = UNIT_POS_Y as usize;
    let unit_column = UNIT_POS_X as usize;

    let mut key = start;
    while key < end {
        if may_see_tile(queries.0, key, &numbers, variant) {
            let k_lines = of_k.lines(sequence, kv_head, numbers.k_len, key, numbers.k_len);
            products::<T, N>(q, &q_lines, k, &k_lines, &mut tiles, &mut scores, tile);
            let at = (first_row, key);
            masked_scores::<T, W>(&mut scores, bias, words, &place, at, &numbers, variant);
            #[unroll]
            for row in 0..unit_rows {
                let mut largest = f32::new(HIDDEN);
                #[unroll]
                for column in 0..SCORE_COLUMNS {
                    largest = max(largest, scores[comptime!(row * SCORE_COLUMNS + column)]);
                }
                reduced[(unit_row + comptime!(row * LANES)) * LANES + unit_column] = largest;
            }
            sync_cube();
            #[unroll]
            for row in 0..unit_rows {
                let line = unit_row + comptime!(row * LANES);
                let mut largest = most[row];
                for lane in 0..LANES {
                    largest = max(largest, reduced[line * LANES + lane]);
                }
                let shrunk = (most[row] - largest).exp();
                most[row] = largest;
                totals[row] *= shrunk;
                #[unroll]
                for chunk in 0..comptime!(tile.chunks()) {
                    #[unroll]
                    for column in 0..CHUNK_COLUMNS {
                        outputs[comptime!((chunk * unit_rows + row) * CHUNK_COLUMNS + column)] *=
                            shrunk;
                    }
                }
                let (row_head, query) = row_place(first_row + line, head, &numbers, variant);
                #[unroll]
                for column in 0..SCORE_COLUMNS {
                    let score = scores[comptime!(row * SCORE_COLUMNS + column)];
                    let beside = unit_column + comptime!(column * LANES);
                    let mut weight = 0.0f32;
                    if score != HIDDEN {
                        weight = (score - largest).exp();
                        totals[row] += weight;
                        if comptime!(variant.dropout) {
                            let of = (row_head, query, key + beside);
                            weight *= kept_factor::<W>(words, sequence, of, &numbers);
                        }
                    }
                    tiles[line * WEIGHT_LINE + beside] = N::cast_from(weight);
                }
            }
            let v_lines = of_v.lines(sequence, kv_head, numbers.k_len, key, numbers.k_len);
            add_weighted::<T, N>(v, &v_lines, &mut tiles, &mut outputs, tile);
        }
        key += COLUMNS;
    }

    sync_cube();
    #[unroll]
    for row in 0..unit_rows {
        reduced[(unit_row + comptime!(row * LANES)) * LANES + unit_column] = totals[row];
    }
    sync_cube();
    let mut factors = Array::<f32>::new(unit_rows);
    #[unroll]
    for row in 0..unit_rows {
        let line = unit_row + comptime!(row * LANES);
        let mut total = 0.0f32;
        for lane in 0..LANES {
            total += reduced[line * LANES + lane];
        }
        let mut log_sum = f32::new(HIDDEN);
        factors[row] = 0.0;
        if total != 0.0 {
            factors[row] = 1.0 / total;
            log_sum = most[row] + total.ln();
        }
        if unit_column == 0 && first_row + line < all_queries {
            let first = (sequence * numbers.heads + head) * numbers.q_len;
            log_sums[split * rows + first + first_row + line] = log_sum;
        }
    }
    let mut lines = of_sums.lines(sequence, head, numbers.q_len, first_row, all_queries);
    lines.first += split * rows * comptime!(tile.head_dim);
    store::<O>(&outputs, &factors, sums, &lines, tile);
}
