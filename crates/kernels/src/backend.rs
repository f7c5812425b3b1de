//! The trait: Burn's backend and the operations that this project may do better than composed ones.

use burn::tensor::backend::{AutodiffBackend, Backend as BurnBackend};
use burn::tensor::ops::{FloatTensor, IntTensor, ModuleOps};
use burn::tensor::{Device, TensorMetadata};

use crate::cpu::packed::PackedMatrix;
use crate::{
    Activation, AdamWStep, AddRowsGradients, AttentionKernels, AttentionOptions, DeviceMemory,
    GatedGradients, HeadLossGradients, HeadLossOptions, LinearGradients, LinearInputs,
    NormGradients, Normalization, PackedFormat, PackedWeight, Precision, RotaryLayout,
    SelfAttention, reference,
};

/// A Burn backend with the language model's operations.
///
/// Each has a reference implementation of plain tensor operations ([`mod@reference`]): an `impl` that names [`reference::WholeAttention`]
/// is a complete port. A backend overrides an operation that it can do faster, and is then tested against the reference implementation.
pub trait Backend: BurnBackend {
    /// Its attention: a type, since the state between the forward and the backward pass differs.
    type Attention: AttentionKernels<Self>;

    /// Runs many operations in a row where they start fastest: on the CPU, on one of the threads that
    /// work is spread over, so that no thread waits for another to be woken up at each of them.
    fn run<R: Send>(operations: impl FnOnce() -> R + Send) -> R {
        operations()
    }

    /// Returns true if products are made in this precision on this device when it is asked for; in f32 otherwise.
    fn multiplies_in(precision: Precision, device: &Device<Self>) -> bool {
        let _ = device;
        precision == Precision::F32
    }

    /// Returns true if the device works behind the host, so that reading a number from it waits for all that it was asked for.
    fn works_behind() -> bool {
        false
    }

    /// The use of the device's own memory; none where that is the CPU's.
    fn memory(device: &Device<Self>) -> Option<DeviceMemory> {
        let _ = device;
        None
    }

    /// The most bytes that one tensor may take on the device, which may be less than all of its memory; `None` if only its
    /// memory bounds it.
    fn largest_buffer(device: &Device<Self>) -> Option<u64> {
        let _ = device;
        None
    }

    /// `a b` over the last two dimensions; the others are equal, or 1 in one of the two.
    fn matmul(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::float_matmul(a, b)
    }

    /// `f(x)`, elementwise.
    fn activation(kind: Activation, x: FloatTensor<Self>) -> FloatTensor<Self> {
        reference::activation::<Self>(kind, x)
    }

    /// [`Backend::activation`], and what its backward pass takes: `x`, or another tensor of its shape that is faster to use there.
    fn activation_training(
        kind: Activation,
        x: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        (Self::activation(kind, x.clone()), x)
    }

    /// `f'(x) · grad`, elementwise; `kept` is from [`Backend::activation_training`].
    fn activation_backward(
        kind: Activation,
        kept: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        reference::activation_backward::<Self>(kind, kept, grad)
    }

    /// `f(gate) · up`, elementwise, of one shape.
    fn gated(
        kind: Activation,
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        reference::gated::<Self>(kind, gate, up)
    }

