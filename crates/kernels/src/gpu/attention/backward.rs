//! The backward pass: one kernel for the gradient of the queries, and one for those of keys and values. Both compute the
//! weights again from the log-sums; see [`crate::reference::blocked_attention_backward`] for the equations.

#![allow(unsafe_code)]

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::operands::{Operands, VectorStrides, Vectors};
use super::scores::{
    Numbers, Place, Variant, first_document, key_range, may_see_tile, query_range, score_gradients,
};
use super::tile::{
    COLUMNS, LANES, SCORE_COLUMNS, Tile, WEIGHT_LINE, add_weighted, from_last, products, store,
};
use crate::gpu::launch::empty;

/// The layouts of the gradients of queries, keys and values.
pub(super) type GradientStrides = [VectorStrides; 3];

/// Writes the gradients of queries to the first tensor, and of keys and values to the second, which may be the same.
/// `output` and `grad` have the shape of the forward pass's output; `log_sums` are `[batch, heads, q_len, 1]`.
pub(super) fn backward<R: CubeRuntime>(
    operands: &Operands<R>,
    [output, grad, log_sums]: [CubeTensor<R>; 3],
    gradients: [&CubeTensor<R>; 2],
    of_gradients: GradientStrides,
) {
    let task = &operands.task;
    let client = operands.q.client.clone();
    let count = task.batch * task.heads * task.q_len;
    let rows = empty(&operands.q, Shape::new([count, 2]), DType::F32);
    let [of_output, of_grad] = [&output, &grad].map(|x| VectorStrides::of(x, 0, task.head_dim));
    let tile = Tile::new(task.head_dim);
    let variant = task.variant(tile);
    let address = operands.address([&output, &grad, &log_sums, &rows, gradients[0], gradients[1]]);
    let [kind, narrow, _, words] = operands.kinds(DType::F32);
    let cubes = |tokens: usize, heads: usize| {
        let heads = task.batch * heads;
        CubeCount::Static(tokens.div_ceil(tile.rows) as u32, heads as u32, 1)
    };
    let units = CubeDim::new_2d(LANES as u32, LANES as u32);
    // SAFETY: `Operands` checks the shapes of all tensors. The kernels read queries below `q_len`, keys below `k_len` and
    // elements below `head_dim`. They write a pair for each query, and a gradient for each vector.
    unsafe {
        output_products::launch_unchecked::<R>(
            &client,
            CubeCount::Static(
                task.q_len.div_ceil(LANES) as u32,
                (task.batch * task.heads) as u32,
                1,
            ),
            units,
            address,
            output.into_array_arg(),
            grad.clone().into_array_arg(),
            log_sums.into_array_arg(),
            rows.clone().into_array_arg(),
            of_output.launch(),
            of_grad.launch(),
            task.heads,
            task.q_len,
            task.head_dim,
            kind,
        );
        key_gradients::launch_unchecked::<R>(
            &client,
            cubes(task.k_len, task.kv_heads),
            units,
            address,
            operands.q.clone().into_array_arg(),
            operands.k.clone().into_array_arg(),
            operands.v.clone().into_array_arg(),
            grad.clone().into_array_arg(),
            rows.clone().into_array_arg(),
            operands.bias().into_array_arg(),
            operands.words().into_array_arg(),
            gradients[1].clone().into_array_arg(),
            operands.strides[0].launch(),
            operands.strides[1].launch(),
            operands.strides[2].launch(),
            of_grad.launch(),
            of_gradients[1].launch(),
            of_gradients[2].launch(),
            operands.numbers(),
            variant,
            kind,
            narrow,
            words,
        );
        query_gradients::launch_unchecked::<R>(
            &client,
            cubes(task.q_len, task.heads),
            units,
            address,
            operands.q.clone().into_array_arg(),
            operands.k.clone().into_array_arg(),
            operands.v.clone().into_array_arg(),
            grad.into_array_arg(),
            rows.into_array_arg(),
            operands.bias().into_array_arg(),
            operands.words().into_array_arg(),
            gradients[0].clone().into_array_arg(),
            operands.strides[0].launch(),
            operands.strides[1].launch(),
            operands.strides[2].launch(),
            of_grad.launch(),
            of_gradients[0].launch(),
            operands.numbers(),
            variant,
            kind,
            narrow,
            words,
        );
    }
}

