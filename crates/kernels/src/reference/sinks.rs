//! Attention sinks: a learned score of each head that has no key and no value.
//!
//! With a sink `s`, the weights of a query are `exp(S - L)` with `L = ln (Σ exp(S) + exp(s))`, so they sum to less than 1 (Xiao et al.
//! 2024; OpenAI 2025, "gpt-oss"). The gradients of queries, keys and values are those of attention with these weights.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};

use super::{primitive, typed};
use crate::BaseOps;

/// Adds the sinks `[heads]` to an attention without them: to its output, `[batch, heads, q_len, head_dim]` or
/// `[batch, q_len, heads · head_dim]`, and its log-sums `[batch, heads, q_len, 1]`.
pub fn with_sinks<B: BaseOps>(
    output: FloatTensor<B>,
    log_sums: FloatTensor<B>,
    sinks: &Tensor<B, 1>,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let log_sums = typed::<B, 4>(log_sums);
    let sinks = of_queries(sinks, &log_sums);
    let most = log_sums.clone().max_pair(sinks.clone());
    let total = (log_sums.clone() - most.clone()).exp() + (sinks - most.clone()).exp();
    let with_sinks = total.log() + most;
    let factor = (log_sums - with_sinks.clone()).exp(); // [batch, heads, q_len, 1]
    let shape = output.shape();
    let output = by_heads::<B>(output, factor.dims()[1]);
    let factor = factor.cast(output.dtype());
    let output = match shape.num_dims() {
        3 => primitive::<B, 3>((output * factor).swap_dims(1, 2).reshape(shape)),
        _ => primitive::<B, 4>(output * factor),
    };
    (output, primitive(with_sinks))
}

/// The gradient of the sinks `[heads]`: `-Σ exp(s - L) D` over sequences and queries, with the log-sums `L` `[batch, heads, q_len, 1]`
/// and `D = rowsum(dO ∘ O)` of the output and its gradient, `[batch, heads, q_len, head_dim]` or `[batch, q_len, heads · head_dim]`.
pub fn sink_gradient<B: BaseOps>(
    sinks: &Tensor<B, 1>,
    log_sums: FloatTensor<B>,
    output: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let log_sums = typed::<B, 4>(log_sums);
    let [output, grad] = [output, grad].map(|x| by_heads::<B>(x, log_sums.dims()[1]));
    let along = (output * grad).sum_dim(3).cast(log_sums.dtype()); // [batch, heads, q_len, 1]
    let weights = (of_queries(sinks, &log_sums) - log_sums).exp();
    primitive(summed(weights * along).cast(sinks.dtype()))
}

/// The gradient of the sinks from the products of their weights and `D`, `[batch, heads, q_len, 1]`.
pub(super) fn summed<B: BaseOps>(products: Tensor<B, 4>) -> Tensor<B, 1> {
    let heads = products.dims()[1];
    products.sum_dim(2).sum_dim(0).neg().reshape([heads])
}

/// The sinks for each of the queries, in the shape `[batch, heads, q_len, 1]` and the type of `like`.
pub(super) fn of_queries<B: BaseOps>(sinks: &Tensor<B, 1>, like: &Tensor<B, 4>) -> Tensor<B, 4> {
    let [batch, heads, q_len, _] = like.dims();
    let sinks = sinks.clone().cast(like.dtype()).reshape([1, heads, 1, 1]);
    sinks.expand([batch, heads, q_len, 1])
}

/// An output as `[batch, heads, q_len, head_dim]`.
fn by_heads<B: BaseOps>(x: FloatTensor<B>, heads: usize) -> Tensor<B, 4> {
    let shape = x.shape();
    if shape.num_dims() == 4 {
        return typed(x);
    }
    let [batch, q_len, width] = shape.dims();
    let x = typed::<B, 3>(x).reshape([batch, q_len, heads, width / heads.max(1)]);
    x.swap_dims(1, 2)
}
