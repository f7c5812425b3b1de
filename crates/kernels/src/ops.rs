//! The operations on typed tensors, as called by the model.

mod attention;
mod recurrence;

use std::ops::Range;

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Int, Tensor, TensorPrimitive};

use crate::cpu::packed::PackedMatrix;
use crate::reference::table_parts::part_rows;
use crate::{
    Activation, AdamWInputs, AdamWOutputs, AdamWStep, Backend, ColumnNormInputs, ColumnNorms,
    HeadLossInputs, HeadLossOptions, LinearInputs, LowRankUpdate, Normalization, PackedFormat,
    PackedTokens, PackedWeight, Precision, RotaryLayout, TrainingBackend,
};

pub use attention::{
    Angles, attention, attention_packed, attention_weights, cached_attention, linear_attention,
    linear_attention_weights, self_attention,
};
pub use recurrence::{gated_delta_rule, short_convolution, softplus};

fn float<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

fn tensor<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// [`Backend::matmul`]: `a b` over the last two dimensions.
pub fn matmul<B: Backend, const D: usize>(a: Tensor<B, D>, b: Tensor<B, D>) -> Tensor<B, D> {
    tensor(B::matmul(float(a), float(b)))
}

/// [`Backend::activation`] of a tensor of any shape.
pub fn activation<B: Backend, const D: usize>(kind: Activation, x: Tensor<B, D>) -> Tensor<B, D> {
    tensor(B::activation(kind, float(x)))
}

/// [`Backend::gated`]: `f(gate) · up`, for any shape.
pub fn gated<B: Backend, const D: usize>(
    kind: Activation,
    gate: Tensor<B, D>,
    up: Tensor<B, D>,
) -> Tensor<B, D> {
    tensor(B::gated(kind, float(gate), float(up)))
}

/// [`Backend::normalize`] over the last dimension of any shape.
pub fn normalize<B: Backend, const D: usize>(
    kind: Normalization,
    x: Tensor<B, D>,
    gain: Option<Tensor<B, 1>>,
    bias: Option<Tensor<B, 1>>,
) -> Tensor<B, D> {
    tensor(B::normalize(
        kind,
        float(x),
        gain.map(float),
        bias.map(float),
    ))
}

/// [`Backend::normalize_columns`] of `[…, width]`; gains and biases are those of each set of groups.
pub fn normalize_columns<B: Backend, const D: usize>(
    norms: ColumnNorms,
    x: Tensor<B, D>,
    gains: Option<[Tensor<B, 1>; 2]>,
    biases: Option<[Tensor<B, 1>; 2]>,
) -> Tensor<B, D> {
    let inputs = ColumnNormInputs {
        x: float(x),
        gains: gains.map(|gains| gains.map(float)),
        biases: biases.map(|biases| biases.map(float)),
    };
    tensor(B::normalize_columns(norms, inputs))
}

/// [`Backend::linear`]: `residual + x W + b`, `x` `[…, in]`, `weight` `[in, out]`.
pub fn linear<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
    residual: Option<Tensor<B, D>>,
    precision: Precision,
) -> Tensor<B, D> {
    let inputs = LinearInputs {
        x: float(x),
        weight: float(weight),
        bias: bias.map(float),
        residual: residual.map(float),
    };
    tensor(<B as Backend>::linear(inputs, precision))
}

/// [`Backend::linear_activation`]: `f(x W + b)`, `x` `[…, in]`, `weight` `[in, out]`.
pub fn linear_activation<B: Backend, const D: usize>(
    kind: Activation,
    x: Tensor<B, D>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
    precision: Precision,
) -> Tensor<B, D> {
    let inputs = LinearInputs {
        x: float(x),
        weight: float(weight),
        bias: bias.map(float),
        residual: None,
    };
    tensor(B::linear_activation(kind, inputs, precision))
}