/// Writes to `rows` the log-sum of each query and the sum of its output times its gradient. A cube computes 16 queries,
/// each with 16 units.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn output_products<T: Float>(
    output: &Array<T>,
    grad: &Array<T>,
    log_sums: &Array<f32>,
    rows: &mut Array<f32>,
    of_output: Vectors,
    of_grad: Vectors,
    heads: usize,
    q_len: usize,
    head_dim: usize,
    #[define(T)] _kind: StorageType,
) {
    let sequence = CUBE_POS_Y as usize / heads;
    let head = CUBE_POS_Y as usize % heads;
    let line = UNIT_POS_Y as usize;
    let lane = UNIT_POS_X as usize;
    let query = CUBE_POS_X as usize * LANES + line;
    let mut partial = SharedMemory::<f32>::new(LANES * LANES);
    let mut sum = 0.0f32;
    if query < q_len {
        let outputs = of_output.lines(sequence, head, q_len, 0, q_len);
        let grads = of_grad.lines(sequence, head, q_len, 0, q_len);
        let mut at = lane;
        while at < head_dim {
            let left = f32::cast_from(output[outputs.first + query * outputs.token + at]);
            let right = f32::cast_from(grad[grads.first + query * grads.token + at]);
            sum += left * right;
            at += LANES;
        }
    }
    partial[line * LANES + lane] = sum;
    sync_cube();
    if lane == 0 && query < q_len {
        let mut total = 0.0f32;
        for n in 0..LANES {
            total += partial[line * LANES + n];
        }
        let row = CUBE_POS_Y as usize * q_len + query;
        rows[row * 2] = log_sums[row];
        rows[row * 2 + 1] = total;
    }
}

/// A cube computes the gradients of a tile of keys and values: the sums over all queries of the group's heads.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn key_gradients<T: Float, N: Float, W: Numeric>(
    q: &Array<T>,
    k: &Array<T>,
    v: &Array<T>,
    grad: &Array<T>,
    rows: &Array<f32>,
    bias: &Array<T>,
    words: &Array<W>,
    gradients: &mut Array<T>,
    of_q: Vectors,
    of_k: Vectors,
    of_v: Vectors,
    of_grad: Vectors,
    of_k_gradient: Vectors,
    of_v_gradient: Vectors,
    numbers: Numbers,
    #[comptime] variant: Variant,
    #[define(T)] _kind: StorageType,
    #[define(N)] _operands: StorageType,
    #[define(W)] _integers: StorageType,
) {
    let tile = comptime!(variant.tile);
    let kv_heads = numbers.heads / numbers.group;
    let sequence = CUBE_POS_Y as usize / kv_heads;
    let kv_head = CUBE_POS_Y as usize % kv_heads;
    let first = CUBE_POS_X as usize * comptime!(tile.rows);
    let last = min(first + comptime!(tile.rows), numbers.k_len);
    let (q_len, k_len) = (numbers.q_len, numbers.k_len);
    let k_lines = of_k.lines(sequence, kv_head, k_len, first, k_len);
    let v_lines = of_v.lines(sequence, kv_head, k_len, first, k_len);
    let (start, end) = query_range((first, last), &numbers, variant);

    let mut tiles = SharedMemory::<N>::new(comptime!(tile.memory()));
    let mut scores = Array::<f32>::new(comptime!(tile.unit_scores()));
    let mut grads = Array::<f32>::new(comptime!(tile.unit_scores()));
    let mut k_sums = Array::<f32>::new(comptime!(tile.unit_sums()));
    let mut v_sums = Array::<f32>::new(comptime!(tile.unit_sums()));
    #[unroll]
    for n in 0..comptime!(tile.unit_sums()) {
        k_sums[n] = 0.0;
        v_sums[n] = 0.0;
    }
    for member in 0..numbers.group {
        let head = kv_head * numbers.group + member;
        let place = Place { sequence, head };
        let mut query = start;
        while query < end {
            let queries = (query, min(query + COLUMNS, q_len));
            if first_document::<W>(words, sequence, queries, &numbers, variant) < last {
                let q_lines = of_q.lines(sequence, head, q_len, query, q_len);
                let grad_lines = of_grad.lines(sequence, head, q_len, query, q_len);
                products::<T, N>(k, &k_lines, q, &q_lines, &mut tiles, &mut scores, tile);
                products::<T, N>(v, &v_lines, grad, &grad_lines, &mut tiles, &mut grads, tile);
                score_gradients::<T, W>(
                    &mut scores,
                    &mut grads,
                    rows,
                    bias,
                    words,
                    &place,
                    (first, query),
                    &numbers,
                    true,
                    variant,
                );
                sync_cube();
                write_weights::<N>(&scores, &mut tiles, tile);
                add_weighted::<T, N>(grad, &grad_lines, &mut tiles, &mut v_sums, tile);
                sync_cube();
                write_weights::<N>(&grads, &mut tiles, tile);
                add_weighted::<T, N>(q, &q_lines, &mut tiles, &mut k_sums, tile);
            }
            query += COLUMNS;
        }
    }
    let ones = ones(tile);
    let lines = of_k_gradient.lines(sequence, kv_head, k_len, first, k_len);
    store::<T>(&k_sums, &ones, gradients, &lines, tile);
    let lines = of_v_gradient.lines(sequence, kv_head, k_len, first, k_len);
    store::<T>(&v_sums, &ones, gradients, &lines, tile);
}

