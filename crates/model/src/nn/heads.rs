//! The heads of projected queries, keys and values.

use std::ops::Range;

use burn::tensor::Tensor;

use emberlm_kernels::{Backend, ops};

use crate::nn::norm::Norm;

/// Sizes that every attention has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadSizes {
    /// Width of the input.
    pub(crate) d_model: usize,
    /// Query heads; heads of values in a delta net.
    pub(crate) heads: usize,
    /// Key-value heads; heads of queries and keys in a delta net.
    pub(crate) key_heads: usize,
    /// Width of a head of queries or keys.
    pub(crate) key_dim: usize,
}

/// Splits a range of columns into heads: `[batch, seq, all]` to `[batch, heads, seq, head_dim]`.
pub(crate) fn take_heads<B: Backend>(
    projected: &Tensor<B, 3>,
    heads: Range<usize>,
    head_dim: usize,
) -> Tensor<B, 4> {
    let [batch, seq, _] = projected.dims();
    projected
        .clone()
        .narrow(2, heads.start * head_dim, heads.len() * head_dim)
        .reshape([batch, seq, heads.len(), head_dim])
        .swap_dims(1, 2)
}

/// Merges heads: `[batch, heads, seq, head_dim]` to `[batch, seq, heads · head_dim]`.
pub(crate) fn merge_heads<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 3> {
    let [batch, heads, seq, head_dim] = x.dims();
    x.swap_dims(1, 2).reshape([batch, seq, heads * head_dim])
}

/// The sums of values `[batch, kv_heads, keys, head_dim]`, weighted by `[batch, heads, queries, keys]`: `[batch, heads, queries, head_dim]`.
pub(crate) fn weighted_sums<B: Backend>(
    weights: Tensor<B, 4>,
    values: Tensor<B, 4>,
) -> Tensor<B, 4> {
    let [batch, kv_heads, keys, head_dim] = values.dims();
    let heads = weights.dims()[1];
    let group = heads / kv_heads.max(1);
    let values = values.reshape([batch, kv_heads, 1, keys, head_dim]);
    let values = values.expand([batch, kv_heads, group, keys, head_dim]);
    weights.matmul(values.reshape([batch, heads, keys, head_dim]))
}

/// Rotates `x` `[batch, heads, seq, head_dim]` by the angles of its tokens.
pub(crate) fn rotated<B: Backend>(x: Tensor<B, 4>, angles: &ops::Angles<B>) -> Tensor<B, 4> {
    let (cos, sin) = (angles.cos.clone(), angles.sin.clone());
    ops::rotary(angles.layout, x, cos, sin)
}

/// Normalizes the heads of `x` `[batch, heads, seq, head_dim]`; returns `x` if there is no norm.
pub(crate) fn normed<B: Backend>(norm: &Option<Norm<B>>, x: Tensor<B, 4>) -> Tensor<B, 4> {
    match norm {
        Some(norm) => norm.forward(x),
        None => x,
    }
}
