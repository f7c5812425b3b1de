//! Tiled attention for any memory layout of queries, keys and values.

use burn::tensor::ops::FloatTensorOps;
use burn::tensor::{DType, Distribution, Shape, Tensor};
use burn_flex::{Flex, FlexTensor, Layout};

use super::buffer::{all_filled, dense, dims, elements, elements_mut, filled, is_f32, of_elements};
use super::cache;
use super::mask::MaskTensors;
use crate::cpu::attention::{self, AttentionShape, Dropout, HeadStrides, Heads, HeadsMut};
use crate::cpu::rotary;
use crate::reference::{self, WholeState};
use crate::{
    AttentionGradients, AttentionKernels, AttentionMask, AttentionOptions, PackedTokens,
    RotaryAngles, SelfAttention, SelfAttentionGradients,
};

/// Attention by [`crate::cpu::attention`], or by the reference implementation for inputs that are not f32.
#[derive(Clone, Copy, Debug)]
pub struct TiledAttention;

/// The state of a forward pass; `I` is the type of the queries, keys and values.
// The variants are a few handles, and there is one state per transformer block.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum FlexState<I> {
    /// The state of tiled attention.
    Tiled(TiledState<I>),
    /// The state of the reference implementation.
    Whole(WholeState<Flex>),
}

/// The state of tiled attention. It is linear in the sequence length: the backward pass recomputes the weights
/// from the log-sums (Dao et al. 2022, "FlashAttention").
#[derive(Clone, Debug)]
pub struct TiledState<I> {
    /// Queries, keys and values, rotated.
    inputs: I,
    output: FlexTensor,
    /// `ln Σ exp(scores)` of each query, `[batch, heads, q_len]`.
    log_sums: FlexTensor,
    mask: MaskTensors,
    /// The seed of the dropout.
    seed: u64,
}

impl<I> TiledState<I> {
    /// The gradient of the sinks, if there are any.
    fn sink_gradient(&self, shape: &AttentionShape, grad: &FlexTensor) -> Option<FlexTensor> {
        let sinks = self.mask.sinks()?;
        let of_queries = Shape::new([shape.batch, shape.heads, shape.q_len, 1]);
        let log_sums = self.log_sums.reshape(of_queries);
        let (output, grad) = (self.output.clone(), grad.clone());
        Some(reference::sink_gradient(&sinks, log_sums, output, grad))
    }
}

impl AttentionKernels<Flex> for TiledAttention {
    /// Queries, keys and values are separate.
    type State = FlexState<[FlexTensor; 3]>;
    /// The output of a fused projection holds queries, keys and values.
    type SelfState = FlexState<FlexTensor>;

    fn attention(
        q: FlexTensor,
        k: FlexTensor,
        v: FlexTensor,
        mask: AttentionMask<Flex>,
        options: AttentionOptions,
    ) -> FlexTensor {
        if !supports([&q, &k, &v], &mask) {
            return reference::attention::<Flex>(q, k, v, mask, options);
        }
        let inputs = [q, k, v].map(|x| strides(x).0);
        let shape = shape(&inputs[0], &inputs[1]);
        let output = filled(separate_shape(&shape), |out| {
            let [q, k, v] = inputs.each_ref().map(heads);
            let out = HeadsMut::new(out, row_strides(&shape), shape.q_dims());
            MaskTensors::new(mask).with(|mask| {
                attention::attention(&shape, &options, mask, None, q, k, v, out, None);
            });
        });
        by_heads(output)
    }

    fn attention_packed(
        q: FlexTensor,
        k: PackedTokens<Flex>,
        v: PackedTokens<Flex>,
        mask: AttentionMask<Flex>,
        options: AttentionOptions,
    ) -> FlexTensor {
        let (format, k_dims) = (k.format(), k.dims());
        let head_dim = q.layout().shape()[3];
        let fits = (v.format(), v.dims()) == (format, k_dims) && head_dim == k_dims[3];
        let fits = fits && supports_fused(&q, &mask);
        let bytes = [&k, &v].map(|x| x.clone().into_bytes());
        let ([Some(k), Some(v)], true) = (bytes, fits) else {
            let [k, v] = [k, v].map(cache::unpack_tokens);
            return Self::attention(q, k, v, mask, options);
        };
        let [q, k, v] = [q, k, v].map(|x| strides(x).0);
        let shape = shape(&q, &k);
        let output = filled(separate_shape(&shape), |out| {
            let [k, v] = [&k, &v].map(|x| cache::packed_heads(x, format, k_dims));
            let out = HeadsMut::new(out, row_strides(&shape), shape.q_dims());
            MaskTensors::new(mask).with(|mask| {
                attention::attention(&shape, &options, mask, None, heads(&q), k, v, out, None);
            });
        });
        by_heads(output)
    }