/// A cube computes the gradients of a tile of queries: the sums over all keys.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn query_gradients<T: Float, N: Float, W: Numeric>(
    q: &Array<T>,
    k: &Array<T>,
    v: &Array<T>,
    grad: &Array<T>,
    rows: &Array<f32>,
    bias: &Array<T>,
    words: &Array<W>,
    gradients: &mut Array<T>,
    of_q: Vectors,
    of_k: Vectors,
    of_v: Vectors,
    of_grad: Vectors,
    of_gradients: Vectors,
    numbers: Numbers,
    #[comptime] variant: Variant,
    #[define(T)] _kind: StorageType,
    #[define(N)] _operands: StorageType,
    #[define(W)] _integers: StorageType,
) {
    let tile = comptime!(variant.tile);
    let sequence = CUBE_POS_Y as usize / numbers.heads;
    let head = CUBE_POS_Y as usize % numbers.heads;
    let kv_head = head / numbers.group;
    let first = from_last(CUBE_POS_X, CUBE_COUNT_X) * comptime!(tile.rows);
    let (q_len, k_len) = (numbers.q_len, numbers.k_len);
    let queries = (first, min(first + comptime!(tile.rows), q_len));
    let (start, end) = key_range::<W>(words, sequence, queries, (0usize, k_len), &numbers, variant);
    let place = Place { sequence, head };
    let q_lines = of_q.lines(sequence, head, q_len, first, q_len);
    let grad_lines = of_grad.lines(sequence, head, q_len, first, q_len);

    let mut tiles = SharedMemory::<N>::new(comptime!(tile.memory()));
    let mut scores = Array::<f32>::new(comptime!(tile.unit_scores()));
    let mut grads = Array::<f32>::new(comptime!(tile.unit_scores()));
    let mut sums = Array::<f32>::new(comptime!(tile.unit_sums()));
    #[unroll]
    for n in 0..comptime!(tile.unit_sums()) {
        sums[n] = 0.0;
    }
    let mut key = start;
    while key < end {
        if may_see_tile(first, key, &numbers, variant) {
            let k_lines = of_k.lines(sequence, kv_head, k_len, key, k_len);
            let v_lines = of_v.lines(sequence, kv_head, k_len, key, k_len);
            products::<T, N>(q, &q_lines, k, &k_lines, &mut tiles, &mut scores, tile);
            products::<T, N>(grad, &grad_lines, v, &v_lines, &mut tiles, &mut grads, tile);
            score_gradients::<T, W>(
                &mut scores,
                &mut grads,
                rows,
                bias,
                words,
                &place,
                (first, key),
                &numbers,
                false,
                variant,
            );
            sync_cube();
            write_weights::<N>(&grads, &mut tiles, tile);
            add_weighted::<T, N>(k, &k_lines, &mut tiles, &mut sums, tile);
        }
        key += COLUMNS;
    }
    let lines = of_gradients.lines(sequence, head, q_len, first, q_len);
    store::<T>(&sums, &ones(tile), gradients, &lines, tile);
}

/// Writes the unit's weights to shared memory.
#[cube]
fn write_weights<N: Float>(
    weights: &Array<f32>,
    tiles: &mut SharedMemory<N>,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for row in 0..comptime!(tile.unit_rows()) {
        let line = (UNIT_POS_Y as usize + comptime!(row * LANES)) * WEIGHT_LINE;
        #[unroll]
        for column in 0..SCORE_COLUMNS {
            let beside = UNIT_POS_X as usize + comptime!(column * LANES);
            tiles[line + beside] = N::cast_from(weights[comptime!(row * SCORE_COLUMNS + column)]);
        }
    }
}

/// A factor of 1 for each row of a unit.
#[cube]
fn ones(#[comptime] tile: Tile) -> Array<f32> {
    let mut ones = Array::<f32>::new(comptime!(tile.unit_rows()));
    #[unroll]
    for row in 0..comptime!(tile.unit_rows()) {
        ones[row] = 1.0;
    }
    ones
}
