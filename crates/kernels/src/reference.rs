//! Reference implementations of all operations, composed of plain tensor operations. Every override is tested
//! against them.

mod activation;
mod adamw;
mod attention;
pub(crate) mod attention_blocks;
pub(crate) mod attention_dropout;
mod attention_kernels;
mod attention_scores;
mod blocked_attention;
mod cache;
mod column_norms;
mod delta_rule;
mod delta_rule_backward;
mod embedding;
mod gated;
mod gated_columns;
mod head_loss;
mod linear;
mod linear_attention;
mod low_rank;
mod norm;
mod packed;
mod product;
mod rotary;
mod rows;
mod scale;
pub(crate) mod self_attention;
mod short_convolution;
mod sinks;
mod softplus;
pub(crate) mod table_parts;

pub use activation::{activation, activation_backward};
pub use adamw::{adamw, clipped_adamw};
pub use attention::{
    WholeState, attention, attention_backward, attention_training, attention_weights,
};
pub use attention_blocks::AttentionBlocks;
pub use attention_dropout::DropoutDraws;
pub use attention_kernels::{BlockedAttention, WholeAttention};
pub use blocked_attention::{
    BlockedState, blocked_attention, blocked_attention_backward, blocked_attention_training,
};
pub use cache::{empty_tokens, pack_tokens, unpack_tokens, write_packed_tokens, write_tokens};
pub use column_norms::{normalize_columns, normalize_columns_backward};
pub use delta_rule::gated_delta_rule;
pub use delta_rule_backward::gated_delta_rule_backward;
pub use embedding::embedding_backward;
pub use gated::{gated, gated_backward};
pub use gated_columns::{add_gated_columns, add_gated_columns_backward};
pub(crate) use head_loss::in_blocks;
pub use head_loss::{
    head_loss, head_loss_gradients, head_losses, head_losses_backward, rows_per_block,
};
pub use linear::{gradient_products, linear, linear_backward, linear_training};
pub use linear_attention::{linear_attention, linear_attention_weights};
pub use low_rank::add_low_rank;
pub use norm::{normalize, normalize_backward};
pub use packed::{linear_packed, pack, pack_on_host, packed_from_host, unpack};
pub use rotary::rotary;
pub use rows::{add_rows, add_rows_backward};
pub use scale::{chunk_sums_of_squares, scaled, sum_of_squares};
pub use self_attention::{
    blocked_self_attention, blocked_self_attention_backward, blocked_self_attention_training,
    self_attention, self_attention_backward, self_attention_training,
};
pub use short_convolution::{short_convolution, short_convolution_backward};
pub use sinks::{sink_gradient, with_sinks};
pub use softplus::softplus;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, Tensor, TensorMetadata, TensorPrimitive};

/// Converts a primitive to a typed tensor of `D` dimensions.
fn typed<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// The size in bytes of blocks of scores and of logits, except on devices with much memory
/// ([`crate::Backend::block_bytes`]).
pub const BLOCK_BYTES: u64 = 64 << 20;

/// Flattens a primitive of any shape to a vector, and returns its shape for [`unflat`].
fn flat<B: Backend>(primitive: FloatTensor<B>) -> (Tensor<B, 1>, Shape) {
    let shape = primitive.shape();
    let count = shape.num_elements();
    let flat = B::float_reshape(primitive, Shape::new([count]));
    (typed(flat), shape)
}

fn unflat<B: Backend>(tensor: Tensor<B, 1>, shape: Shape) -> FloatTensor<B> {
    B::float_reshape(primitive(tensor), shape)
}

fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

/// [`crate::Backend::matmul`].
fn matmul<B: crate::BaseOps, const D: usize>(a: Tensor<B, D>, b: Tensor<B, D>) -> Tensor<B, D> {
    typed(B::matmul(primitive(a), primitive(b)))
}

/// Reshapes a primitive of any shape to rows of its last dimension, and returns its shape.
fn rows<B: Backend>(primitive: FloatTensor<B>) -> (Tensor<B, 2>, Shape) {
    let shape = primitive.shape();
    let width = last(&shape);
    let count = shape.num_elements() / width.max(1);
    let rows = B::float_reshape(primitive, Shape::new([count, width]));
    (typed(rows), shape)
}

/// The length of the last dimension.
fn last(shape: &Shape) -> usize {
    shape.iter().next_back().copied().unwrap_or(1)
}

/// Returns `shape` with its last dimension replaced by `width`.
pub(crate) fn with_last(shape: Shape, width: usize) -> Shape {
    let mut dims: Vec<usize> = shape.iter().copied().collect();
    if let Some(last) = dims.last_mut() {
        *last = width;
    }
    Shape::from(dims)
}