    fn attention_training(
        q: FlexTensor,
        k: FlexTensor,
        v: FlexTensor,
        mask: AttentionMask<Flex>,
        options: AttentionOptions,
    ) -> (FlexTensor, Self::State) {
        if !supports([&q, &k, &v], &mask) {
            let (output, state) = reference::attention_training::<Flex>(q, k, v, mask, options);
            return (output, FlexState::Whole(state));
        }
        let inputs = [q, k, v].map(|x| strides(x).0);
        let shape = shape(&inputs[0], &inputs[1]);
        let (seed, mask) = (seed(&options), MaskTensors::new(mask));
        let shapes = [separate_shape(&shape), sums_shape(&shape)];
        let [output, log_sums] = all_filled(shapes, |[out, sums]| {
            let [q, k, v] = inputs.each_ref().map(heads);
            let out = HeadsMut::new(out, row_strides(&shape), shape.q_dims());
            let dropout = dropout(&options, seed);
            mask.with(|mask| {
                attention::attention(&shape, &options, mask, dropout, q, k, v, out, Some(sums));
            });
        });
        let output = by_heads(output);
        let state = TiledState {
            inputs,
            output: output.clone(),
            log_sums,
            mask,
            seed,
        };
        (output, FlexState::Tiled(state))
    }

    fn attention_backward(
        state: Self::State,
        grad: FlexTensor,
        options: AttentionOptions,
        bias: bool,
    ) -> AttentionGradients<Flex> {
        let state = match state {
            FlexState::Tiled(state) => state,
            FlexState::Whole(state) => {
                return reference::attention_backward::<Flex>(state, grad, options, bias);
            }
        };
        let inputs = &state.inputs;
        let shape = shape(&inputs[0], &inputs[1]);
        let sinks = state.sink_gradient(&shape, &grad);
        let grad = strides(grad).0;
        let shapes = [shape.q_dims(), shape.k_dims(), shape.k_dims()].map(Into::into);
        let mut dbias = bias_memory(&shape, bias);
        let [q, k, v] = all_filled(shapes, |[q_out, k_out, v_out]| {
            let [q, k, v] = inputs.each_ref().map(heads);
            let out = |data, dims| HeadsMut::new(data, HeadStrides::contiguous(dims), dims);
            state.mask.with(|mask| {
                attention::attention_backward(
                    &shape,
                    &options,
                    mask,
                    dropout(&options, state.seed),
                    q,
                    k,
                    v,
                    heads(&state.output),
                    elements(&state.log_sums),
                    heads(&grad),
                    out(q_out, shape.q_dims()),
                    out(k_out, shape.k_dims()),
                    out(v_out, shape.k_dims()),
                    dbias.as_deref_mut(),
                );
            });
        });
        let bias = bias_tensor(&shape, dbias);
        AttentionGradients {
            q,
            k,
            v,
            bias,
            sinks,
        }
    }

    fn self_attention(
        qkv: FlexTensor,
        angles: Option<RotaryAngles<Flex>>,
        mask: AttentionMask<Flex>,
        config: SelfAttention,
    ) -> FlexTensor {
        if !supports_fused(&qkv, &mask) {
            return reference::self_attention::<Flex>(qkv, angles, mask, config);
        }
        let qkv = rotated(qkv, angles.as_ref(), config, false);
        let shape = fused_shape(&qkv, config);
        filled(output_shape(&shape), |out| {
            let (q, k, v) = Heads::split_fused(elements(&qkv), &shape);
            let out = HeadsMut::new(out, row_strides(&shape), shape.q_dims());
            MaskTensors::new(mask).with(|mask| {
                attention::attention(&shape, &config.options, mask, None, q, k, v, out, None);
            });
        })
    }