    /// The gradients of [`Backend::gated`] from its inputs and its output's gradient.
    fn gated_backward(
        kind: Activation,
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> GatedGradients<Self> {
        reference::gated_backward::<Self>(kind, gate, up, grad)
    }

    /// `gain · normalised(x) + bias` over the last dimension of `x`, of any shape; `gain` and `bias` are as long as that.
    fn normalize(
        kind: Normalization,
        x: FloatTensor<Self>,
        gain: Option<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        reference::normalize::<Self>(kind, x, gain, bias)
    }

    /// The gradients of [`Backend::normalize`] from its input and its output's gradient. `added` is what else flows into
    /// `x`: it is added to `x`'s gradient. There is a gradient of the gain where there is a gain, and one of the bias where
    /// `bias` says so.
    fn normalize_backward(
        kind: Normalization,
        x: FloatTensor<Self>,
        gain: Option<FloatTensor<Self>>,
        bias: bool,
        grad: FloatTensor<Self>,
        added: Option<FloatTensor<Self>>,
    ) -> NormGradients<Self> {
        reference::normalize_backward::<Self>(kind, x, gain, bias, grad, added)
    }

    /// `residual + x W + b`: `x` `[…, in]`, `W` `[in, out]`, `b` `[out]`, the rest `[…, out]`.
    fn linear(inputs: LinearInputs<Self>, precision: Precision) -> FloatTensor<Self> {
        let precision = usable::<Self>(precision, &inputs.x);
        reference::linear::<Self>(inputs, precision)
    }

    /// The gradients of [`Backend::linear`] by `x`, if `input` asks for it, `W`, and `b`, if `bias` does: with `g` the output's,
    /// `g Wᵀ`, `xᵀ g` and `Σ g`. `added` is what else flows into `x`: it is added to `x`'s gradient.
    fn linear_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        added: Option<FloatTensor<Self>>,
        wanted: [bool; 3],
        precision: Precision,
    ) -> LinearGradients<Self> {
        let precision = usable::<Self>(precision, &x);
        reference::linear_backward::<Self>(x, weight, grad, added, wanted, precision)
    }

    /// A weight `[out, in]` in a packed format, each weight rounded to the nearest that its block can hold. A block that is not
    /// finite unpacks to nothing finite.
    fn pack(weight: FloatTensor<Self>, format: PackedFormat) -> PackedWeight<Self> {
        reference::pack::<Self>(weight, format)
    }

    /// A packed weight from the host's memory, byte for byte.
    fn packed_from_host(matrix: PackedMatrix, device: &Device<Self>) -> PackedWeight<Self> {
        reference::packed_from_host::<Self>(matrix, device)
    }

    /// The weight `[out, in]` that a packed one stands for.
    fn unpack(weight: PackedWeight<Self>) -> FloatTensor<Self> {
        reference::unpack::<Self>(weight)
    }

    /// `residual + x Wᵀ + b` with `W` `[out, in]` packed; `x` and sums stay as they are. A gradient reaches `x`, `b` and
    /// `residual`, and not the weight.
    fn linear_packed(
        x: FloatTensor<Self>,
        weight: PackedWeight<Self>,
        bias: Option<FloatTensor<Self>>,
        residual: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let weight = Self::float_swap_dims(Self::unpack(weight), 0, 1); // [in, out]
        let inputs = LinearInputs {
            x,
            weight,
            bias,
            residual,
        };
        <Self as Backend>::linear(inputs, Precision::F32)
    }

    /// Rows of `table` `[vocab_size, d_model]`: `ids` `[batch, seq]` to `[batch, seq, d_model]`.
    fn embedding(table: FloatTensor<Self>, ids: IntTensor<Self>) -> FloatTensor<Self> {
        <Self as ModuleOps<Self>>::embedding(table, ids)
    }

    /// The gradient of [`Backend::embedding`] by `table`: `grad`'s rows, each added to its id's. `added` is what else flows
    /// into the table.
    fn embedding_backward(
        table: FloatTensor<Self>,
        ids: IntTensor<Self>,
        grad: FloatTensor<Self>,
        added: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        reference::embedding_backward::<Self>(table, ids, grad, added)
    }

    /// `base` `[rows, width]` with `weights[i] · x[i]` added to its row `ids[i]`: `x` `[tokens, width]`, `weights` and `ids`
    /// `[tokens]`. The ids ascend, so that none occurs twice.
    fn add_rows(
        base: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        ids: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        reference::add_rows::<Self>(base, x, weights, ids)
    }

    /// The gradients of [`Backend::add_rows`] by `x` and `weights` from its output's, which is also the gradient of `base`.
    fn add_rows_backward(
        x: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        ids: IntTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> AddRowsGradients<Self> {
        reference::add_rows_backward::<Self>(x, weights, ids, grad)
    }

    /// `x` times `factor` `[1]`.
    fn scaled(x: FloatTensor<Self>, factor: FloatTensor<Self>) -> FloatTensor<Self> {
        reference::scaled::<Self>(x, factor)
    }

    /// `Σ x²`, `[1]`.
    fn sum_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
        reference::sum_of_squares::<Self>(x)
    }

