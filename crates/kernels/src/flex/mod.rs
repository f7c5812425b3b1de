//! The trait for `flex`, Burn's CPU backend: the kernels of [`crate::cpu`] on the tensors' memory. Types other
//! than f32 use the reference implementation, without rounding the operands of products.

mod address;
mod attention;
mod buffer;
mod cache;
mod column_norms;
mod elementwise;
mod gated_columns;
mod head_loss;
mod linear;
mod low_rank;
mod mask;
mod optimizer;
mod packed;
mod recurrences;
mod rows;

use burn::tensor::ops::{FloatTensor, IntTensor, ModuleOps};
use burn::tensor::{Device, Shape};
use burn_flex::Flex;

use crate::cpu::bf16;
use crate::cpu::packed::PackedMatrix;
use crate::cpu::team;
use crate::{
    Activation, AdamWInputs, AdamWOutputs, AddRowsGradients, Backend, ColumnNormGradients,
    ColumnNormInputs, ColumnNorms, GatedGradients, HeadLossGradients, HeadLossInputs,
    LinearGradients, LinearInputs, LowRankUpdate, NormGradients, Normalization, PackedFormat,
    PackedTokens, PackedWeight, Precision, RotaryLayout, RowOps, VectorMemory, reference,
};
use buffer::is_f32;

impl RowOps for Flex {
    fn add_rows(
        base: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        ids: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        match is_f32(&[&base, &x, &weights]) {
            true => rows::add_rows(base, x, weights, &ids),
            false => reference::add_rows::<Self>(base, x, weights, ids),
        }
    }

