//! The [`Backend`] trait: Burn's backend plus the operations that a backend may implement with its own kernels.

use burn::tensor::ops::{FloatTensor, IntTensor, ModuleOps};
use burn::tensor::{Device, FloatDType, Shape};

use crate::cpu::packed::PackedMatrix;
use crate::{
    Activation, AdamWInputs, AdamWOutputs, AttentionKernels, ColumnNormGradients, ColumnNormInputs,
    ColumnNorms, DeviceMemory, GatedGradients, HeadLossGradients, HeadLossInputs, LinearGradients,
    LinearInputs, LowRankUpdate, NormGradients, Normalization, PackedFormat, PackedTokens,
    PackedWeight, Precision, Recurrences, RotaryLayout, RowOps, VectorMemory, base_ops::usable,
    reference,
};

/// A Burn backend with the language model's operations.
///
/// Each operation has a reference implementation in plain tensor operations ([`mod@reference`]), so an `impl`
/// that only names [`reference::WholeAttention`] is a complete port. A backend overrides the operations that it
/// can do faster; overrides are tested against the reference implementation.
pub trait Backend: RowOps + Recurrences {
    /// The backend's attention. It is a type because the state between the forward and backward passes differs.
    type Attention: AttentionKernels<Self>;

    /// Runs many operations where they start fastest: on the CPU with threads that wait for the next one in a loop, because to wake
    /// them up would take longer than many an operation.
    fn run<R: Send>(operations: impl FnOnce() -> R + Send) -> R {
        operations()
    }

    /// Returns true if products on this device support `precision`. Otherwise they use f32.
    fn multiplies_in(precision: Precision, device: &Device<Self>) -> bool {
        let _ = device;
        precision == Precision::F32
    }

    /// Returns true if reading a value from the device waits for all queued operations.
    fn is_asynchronous() -> bool {
        false
    }

    /// The use of the device's own memory, or `None` if it shares the CPU's.
    fn memory(device: &Device<Self>) -> Option<DeviceMemory> {
        let _ = device;
        None
    }

    /// The largest size of a tensor on the device in bytes; `None` if only the memory limits it.
    fn largest_buffer(device: &Device<Self>) -> Option<u64> {
        let _ = device;
        None
    }

    /// The bytes of the largest intermediate result: a block's scores or logits. Larger blocks need fewer operations.
    fn block_bytes(device: &Device<Self>) -> u64 {
        let _ = device;
        reference::BLOCK_BYTES
    }

    /// The memory of a contiguous copy or the only handle of `vector`, `[n]`, once its elements are computed; `None` if
    /// the backend's memory has no addresses or the elements are not f32. See [`crate::AddressedVector`].
    fn vector_memory(vector: FloatTensor<Self>) -> Option<Box<dyn VectorMemory<Self>>> {
        let _ = vector;
        None
    }

    /// Returns `tensor`. In a backward pass, operations that use the result come before those that `x` results from.
    fn depending_on(tensor: FloatTensor<Self>, x: &FloatTensor<Self>) -> FloatTensor<Self> {
        let _ = x;
        tensor
    }

    /// `a b` over the last two dimensions. The others are equal, or 1 in one of the operands.
    fn matmul(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::float_matmul(a, b)
    }

    /// [`Backend::matmul`] with a result of type `kind`, to which a backend may round the sums without rounding them to the
    /// operands' type before.
    fn matmul_to(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        kind: FloatDType,
    ) -> FloatTensor<Self> {
        Self::float_cast(<Self as Backend>::matmul(a, b), kind)
    }

    /// `f(x)`, elementwise.
    fn activation(kind: Activation, x: FloatTensor<Self>) -> FloatTensor<Self> {
        reference::activation::<Self>(kind, x)
    }

    /// [`Backend::activation`], plus the tensor that its backward pass needs: `x`, or another tensor of the same
    /// shape that makes the backward pass faster.
    fn activation_training(
        kind: Activation,
        x: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        (Self::activation(kind, x.clone()), x)
    }

    /// `f'(x) · grad`, elementwise. `kept` is the second result of [`Backend::activation_training`].
    fn activation_backward(
        kind: Activation,
        kept: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        reference::activation_backward::<Self>(kind, kept, grad)
    }

    /// `f(gate) · up`, elementwise; both have the same shape.
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