    fn self_attention_training(
        qkv: FlexTensor,
        angles: Option<RotaryAngles<Flex>>,
        mask: AttentionMask<Flex>,
        config: SelfAttention,
    ) -> (FlexTensor, Self::SelfState) {
        if !supports_fused(&qkv, &mask) {
            let (output, state) =
                reference::self_attention_training::<Flex>(qkv, angles, mask, config);
            return (output, FlexState::Whole(state));
        }
        let qkv = rotated(qkv, angles.as_ref(), config, false);
        let (shape, options) = (fused_shape(&qkv, config), config.options);
        let (seed, mask) = (seed(&options), MaskTensors::new(mask));
        let shapes = [output_shape(&shape).into(), sums_shape(&shape)];
        let [output, log_sums] = all_filled(shapes, |[out, sums]| {
            let (q, k, v) = Heads::split_fused(elements(&qkv), &shape);
            let out = HeadsMut::new(out, row_strides(&shape), shape.q_dims());
            let dropout = dropout(&options, seed);
            mask.with(|mask| {
                attention::attention(&shape, &options, mask, dropout, q, k, v, out, Some(sums));
            });
        });
        let state = TiledState {
            inputs: qkv,
            output: output.clone(),
            log_sums,
            mask,
            seed,
        };
        (output, FlexState::Tiled(state))
    }

    fn self_attention_backward(
        state: Self::SelfState,
        angles: Option<RotaryAngles<Flex>>,
        grad: FlexTensor,
        config: SelfAttention,
        bias: bool,
    ) -> SelfAttentionGradients<Flex> {
        let state = match state {
            FlexState::Tiled(state) => state,
            FlexState::Whole(state) => {
                return reference::self_attention_backward::<Flex>(
                    state, angles, grad, config, bias,
                );
            }
        };
        let shape = fused_shape(&state.inputs, config);
        let sinks = state.sink_gradient(&shape, &grad);
        let grad = dense(grad);
        let mut dbias = bias_memory(&shape, bias);
        let qkv_grad = filled(dims(&state.inputs), |qkv_grad| {
            let (q, k, v) = Heads::split_fused(elements(&state.inputs), &shape);
            let (q_grad, k_grad, v_grad) = HeadsMut::split_fused(qkv_grad, &shape);
            let rows = row_strides(&shape);
            state.mask.with(|mask| {
                attention::attention_backward(
                    &shape,
                    &config.options,
                    mask,
                    dropout(&config.options, state.seed),
                    q,
                    k,
                    v,
                    Heads::new(elements(&state.output), rows, shape.q_dims()),
                    elements(&state.log_sums),
                    Heads::new(elements(&grad), rows, shape.q_dims()),
                    q_grad,
                    k_grad,
                    v_grad,
                    dbias.as_deref_mut(),
                );
            });
        });
        SelfAttentionGradients {
            qkv: rotated(qkv_grad, angles.as_ref(), config, true),
            bias: bias_tensor(&shape, dbias),
            sinks,
        }
    }
}

/// Returns true if the kernels support these inputs: all are f32, with the same head dimension.
fn supports([q, k, v]: [&FlexTensor; 3], mask: &AttentionMask<Flex>) -> bool {
    let head_dim = |x: &FlexTensor| x.layout().shape()[3];
    let equal = head_dim(q) == head_dim(k) && head_dim(k) == head_dim(v);
    equal && supports_fused(q, mask) && is_f32(&[k, v])
}

/// Returns true if the kernels support this fused buffer, bias and sinks: all are f32.
fn supports_fused(qkv: &FlexTensor, mask: &AttentionMask<Flex>) -> bool {
    let bias = mask.bias.as_ref().map(Tensor::dtype);
    let sinks = mask.sinks.as_ref().map(Tensor::dtype);
    let mut kinds = bias.into_iter().chain(sinks);
    is_f32(&[qkv]) && kinds.all(|kind| kind == DType::F32)
}

/// Allocates the gradient of the bias, if requested.
fn bias_memory(shape: &AttentionShape, bias: bool) -> Option<Vec<f32>> {
    bias.then(|| vec![0.0; shape.heads * shape.q_len * shape.k_len])
}

/// `[heads, q_len, k_len]`.
fn bias_tensor(shape: &AttentionShape, memory: Option<Vec<f32>>) -> Option<FlexTensor> {
    let dims = [shape.heads, shape.q_len, shape.k_len];
    memory.map(|elements| of_elements(elements, dims.into()))
}