/// [`Backend::gated_linear`]: `f(x Wg + bg) · (x W + b)`, `x` `[…, in]`, weights `[in, out]` with their biases.
pub fn gated_linear<B: Backend, const D: usize>(
    kind: Activation,
    x: Tensor<B, D>,
    gate: (Tensor<B, 2>, Option<Tensor<B, 1>>),
    up: (Tensor<B, 2>, Option<Tensor<B, 1>>),
    precision: Precision,
) -> Tensor<B, D> {
    let [gate, up] = [gate, up].map(|(weight, bias)| LinearInputs {
        x: float(x.clone()),
        weight: float(weight),
        bias: bias.map(float),
        residual: None,
    });
    tensor(B::gated_linear(kind, gate, up, precision))
}

/// [`Backend::linear_packed_activation`]: `f(x Wᵀ + b)`, `x` `[…, in]`, `weight` `[out, in]`.
pub fn linear_packed_activation<B: Backend, const D: usize>(
    kind: Activation,
    x: Tensor<B, D>,
    weight: PackedWeight<B>,
    bias: Option<Tensor<B, 1>>,
    precision: Precision,
) -> Tensor<B, D> {
    let (x, bias) = (float(x), bias.map(float));
    tensor(B::linear_packed_activation(
        kind, x, weight, bias, precision,
    ))
}

/// [`Backend::add_low_rank`]: `x` `[…, in]`, `y` `[…, out]`, and for each update its rows with A `[in, rank]` and B
/// `[rank, out]`.
pub fn add_low_rank<B: Backend, const D: usize>(
    y: Tensor<B, D>,
    x: Tensor<B, D>,
    updates: Vec<(Range<usize>, Tensor<B, 2>, Tensor<B, 2>)>,
    precision: Precision,
) -> Tensor<B, D> {
    let updates = updates.into_iter().map(|(rows, a, b)| LowRankUpdate {
        rows,
        a: float(a),
        b: float(b),
    });
    tensor(B::add_low_rank(
        float(y),
        float(x),
        updates.collect(),
        precision,
    ))
}

/// [`Backend::pack`]: `weight` `[out, in]`.
pub fn pack<B: Backend>(weight: Tensor<B, 2>, format: PackedFormat) -> PackedWeight<B> {
    B::pack(float(weight), format)
}

/// [`Backend::packed_from_host`].
pub fn packed_from_host<B: Backend>(matrix: PackedMatrix, device: &Device<B>) -> PackedWeight<B> {
    B::packed_from_host(matrix, device)
}

/// [`Backend::unpack`]: `[out, in]`.
pub fn unpack<B: Backend>(weight: PackedWeight<B>) -> Tensor<B, 2> {
    tensor(B::unpack(weight))
}

/// [`Backend::embedding_packed`]: selects rows of `table` `[vocab_size, d_model]`, `[batch, seq]` to
/// `[batch, seq, d_model]`.
pub fn embedding_packed<B: Backend>(
    table: PackedWeight<B>,
    ids: Tensor<B, 2, Int>,
) -> Tensor<B, 3> {
    tensor(B::embedding_packed(table, ids.into_primitive()))
}

/// [`Backend::linear_packed`]: `residual + x Wᵀ + b`, `x` `[…, in]`, `W` `[out, in]`.
pub fn linear_packed<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: PackedWeight<B>,
    bias: Option<Tensor<B, 1>>,
    residual: Option<Tensor<B, D>>,
    precision: Precision,
) -> Tensor<B, D> {
    let (x, bias, residual) = (float(x), bias.map(float), residual.map(float));
    tensor(B::linear_packed(x, weight, bias, residual, precision))
}

/// [`Backend::embedding`]: selects rows of `table` `[vocab_size, d_model]`, `[batch, seq]` to
/// `[batch, seq, d_model]`.
pub fn embedding<B: Backend>(table: Tensor<B, 2>, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
    tensor(<B as Backend>::embedding(
        float(table),
        ids.into_primitive(),
    ))
}