    /// `gain · normalized(x) + bias` over the last dimension of `x`, of any shape. `gain` and `bias` have the
    /// length of that dimension.
    fn normalize(
        kind: Normalization,
        x: FloatTensor<Self>,
        gain: Option<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        reference::normalize::<Self>(kind, x, gain, bias)
    }

    /// The gradients of [`Backend::normalize`] from its input and the gradient of its output. `added` is the
    /// gradient of `x` from other operations, and is added to the result. The gain's gradient is computed if
    /// there is a gain, and the bias's gradient if `bias` is true.
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

    /// [`Backend::normalize`] of each group of columns; the other columns stay as they are. The inputs and the output have the
    /// shape `[…, width]`.
    fn normalize_columns(norms: ColumnNorms, inputs: ColumnNormInputs<Self>) -> FloatTensor<Self> {
        reference::normalize_columns::<Self>(norms, inputs, Self::normalize)
    }

    /// The gradients of [`Backend::normalize_columns`] from its inputs and the gradient of its output.
    fn normalize_columns_backward(
        norms: ColumnNorms,
        inputs: ColumnNormInputs<Self>,
        grad: FloatTensor<Self>,
    ) -> ColumnNormGradients<Self> {
        reference::normalize_columns_backward::<Self>(norms, inputs, grad, |x, gain, bias, grad| {
            Self::normalize_backward(norms.kind, x, gain, bias, grad, None)
        })
    }

    /// `residual + x W + b`: `x` `[…, in]`, `W` `[in, out]`, `b` `[out]`, `residual` and output `[…, out]`.
    fn linear(inputs: LinearInputs<Self>, precision: Precision) -> FloatTensor<Self> {
        let precision = usable::<Self>(precision, &inputs.x);
        reference::linear::<Self>(inputs, precision)
    }

    /// [`Backend::linear`], plus `x` and `W` for its backward pass: the same, or rounded to `precision`.
    fn linear_training(
        inputs: LinearInputs<Self>,
        precision: Precision,
    ) -> (FloatTensor<Self>, [FloatTensor<Self>; 2]) {
        let kept = [inputs.x.clone(), inputs.weight.clone()];
        (<Self as Backend>::linear(inputs, precision), kept)
    }

    /// `f(residual + x W + b)`: [`Backend::activation`] of [`Backend::linear`].
    fn linear_activation(
        kind: Activation,
        inputs: LinearInputs<Self>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        Self::activation(kind, <Self as Backend>::linear(inputs, precision))
    }

    /// `f(x Wg + bg) · (x W + b)`: [`Backend::gated`] of two layers with the same input. They have no residual.
    fn gated_linear(
        kind: Activation,
        gate: LinearInputs<Self>,
        up: LinearInputs<Self>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        let [gate, up] = [gate, up].map(|of| <Self as Backend>::linear(of, precision));
        <Self as Backend>::gated(kind, gate, up)
    }

    /// The gradients of [`Backend::linear`] that `wanted` requests, in the order `x`, `W`, `b`, of the type of `grad`. With
    /// `g` the gradient of the output, they are `g Wᵀ`, `xᵀ g` and `Σ g`. `x` and `weight` are those that
    /// [`Backend::linear_training`] returns. `added` is the gradient of `x` from other operations, and is added to the
    /// result.
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

    /// `y + x A B` with other factors A and B for other rows: `x` `[…, in]`, `y` and output `[…, out]`. The updates' rows are
    /// disjoint and in ascending order; other rows of `y` stay as they are.
    fn add_low_rank(
        y: FloatTensor<Self>,
        x: FloatTensor<Self>,
        updates: Vec<LowRankUpdate<Self>>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        let precision = usable::<Self>(precision, &x);
        reference::add_low_rank::<Self>(y, x, updates, precision)
    }

    /// Packs a weight `[out, in]`. Elements are rounded to the nearest value of their block. A block with a non-finite one
    /// unpacks to non-finite values only.
    fn pack(weight: FloatTensor<Self>, format: PackedFormat) -> PackedWeight<Self> {
        let device = Self::float_device(&weight);
        Self::packed_from_host(reference::pack_on_host::<Self>(weight, format), &device)
    }

    /// Copies a packed weight from the host's memory, byte for byte.
    fn packed_from_host(matrix: PackedMatrix, device: &Device<Self>) -> PackedWeight<Self> {
        reference::packed_from_host::<Self>(matrix, device)
    }