/// Rotates the queries and keys in the output of a fused projection, in place if the tensor is not shared.
/// `inverse` rotates a gradient back.
fn rotated(
    qkv: FlexTensor,
    angles: Option<&RotaryAngles<Flex>>,
    config: SelfAttention,
    inverse: bool,
) -> FlexTensor {
    let mut qkv = dense(qkv);
    let Some(angles) = angles else {
        return qkv;
    };
    let [batch, seq, width] = [0, 1, 2].map(|dim| qkv.layout().shape()[dim]);
    let (cos, sin) = (dense(angles.cos.clone()), dense(angles.sin.clone()));
    rotary::rotate_in_place(
        angles.layout,
        elements_mut(&mut qkv),
        HeadStrides::of_rows(seq, config.head_dim, width),
        [batch, config.heads + config.kv_heads, seq, config.head_dim],
        elements(&cos),
        elements(&sin),
        inverse,
    );
    qkv
}

/// Draws a dropout seed from the backend's random state.
fn seed(options: &AttentionOptions) -> u64 {
    if options.dropout == 0.0 {
        return 0;
    }
    let range = Distribution::Uniform(0.0, 1.0);
    let draws = Flex::float_random(
        Shape::new([2]),
        range,
        &Default::default(),
        DType::F32.into(),
    );
    let [high, low] = [0, 1].map(|n| u64::from(elements(&draws)[n].to_bits()));
    high << 32 | low
}

fn dropout(options: &AttentionOptions, seed: u64) -> Option<Dropout> {
    (options.dropout > 0.0).then_some(Dropout {
        probability: options.dropout,
        seed,
    })
}

/// The shape of attention with `q` `[batch, heads, q_len, head_dim]` and `k`
/// `[batch, kv_heads, k_len, head_dim]`.
fn shape(q: &FlexTensor, k: &FlexTensor) -> AttentionShape {
    let (q, k) = (q.layout().shape(), k.layout().shape());
    AttentionShape {
        batch: q[0],
        heads: q[1],
        kv_heads: k[1],
        q_len: q[2],
        k_len: k[2],
        head_dim: q[3],
    }
}

fn fused_shape(qkv: &FlexTensor, config: SelfAttention) -> AttentionShape {
    let [batch, seq] = [0, 1].map(|dim| qkv.layout().shape()[dim]);
    AttentionShape {
        batch,
        heads: config.heads,
        kv_heads: config.kv_heads,
        q_len: seq,
        k_len: seq,
        head_dim: config.head_dim,
    }
}

/// `[batch, seq, heads · head_dim]`.
fn output_shape(shape: &AttentionShape) -> [usize; 3] {
    [shape.batch, shape.q_len, shape.heads * shape.head_dim]
}

/// The strides of heads stored next to each other in the rows of tokens.
fn row_strides(shape: &AttentionShape) -> HeadStrides {
    HeadStrides::of_rows(shape.q_len, shape.head_dim, shape.heads * shape.head_dim)
}

/// The shape of the output for separate queries, keys and values. It is stored token by token, the layout that
/// the following projection reads.
fn separate_shape(shape: &AttentionShape) -> Shape {
    [shape.batch, shape.q_len, shape.heads, shape.head_dim].into()
}

/// Views an output stored token by token as `[batch, heads, q_len, head_dim]`.
fn by_heads(output: FlexTensor) -> FlexTensor {
    output.permute(&[0, 2, 1, 3])
}

/// `[batch, heads, q_len]`.
fn sums_shape(shape: &AttentionShape) -> Shape {
    [shape.batch, shape.heads, shape.q_len].into()
}

/// Returns the tensor, copied if its vectors are not contiguous, and its strides.
pub(super) fn strides(x: FlexTensor) -> (FlexTensor, HeadStrides) {
    let usable = |layout: &Layout| {
        let last = layout.shape()[3] == 1 || layout.strides()[3] == 1;
        last && layout.has_positive_strides()
    };
    let x = if usable(x.layout()) { x } else { dense(x) };
    let [batch, head, token] = [0, 1, 2].map(|dim| x.layout().strides()[dim].unsigned_abs());
    let strides = HeadStrides { batch, head, token };
    (x, strides)
}

/// A view of a tensor returned by [`strides`].
pub(super) fn heads(x: &FlexTensor) -> Heads<'_> {
    let layout = x.layout();
    let [batch, head, token] = [0, 1, 2].map(|dim| layout.strides()[dim].unsigned_abs());
    let dims = [0, 1, 2, 3].map(|dim| layout.shape()[dim]);
    Heads::new(
        &x.storage()[layout.start_offset()..],
        HeadStrides { batch, head, token },
        dims,
    )
}