/// [`crate::RowOps::add_gated_columns`]: `x` `[…, width]`, `gates` `[…, groups]`, `added` `[…, columns]`.
pub fn add_gated_columns<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    gates: Tensor<B, D>,
    added: Tensor<B, D>,
) -> Tensor<B, D> {
    tensor(B::add_gated_columns(float(x), float(gates), float(added)))
}

/// [`crate::RowOps::add_rows`]: `base` `[rows, width]`, `x` `[tokens, width]`, `weights` and ascending `ids` `[tokens]`.
pub fn add_rows<B: Backend>(
    base: Tensor<B, 2>,
    x: Tensor<B, 2>,
    weights: Tensor<B, 1>,
    ids: Tensor<B, 1, Int>,
) -> Tensor<B, 2> {
    tensor(B::add_rows(
        float(base),
        float(x),
        float(weights),
        ids.into_primitive(),
    ))
}

/// [`Backend::sum_of_squares`] of a tensor of any shape, `[1]`.
pub fn sum_of_squares<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, 1> {
    tensor(B::sum_of_squares(float(x)))
}

/// [`Backend::total_sum_of_squares`] of primitives, `[1]`.
pub fn total_sum_of_squares<B: Backend>(tensors: Vec<FloatTensor<B>>) -> Option<Tensor<B, 1>> {
    B::total_sum_of_squares(tensors).map(tensor)
}

/// [`Backend::chunk_sums_of_squares`]: `x` `[n]`.
pub fn chunk_sums_of_squares<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    tensor(B::chunk_sums_of_squares(float(x)))
}

/// [`Backend::rotary`]: `x` `[batch, heads, seq, head_dim]`, `cos` and `sin` `[seq, pairs]`.
pub fn rotary<B: Backend>(
    layout: RotaryLayout,
    x: Tensor<B, 4>,
    cos: Tensor<B, 2>,
    sin: Tensor<B, 2>,
) -> Tensor<B, 4> {
    tensor(B::rotary(layout, float(x), float(cos), float(sin)))
}

/// [`Backend::write_tokens`]: `held` `[batch, kv_heads, capacity, head_dim]`, `new` `[batch, kv_heads, seq, head_dim]`.
pub fn write_tokens<B: Backend>(
    held: Tensor<B, 4>,
    new: Tensor<B, 4>,
    start: usize,
) -> Tensor<B, 4> {
    tensor(B::write_tokens(float(held), float(new), start))
}

/// [`Backend::zeros`].
pub fn zeros<B: Backend, const D: usize>(shape: [usize; D], device: &Device<B>) -> Tensor<B, D> {
    tensor(B::zeros(shape.into(), device))
}

/// [`Backend::empty_tokens`]: `[batch, kv_heads, capacity, head_dim]`.
pub fn empty_tokens<B: Backend>(
    shape: [usize; 4],
    format: PackedFormat,
    device: &Device<B>,
) -> PackedTokens<B> {
    B::empty_tokens(shape, format, device)
}

/// [`Backend::pack_tokens`] of `[batch, kv_heads, seq, head_dim]`.
pub fn pack_tokens<B: Backend>(x: Tensor<B, 4>, format: PackedFormat) -> PackedTokens<B> {
    B::pack_tokens(float(x), format)
}

/// [`Backend::unpack_tokens`] to `[batch, kv_heads, seq, head_dim]`.
pub fn unpack_tokens<B: Backend>(tokens: PackedTokens<B>) -> Tensor<B, 4> {
    tensor(B::unpack_tokens(tokens))
}

/// [`Backend::write_packed_tokens`]: [`write_tokens`] of packed tokens.
pub fn write_packed_tokens<B: Backend>(
    held: PackedTokens<B>,
    new: PackedTokens<B>,
    start: usize,
) -> PackedTokens<B> {
    B::write_packed_tokens(held, new, start)
}