    /// Unpacks a weight to f32, `[out, in]`.
    fn unpack(weight: PackedWeight<Self>) -> FloatTensor<Self> {
        reference::unpack::<Self>(weight)
    }

    /// `residual + x Wᵀ + b` with a packed `W` `[out, in]`, which receives no gradient, in contrast to the other operands.
    ///
    /// `flex` rounds x to 8 bits per 32 elements, if W is in blocks of integers. Other products are those of W in f32, whose
    /// factors are rounded to `precision`: GPUs multiply up to 32 rows with the packed weight in f32, and unpack it for more;
    /// `flex` multiplies up to 2 rows in f32.
    fn linear_packed(
        x: FloatTensor<Self>,
        weight: PackedWeight<Self>,
        bias: Option<FloatTensor<Self>>,
        residual: Option<FloatTensor<Self>>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        let precision = usable::<Self>(precision, &x);
        reference::linear_packed::<Self>(x, weight, bias, residual, precision)
    }

    /// `f(x Wᵀ + b)`: [`Backend::activation`] of [`Backend::linear_packed`].
    fn linear_packed_activation(
        kind: Activation,
        x: FloatTensor<Self>,
        weight: PackedWeight<Self>,
        bias: Option<FloatTensor<Self>>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        let y = Self::linear_packed(x, weight, bias, None, precision);
        Self::activation(kind, y)
    }

    /// [`Backend::embedding`] of a packed table. It receives no gradient.
    fn embedding_packed(table: PackedWeight<Self>, ids: IntTensor<Self>) -> FloatTensor<Self> {
        <Self as Backend>::embedding(Self::unpack(table), ids)
    }

    /// Selects rows of `table` `[vocab_size, d_model]`: `ids` `[batch, seq]` to `[batch, seq, d_model]`.
    fn embedding(table: FloatTensor<Self>, ids: IntTensor<Self>) -> FloatTensor<Self> {
        <Self as ModuleOps<Self>>::embedding(table, ids)
    }

    /// The gradient of `table` in [`Backend::embedding`]: each row of `grad` is added to the row of its id.
    /// `added` is the gradient of the table from other operations, and is added to the result.
    fn embedding_backward(
        table: FloatTensor<Self>,
        ids: IntTensor<Self>,
        grad: FloatTensor<Self>,
        added: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        reference::embedding_backward::<Self>(table, ids, grad, added)
    }

    /// `x` times `factor` `[1]`.
    fn scaled(x: FloatTensor<Self>, factor: FloatTensor<Self>) -> FloatTensor<Self> {
        reference::scaled::<Self>(x, factor)
    }