    /// Rotates the first `2 · pairs` elements of each head of `x` `[batch, heads, seq, head_dim]` by the angles whose
    /// cosines and sines are `[seq, pairs]`; the rest passes. With `-sin` it is its own inverse and its backward.
    fn rotary(
        layout: RotaryLayout,
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        reference::rotary::<Self>(layout, x, cos, sin)
    }

    /// A cache's keys or values `held` `[batch, kv_heads, capacity, head_dim]` with `new` `[batch, kv_heads, seq, head_dim]` in
    /// the place of the tokens from `start` on.
    fn write_tokens(
        held: FloatTensor<Self>,
        new: FloatTensor<Self>,
        start: usize,
    ) -> FloatTensor<Self> {
        reference::write_tokens::<Self>(held, new, start)
    }

    /// The summed cross-entropy of `logits = hidden · weightᵀ` against `targets`, without holding all logits at once:
    /// `hidden` `[tokens, d_model]`, the weight `[vocab_size, d_model]` whole or in parts of consecutive rows, at least one,
    /// `targets` `[tokens]`, those below 0 ignored; the loss is `[1]`. The options may add terms to it.
    fn head_loss(
        hidden: FloatTensor<Self>,
        weights: Vec<FloatTensor<Self>>,
        targets: IntTensor<Self>,
        options: HeadLossOptions,
        precision: Precision,
    ) -> FloatTensor<Self> {
        let precision = usable::<Self>(precision, &hidden);
        let rows = reference::rows_per_block(weights.iter().map(|part| part.shape()[0]).sum());
        reference::head_loss::<Self>(hidden, weights, targets, options, rows, precision)
    }

    /// [`Backend::head_loss`] with its gradients, from the same pass.
    fn head_loss_gradients(
        hidden: FloatTensor<Self>,
        weights: Vec<FloatTensor<Self>>,
        targets: IntTensor<Self>,
        options: HeadLossOptions,
        precision: Precision,
    ) -> HeadLossGradients<Self> {
        let precision = usable::<Self>(precision, &hidden);
        let rows = reference::rows_per_block(weights.iter().map(|part| part.shape()[0]).sum());
        reference::head_loss_gradients::<Self>(hidden, weights, targets, options, rows, precision)
    }

    /// One AdamW update: `(parameter, moment1, moment2)` after it. The gradient is multiplied by `factor` `[1]` first.
    fn adamw(
        parameter: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        moments: (FloatTensor<Self>, FloatTensor<Self>),
        factor: Option<FloatTensor<Self>>,
        step: AdamWStep,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        reference::clipped_adamw::<Self>(parameter, grad, moments, factor, step)
    }
}

/// The precision where the device of `x` multiplies in it, f32 where it does not.
pub(crate) fn usable<B: Backend>(precision: Precision, x: &FloatTensor<B>) -> Precision {
    match B::multiplies_in(precision, &B::float_device(x)) {
        true => precision,
        false => Precision::F32,
    }
}

impl AttentionOptions {
    /// The same in a precision that the device of `x` multiplies in.
    pub(crate) fn usable<B: Backend>(self, x: &FloatTensor<B>) -> Self {
        let precision = usable::<B>(self.precision, x);
        Self { precision, ..self }
    }
}

impl SelfAttention {
    /// The same in a precision that the device of `x` multiplies in.
    pub(crate) fn usable<B: Backend>(self, x: &FloatTensor<B>) -> Self {
        let options = self.options.usable::<B>(x);
        Self { options, ..self }
    }
}

/// A backend that training runs on: [`Backend`] itself, with automatic differentiation over an inner [`Backend`].
pub trait TrainingBackend: Backend + AutodiffBackend<InnerBackend: Backend> {}

impl<B> TrainingBackend for B where B: Backend + AutodiffBackend<InnerBackend: Backend> {}