/// [`Backend::head_loss`] with the weight in one or more parts: the sum over the tokens whose target is not
/// negative, `[1]`.
pub fn head_loss<B: Backend>(
    hidden: Tensor<B, 2>,
    weights: Vec<Tensor<B, 2>>,
    targets: Tensor<B, 1, Int>,
    options: HeadLossOptions,
    precision: Precision,
) -> Tensor<B, 1> {
    tensor(B::head_loss(HeadLossInputs {
        hidden: float(hidden),
        weights: weights.into_iter().map(float).collect(),
        targets: targets.into_primitive(),
        options,
        precision,
    }))
}

/// [`Backend::head_losses`]: the losses of the tokens, `[tokens]`; 0 for a negative target.
pub fn head_losses<B: Backend>(
    hidden: Tensor<B, 2>,
    weights: Vec<Tensor<B, 2>>,
    targets: Tensor<B, 1, Int>,
    options: HeadLossOptions,
    precision: Precision,
) -> Tensor<B, 1> {
    tensor(B::head_losses(HeadLossInputs {
        hidden: float(hidden),
        weights: weights.into_iter().map(float).collect(),
        targets: targets.into_primitive(),
        options,
        precision,
    }))
}

/// [`Backend::depending_on`]: `tensor`, whose uses come before `x` in a backward pass.
pub fn depending_on<B: Backend, const D: usize, const E: usize>(
    tensor: Tensor<B, D>,
    x: &Tensor<B, E>,
) -> Tensor<B, D> {
    self::tensor(B::depending_on(float(tensor), &float(x.clone())))
}

/// [`TrainingBackend::gradient_hook`]: `x`, with a hook that takes the gradients of `taken` in the backward pass.
pub fn gradient_hook<B: TrainingBackend, const D: usize>(
    x: Tensor<B, D>,
    taken: &[FloatTensor<B>],
    hook: impl FnOnce(Vec<Option<FloatTensor<B::InnerBackend>>>) + Send + 'static,
) -> Tensor<B, D> {
    tensor(B::gradient_hook(float(x), taken, Box::new(hook)))
}

/// [`embedding`] of a table split into parts of consecutive rows, `[rows of the part, d_model]` each. There is at
/// least one part. The result is bit-identical to that of the whole table.
pub fn embedding_parts<B: Backend>(
    tables: Vec<Tensor<B, 2>>,
    ids: Tensor<B, 2, Int>,
) -> Tensor<B, 3> {
    let rows: Vec<usize> = tables.iter().map(|table| table.dims()[0]).collect();
    let mut selected = None;
    for (table, part) in tables.into_iter().zip(part_rows(&ids, &rows)) {
        let here = embedding(table, part.rows.clone()); // [batch, seq, d_model]
        selected = Some(part.select_or(selected, here));
    }
    // Without any parts, the rows are empty.
    selected.unwrap_or_else(|| Tensor::zeros([ids.dims()[0], ids.dims()[1], 0], &ids.device()))
}

/// [`Backend::adamw`] of primitives, with the gradients times `factor` `[1]`.
pub fn adamw_all<B: Backend>(
    inputs: Vec<AdamWInputs<B>>,
    factor: Option<Tensor<B, 1>>,
) -> Vec<AdamWOutputs<B>> {
    B::adamw(inputs, factor.map(float))
}

/// [`Backend::adamw`] of one parameter: `(parameter, moment1, moment2)` after an update with the gradient times `factor`
/// `[1]`.
pub fn adamw<B: Backend, const D: usize>(
    parameter: Tensor<B, D>,
    grad: Tensor<B, D>,
    moments: (Tensor<B, D>, Tensor<B, D>),
    factor: Option<Tensor<B, 1>>,
    step: AdamWStep,
) -> (Tensor<B, D>, (Tensor<B, D>, Tensor<B, D>)) {
    let inputs = AdamWInputs {
        parameter: float(parameter),
        grad: float(grad),
        moments: (float(moments.0), float(moments.1)),
        step,
    };
    // As many as inputs.
    let (p, m, v) = B::adamw(vec![inputs], factor.map(float)).remove(0);
    (tensor(p), (tensor(m), tensor(v)))
}
