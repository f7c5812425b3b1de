//! The trait for `Autodiff<B, C>`, with handwritten backward passes over the operations of the inner backend.
//!
//! The AdamW update is never differentiated and has no backward pass. A linear layer with a packed weight
//! keeps it packed and unpacks it in both passes; the weight has no gradient.

/// Adds an operation with these parents to the graph. In Burn, their number is part of the operation's type.
macro_rules! with_parents {
    ($backward:expr, $strategy:ty, [$($parent:expr),+], $kept:expr, $output:expr) => {
        match $backward.prepare::<$strategy>([$($parent),+]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish($kept, $output),
            OpsKind::UnTracked(prep) => prep.finish($output),
        }
    };
}

/// Registers the gradients of the parents that are tracked, in the order of the parents, whose type cannot be named.
macro_rules! register {
    ($grads:ident, $backend:ty, $parents:expr, $made:expr) => {
        for (parent, grad) in $parents.into_iter().zip($made) {
            if let Some(node) = parent {
                $grads.register::<$backend>(node.id, grad);
            }
        }
    };
}

mod activation;
mod attention;
mod column_norms;
mod dependency;
mod embedding;
mod gated;
mod gated_columns;
mod gradient;
mod head_loss;
mod head_loss_parts;
mod head_losses;
mod hook;
mod linear;
mod matmul;
mod norm;
mod packed;
mod recurrences;
mod rotary;
mod rows;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::Device;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::{FloatTensor, IntTensor};

pub use hook::GradientHook;

use crate::cpu::packed::PackedMatrix;
use crate::{
    Activation, Backend, ColumnNormInputs, ColumnNorms, ConvolutionInputs, DeltaRuleHeads,
    DeltaRuleInputs, DeltaRuleOutputs, DeviceMemory, HeadLossInputs, LinearInputs, Normalization,
    PackedFormat, PackedWeight, Precision, Recurrences, RotaryLayout, RowOps, reference,
};

/// A backend for training: a [`Backend`] with automatic differentiation over an inner [`Backend`].
pub trait TrainingBackend: Backend + AutodiffBackend<InnerBackend: Backend> {
    /// Returns x. When a backward pass reaches it, `hook` gets the gradients that the pass has accumulated for `taken`, and the
    /// pass continues without them.
    ///
    /// Burn runs the operations of a backward pass by their depth, the length of the longest path from a parameter, from
    /// the deepest on. A gradient is therefore complete if all operations that use its tensor depend on x
    /// ([`Backend::depending_on`]). One that another operation contributes to later has only this contribution after the
    /// pass.
    fn gradient_hook(
        x: FloatTensor<Self>,
        taken: &[FloatTensor<Self>],
        hook: GradientHook<Self::InnerBackend>,
    ) -> FloatTensor<Self>;
}

impl<B: Backend, C: CheckpointStrategy> TrainingBackend for Autodiff<B, C> {
    fn gradient_hook(
        x: FloatTensor<Self>,
        taken: &[FloatTensor<Self>],
        hook: GradientHook<B>,
    ) -> FloatTensor<Self> {
        hook::gradient_hook::<B, C>(x, taken, hook)
    }
}

impl<B: Backend, C: CheckpointStrategy> RowOps for Autodiff<B, C> {
    fn add_rows(
        base: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        ids: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        rows::add_rows::<B, C>(base, x, weights, ids)
    }

    fn add_gated_columns(
        x: FloatTensor<Self>,
        gates: FloatTensor<Self>,
        added: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        gated_columns::add_gated_columns::<B, C>(x, gates, added)
    }
}

impl<B: Backend, C: CheckpointStrategy> Recurrences for Autodiff<B, C> {
    fn gated_delta_rule(
        heads: DeltaRuleHeads,
        inputs: DeltaRuleInputs<Self>,
    ) -> DeltaRuleOutputs<Self> {
        recurrences::gated_delta_rule::<B, C>(heads, inputs)
    }