    fn add_rows_backward(
        x: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        ids: IntTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> AddRowsGradients<Self> {
        match is_f32(&[&x, &weights, &grad]) {
            true => rows::add_rows_backward(x, weights, &ids, grad),
            false => reference::add_rows_backward::<Self>(x, weights, ids, grad),
        }
    }

    fn add_gated_columns(
        x: FloatTensor<Self>,
        gates: FloatTensor<Self>,
        added: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        match is_f32(&[&x, &gates, &added]) {
            true => gated_columns::add_gated_columns(x, gates, added),
            false => reference::add_gated_columns::<Self>(x, gates, added),
        }
    }

    fn add_gated_columns_backward(
        gates: FloatTensor<Self>,
        added: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> GatedGradients<Self> {
        match is_f32(&[&gates, &added, &grad]) {
            true => gated_columns::add_gated_columns_backward(gates, added, grad),
            false => reference::add_gated_columns_backward::<Self>(gates, added, grad),
        }
    }
}

impl Backend for Flex {
    type Attention = attention::TiledAttention;

    fn run<R: Send>(operations: impl FnOnce() -> R + Send) -> R {
        rayon::scope(|_| team::lead(operations))
    }

    fn multiplies_in(precision: Precision, _device: &Device<Self>) -> bool {
        match precision {
            Precision::F32 => true,
            Precision::Bf16 => bf16::supported(),
            Precision::F16 => false,
        }
    }

    fn vector_memory(vector: FloatTensor<Self>) -> Option<Box<dyn VectorMemory<Self>>> {
        address::vector_memory(vector)
    }

    fn activation(kind: Activation, x: FloatTensor<Self>) -> FloatTensor<Self> {
        match is_f32(&[&x]) {
            true => elementwise::activation(kind, x),
            false => reference::activation::<Self>(kind, x),
        }
    }

    fn activation_training(
        kind: Activation,
        x: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        match is_f32(&[&x]) {
            true => elementwise::activation_training(kind, x),
            false => (reference::activation::<Self>(kind, x.clone()), x),
        }
    }

    fn activation_backward(
        kind: Activation,
        kept: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        match is_f32(&[&kept, &grad]) {
            true => elementwise::activation_backward(kept, grad),
            false => reference::activation_backward::<Self>(kind, kept, grad),
        }
    }

    fn gated(
        kind: Activation,
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        match is_f32(&[&gate, &up]) {
            true => elementwise::gated(kind, gate, up),
            false => reference::gated::<Self>(kind, gate, up),
        }
    }

    fn gated_backward(
        kind: Activation,
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> GatedGradients<Self> {
        match is_f32(&[&gate, &up, &grad]) {
            true => elementwise::gated_backward(kind, gate, up, grad),
            false => reference::gated_backward::<Self>(kind, gate, up, grad),
        }
    }

    fn normalize(
        kind: Normalization,
        x: FloatTensor<Self>,
        gain: Option<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        match is_f32(&[&x]) {
            true => elementwise::normalize(kind, x, gain, bias),
            false => reference::normalize::<Self>(kind, x, gain, bias),
        }
    }

    fn normalize_backward(
        kind: Normalization,
        x: FloatTensor<Self>,
        gain: Option<FloatTensor<Self>>,
        bias: bool,
        grad: FloatTensor<Self>,
        added: Option<FloatTensor<Self>>,
    ) -> NormGradients<Self> {
        match is_f32(&[&x, &grad]) {
            true => elementwise::normalize_backward(kind, x, gain, bias, grad, added),
            false => reference::normalize_backward::<Self>(kind, x, gain, bias, grad, added),
        }
    }

    fn normalize_columns(norms: ColumnNorms, inputs: ColumnNormInputs<Self>) -> FloatTensor<Self> {
        match is_f32(&[&inputs.x]) {
            true => column_norms::normalize_columns(norms, inputs),
            false => reference::normalize_columns::<Self>(norms, inputs, Self::normalize),
        }
    }

    fn normalize_columns_backward(
        norms: ColumnNorms,
        inputs: ColumnNormInputs<Self>,
        grad: FloatTensor<Self>,
    ) -> ColumnNormGradients<Self> {
        match is_f32(&[&inputs.x, &grad]) {
            true => column_norms::normalize_columns_backward(norms, inputs, grad),
            false => {
                let backward = |x, gain, bias, grad| {
                    Self::normalize_backward(norms.kind, x, gain, bias, grad, None)
                };
                reference::normalize_columns_backward::<Self>(norms, inputs, grad, backward)
            }
        }
    }

    fn linear(inputs: LinearInputs<Self>, precision: Precision) -> FloatTensor<Self> {
        match is_f32(&[&inputs.x, &inputs.weight]) {
            true => linear::linear(inputs, None, precision),
            false => reference::linear::<Self>(inputs, Precision::F32),
        }
    }

    fn linear_activation(
        kind: Activation,
        inputs: LinearInputs<Self>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        match is_f32(&[&inputs.x, &inputs.weight]) {
            true => linear::linear(inputs, Some(kind), precision),
            false => {
                let sum = reference::linear::<Self>(inputs, Precision::F32);
                reference::activation::<Self>(kind, sum)
            }
        }
    }

    fn linear_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        added: Option<FloatTensor<Self>>,
        wanted: [bool; 3],
        precision: Precision,
    ) -> LinearGradients<Self> {
        match is_f32(&[&x, &weight, &grad]) {
            true => linear::linear_backward(x, weight, grad, added, wanted, precision),
            false => {
                let precision = Precision::F32;
                reference::linear_backward::<Self>(x, weight, grad, added, wanted, precision)
            }
        }
    }

    fn add_low_rank(
        y: FloatTensor<Self>,
        x: FloatTensor<Self>,
        updates: Vec<LowRankUpdate<Self>>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        let factors = updates.iter().flat_map(|update| [&update.a, &update.b]);
        let tensors: Vec<_> = factors.chain([&x, &y]).collect();
        match is_f32(&tensors) {
            true => low_rank::add_low_rank(y, x, updates, precision),
            false => reference::add_low_rank::<Self>(y, x, updates, Precision::F32),
        }
    }

    fn pack(weight: FloatTensor<Self>, format: PackedFormat) -> PackedWeight<Self> {
        packed::pack(weight, format)
    }

    fn packed_from_host(matrix: PackedMatrix, _device: &Device<Self>) -> PackedWeight<Self> {
        packed::packed_from_host(matrix)
    }

    fn unpack(weight: PackedWeight<Self>) -> FloatTensor<Self> {
        packed::unpack(weight)
    }

    fn linear_packed(
        x: FloatTensor<Self>,
        weight: PackedWeight<Self>,
        bias: Option<FloatTensor<Self>>,
        residual: Option<FloatTensor<Self>>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        packed::linear_packed(x, weight, bias, residual, precision)
    }

    fn embedding_packed(table: PackedWeight<Self>, ids: IntTensor<Self>) -> FloatTensor<Self> {
        packed::embedding(table, ids)
    }

    fn embedding(table: FloatTensor<Self>, ids: IntTensor<Self>) -> FloatTensor<Self> {
        match is_f32(&[&table]) {
            true => elementwise::embedding(table, ids),
            false => <Self as ModuleOps<Self>>::embedding(table, ids),
        }
    }

    fn embedding_backward(
        table: FloatTensor<Self>,
        ids: IntTensor<Self>,
        grad: FloatTensor<Self>,
        added: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        match is_f32(&[&table, &grad]) {
            true => elementwise::embedding_backward(table, ids, grad, added),
            false => reference::embedding_backward::<Self>(table, ids, grad, added),
        }
    }

    fn scaled(x: FloatTensor<Self>, factor: FloatTensor<Self>) -> FloatTensor<Self> {
        match is_f32(&[&x, &factor]) {
            true => optimizer::scaled(x, factor),
            false => reference::scaled::<Self>(x, factor),
        }
    }

    fn sum_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
        match is_f32(&[&x]) {
            true => optimizer::sum_of_squares(x),
            false => reference::sum_of_squares::<Self>(x),
        }
    }

    fn chunk_sums_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
        match is_f32(&[&x]) {
            true => optimizer::chunk_sums_of_squares(x),
            false => reference::chunk_sums_of_squares::<Self>(x),
        }
    }