    /// `Σ x²`, `[1]`.
    fn sum_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
        reference::sum_of_squares::<Self>(x)
    }

    /// `Σ x²` over the elements of all tensors, `[1]`; `None` without tensors.
    fn total_sum_of_squares(tensors: Vec<FloatTensor<Self>>) -> Option<FloatTensor<Self>> {
        let sums = tensors.into_iter().map(Self::sum_of_squares);
        sums.reduce(Self::float_add)
    }

    /// `Σ x²` of each chunk of [`crate::SQUARES_CHUNK`] consecutive elements of a vector `[n]`, the last of which may be
    /// shorter: `[chunks]`. Their sum in order and in f64 has the bits of [`Backend::sum_of_squares`] on flex, also if the
    /// vector was cut between two chunks.
    fn chunk_sums_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
        reference::chunk_sums_of_squares::<Self>(x)
    }

    /// Rotates the first `2 · pairs` elements of each head of `x` `[batch, heads, seq, head_dim]` by the angles
    /// with these cosines and sines, `[seq, pairs]`. The remaining elements stay unchanged. With `-sin`, the
    /// operation is its own inverse and its backward pass.
    fn rotary(
        layout: RotaryLayout,
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        reference::rotary::<Self>(layout, x, cos, sin)
    }

    /// Writes `new` `[batch, kv_heads, seq, head_dim]` to the keys or values of a cache, `held`
    /// `[batch, kv_heads, capacity, head_dim]`, starting at token `start`.
    fn write_tokens(
        held: FloatTensor<Self>,
        new: FloatTensor<Self>,
        start: usize,
    ) -> FloatTensor<Self> {
        reference::write_tokens::<Self>(held, new, start)
    }

    /// Returns true if packed weights stay packed, as on `flex` and GPUs. A backend that does not implement the packed
    /// operations unpacks them to f32.
    fn keeps_packed_weights() -> bool {
        false
    }

    /// Returns true if packed keys and values take fewer bytes than in f32. A backend that does not implement the packed
    /// operations holds the rounded values in f32.
    fn packs_tokens() -> bool {
        false
    }

    /// A tensor of zeros in f32. Where the system gives memory that is already zero, its pages take no memory before they are
    /// written, as those of a cache for more tokens than there will be.
    fn zeros(shape: Shape, device: &Device<Self>) -> FloatTensor<Self> {
        Self::float_zeros(shape, device, FloatDType::F32)
    }

    /// The keys or values of an empty cache, `[batch, kv_heads, capacity, head_dim]`, all 0. The format must support
    /// vectors of `head_dim` elements ([`PackedFormat::check_columns`]).
    fn empty_tokens(
        shape: [usize; 4],
        format: PackedFormat,
        device: &Device<Self>,
    ) -> PackedTokens<Self> {
        reference::empty_tokens::<Self>(shape, format, device)
    }

    /// Packs keys or values `[batch, kv_heads, seq, head_dim]`, each vector as a row of the format.
    fn pack_tokens(x: FloatTensor<Self>, format: PackedFormat) -> PackedTokens<Self> {
        reference::pack_tokens::<Self>(x, format)
    }

    /// Unpacks keys or values to f32, `[batch, kv_heads, seq, head_dim]`.
    fn unpack_tokens(tokens: PackedTokens<Self>) -> FloatTensor<Self> {
        reference::unpack_tokens::<Self>(tokens)
    }

    /// [`Backend::write_tokens`] of packed tokens to a cache of the same format.
    fn write_packed_tokens(
        held: PackedTokens<Self>,
        new: PackedTokens<Self>,
        start: usize,
    ) -> PackedTokens<Self> {
        reference::write_packed_tokens::<Self>(held, new, start)
    }

    /// The summed cross-entropy of `logits = hidden · weightᵀ`, without materializing all logits at once, `[1]`.
    fn head_loss(inputs: HeadLossInputs<Self>) -> FloatTensor<Self> {
        let (inputs, rows) = reference::in_blocks::<Self>(inputs);
        reference::head_loss::<Self>(inputs, rows)
    }

    /// [`Backend::head_loss`] and its gradients, computed in the same pass.
    fn head_loss_gradients(inputs: HeadLossInputs<Self>) -> HeadLossGradients<Self> {
        let (inputs, rows) = reference::in_blocks::<Self>(inputs);
        reference::head_loss_gradients::<Self>(inputs, rows)
    }

    /// [`Backend::head_loss`] and its gradient of the hidden states, for weights that are not trained.
    fn head_loss_hidden_gradient(
        inputs: HeadLossInputs<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let made = <Self as Backend>::head_loss_gradients(inputs);
        (made.loss, made.hidden)
    }

    /// The terms of [`Backend::head_loss`], one for each token, `[tokens]`; 0 for an ignored target.
    fn head_losses(inputs: HeadLossInputs<Self>) -> FloatTensor<Self> {
        let (inputs, rows) = reference::in_blocks::<Self>(inputs);
        reference::head_losses::<Self>(inputs, rows)
    }

    /// The gradients of [`Backend::head_losses`], from those of its result, `grads` `[tokens]`. The logits are computed
    /// again, block by block. Without `trains_weights`, those of the weights are left out.
    fn head_losses_backward(
        inputs: HeadLossInputs<Self>,
        grads: FloatTensor<Self>,
        trains_weights: bool,
    ) -> HeadLossGradients<Self> {
        let (inputs, rows) = reference::in_blocks::<Self>(inputs);
        reference::head_losses_backward::<Self>(inputs, grads, trains_weights, rows)
    }

    /// An AdamW update of each parameter with its gradient times `factor` `[1]`, in order. A negative factor leaves parameters
    /// and moments as they are.
    fn adamw(
        inputs: Vec<AdamWInputs<Self>>,
        factor: Option<FloatTensor<Self>>,
    ) -> Vec<AdamWOutputs<Self>> {
        let update = |of| reference::clipped_adamw::<Self>(of, factor.clone());
        inputs.into_iter().map(update).collect()
    }
}