    fn short_convolution(inputs: ConvolutionInputs<Self>) -> FloatTensor<Self> {
        recurrences::short_convolution::<B, C>(inputs)
    }
}

impl<B: Backend, C: CheckpointStrategy> Backend for Autodiff<B, C> {
    type Attention = attention::TrackedAttention;

    fn run<R: Send>(operations: impl FnOnce() -> R + Send) -> R {
        B::run(operations)
    }

    fn multiplies_in(precision: Precision, device: &Device<Self>) -> bool {
        B::multiplies_in(precision, device)
    }

    fn is_asynchronous() -> bool {
        B::is_asynchronous()
    }

    fn memory(device: &Device<Self>) -> Option<DeviceMemory> {
        B::memory(device)
    }

    fn largest_buffer(device: &Device<Self>) -> Option<u64> {
        B::largest_buffer(device)
    }

    fn block_bytes(device: &Device<Self>) -> u64 {
        B::block_bytes(device)
    }

    fn depending_on(tensor: FloatTensor<Self>, x: &FloatTensor<Self>) -> FloatTensor<Self> {
        dependency::depending_on::<B, C>(tensor, x)
    }

    fn matmul(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        matmul::matmul::<B, C>(a, b)
    }

    fn activation(kind: Activation, x: FloatTensor<Self>) -> FloatTensor<Self> {
        activation::activation::<B, C>(kind, x)
    }

    fn gated(
        kind: Activation,
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        gated::gated::<B, C>(kind, gate, up)
    }

    fn normalize(
        kind: Normalization,
        x: FloatTensor<Self>,
        gain: Option<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        norm::normalize::<B, C>(kind, x, gain, bias)
    }

    fn normalize_columns(norms: ColumnNorms, inputs: ColumnNormInputs<Self>) -> FloatTensor<Self> {
        column_norms::normalize_columns::<B, C>(norms, inputs)
    }

    fn linear(inputs: LinearInputs<Self>, precision: Precision) -> FloatTensor<Self> {
        linear::linear::<B, C>(inputs, precision)
    }

    fn pack(weight: FloatTensor<Self>, format: PackedFormat) -> PackedWeight<Self> {
        packed::pack::<B, C>(weight, format)
    }

    fn packed_from_host(matrix: PackedMatrix, device: &Device<Self>) -> PackedWeight<Self> {
        packed::packed_from_host::<B, C>(matrix, device)
    }

    fn unpack(weight: PackedWeight<Self>) -> FloatTensor<Self> {
        packed::unpack::<B, C>(&weight)
    }

    fn linear_packed(
        x: FloatTensor<Self>,
        weight: PackedWeight<Self>,
        bias: Option<FloatTensor<Self>>,
        residual: Option<FloatTensor<Self>>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        packed::linear_packed::<B, C>(x, weight, bias, residual, precision)
    }

    fn embedding_packed(table: PackedWeight<Self>, ids: IntTensor<Self>) -> FloatTensor<Self> {
        packed::embedding_packed::<B, C>(&table, ids)
    }

    fn embedding(table: FloatTensor<Self>, ids: IntTensor<Self>) -> FloatTensor<Self> {
        embedding::embedding::<B, C>(table, ids)
    }

    fn rotary(
        layout: RotaryLayout,
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        rotary::rotary::<B, C>(layout, x, cos, sin)
    }

    fn head_loss(inputs: HeadLossInputs<Self>) -> FloatTensor<Self> {
        match inputs.weights.as_slice() {
            [weight] => head_loss::single_part::<B, C>(weight.clone(), inputs),
            _ => head_loss_parts::several_parts::<B, C>(inputs),
        }
    }

    fn head_losses(inputs: HeadLossInputs<Self>) -> FloatTensor<Self> {
        match inputs.weights.as_slice() {
            [weight] => head_losses::single_part::<B, C>(weight.clone(), inputs),
            // Differentiated operation by operation, with all logits in memory.
            _ => {
                let (inputs, rows) = reference::in_blocks::<Self>(inputs);
                reference::head_losses::<Self>(inputs, rows)
            }
        }
    }
}