    fn rotary(
        layout: RotaryLayout,
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        match is_f32(&[&x, &cos, &sin]) {
            true => elementwise::rotary(layout, x, cos, sin),
            false => reference::rotary::<Self>(layout, x, cos, sin),
        }
    }

    fn write_tokens(
        held: FloatTensor<Self>,
        new: FloatTensor<Self>,
        start: usize,
    ) -> FloatTensor<Self> {
        match is_f32(&[&held, &new]) {
            true => cache::write_tokens(held, new, start),
            false => reference::write_tokens::<Self>(held, new, start),
        }
    }

    fn keeps_packed_weights() -> bool {
        true
    }

    fn packs_tokens() -> bool {
        true
    }

    fn zeros(shape: Shape, _device: &Device<Self>) -> FloatTensor<Self> {
        buffer::zeros(shape)
    }

    fn empty_tokens(
        shape: [usize; 4],
        format: PackedFormat,
        _device: &Device<Self>,
    ) -> PackedTokens<Self> {
        cache::empty_tokens(shape, format)
    }

    fn pack_tokens(x: FloatTensor<Self>, format: PackedFormat) -> PackedTokens<Self> {
        cache::pack_tokens(x, format)
    }

    fn unpack_tokens(tokens: PackedTokens<Self>) -> FloatTensor<Self> {
        cache::unpack_tokens(tokens)
    }

    fn write_packed_tokens(
        held: PackedTokens<Self>,
        new: PackedTokens<Self>,
        start: usize,
    ) -> PackedTokens<Self> {
        cache::write_packed_tokens(held, new, start)
    }

    fn head_loss(inputs: HeadLossInputs<Self>) -> FloatTensor<Self> {
        match head_loss::single_part(&inputs) {
            Some(weight) => head_loss::head_loss(weight, inputs),
            None => {
                let (inputs, rows) = head_loss::in_blocks(inputs);
                reference::head_loss::<Self>(inputs, rows)
            }
        }
    }

    fn head_loss_gradients(inputs: HeadLossInputs<Self>) -> HeadLossGradients<Self> {
        match head_loss::single_part(&inputs) {
            Some(weight) => head_loss::head_loss_gradients(weight, inputs),
            None => {
                let (inputs, rows) = head_loss::in_blocks(inputs);
                reference::head_loss_gradients::<Self>(inputs, rows)
            }
        }
    }

    fn head_loss_hidden_gradient(
        inputs: HeadLossInputs<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        match head_loss::single_part(&inputs) {
            Some(weight) => head_loss::head_loss_hidden_gradient(weight, inputs),
            None => {
                let made = <Self as Backend>::head_loss_gradients(inputs);
                (made.loss, made.hidden)
            }
        }
    }

    fn adamw(
        inputs: Vec<AdamWInputs<Self>>,
        factor: Option<FloatTensor<Self>>,
    ) -> Vec<AdamWOutputs<Self>> {
        let update = |of: AdamWInputs<Self>| match is_f32(&[
            &of.parameter,
            &of.grad,
            &of.moments.0,
            &of.moments.1,
        ]) {
            true => optimizer::adamw(of, factor.clone()),
            false => reference::clipped_adamw::<Self>(of, factor.clone()),
        };
        inputs.into_iter().map(update).collect()
    }
}
