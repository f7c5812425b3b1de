//! Attention in blocks, of queries, keys and values wherever they lie.

use burn::tensor::ops::FloatTensorOps;
use burn::tensor::{DType, Distribution, Shape};
use burn_flex::{Flex, FlexTensor, Layout};

use super::buffer::{all_filled, dense, dims, elements, elements_mut, filled, integers, is_f32};
use crate::cpu::attention::{self, AttentionShape, Dropout, HeadStrides, Heads, HeadsMut};
use crate::cpu::rotary;
use crate::{
    AttentionGradients, AttentionInputs, AttentionOptions, AttentionState, LogSums, RotaryAngles,
    SelfAttention,
};

/// Whether these are queries, keys and values of f32 whose heads are equally long.
pub(super) fn takes(q: &FlexTensor, k: &FlexTensor, v: &FlexTensor) -> bool {
    let head_dim = |x: &FlexTensor| x.layout().shape()[3];
    is_f32(&[q, k, v]) && head_dim(q) == head_dim(k) && head_dim(k) == head_dim(v)
}

pub(super) fn attention(
    q: FlexTensor,
    k: FlexTensor,
    v: FlexTensor,
    documents: Option<FlexTensor>,
    options: AttentionOptions,
) -> FlexTensor {
    let inputs = [q, k, v].map(|x| strides(x).0);
    let shape = shape(&inputs[0], &inputs[1]);
    let documents = documents.as_ref().map(integers);
    let output = filled(separate_shape(&shape), |out| {
        let [q, k, v] = [0, 1, 2].map(|n| heads(&inputs[n]));
        let out = HeadsMut::new(out, row_strides(&shape), shape.q_dims());
        attention::attention(
            &shape,
            &options,
            documents.as_deref(),
            None,
            q,
            k,
            v,
            out,
            None,
        );
    });
    by_heads(output)
}

pub(super) fn attention_training(
    q: FlexTensor,
    k: FlexTensor,
    v: FlexTensor,
    documents: Option<FlexTensor>,
    options: AttentionOptions,
) -> (FlexTensor, AttentionState<Flex>) {
    let inputs = [q, k, v].map(|x| strides(x).0);
    let shape = shape(&inputs[0], &inputs[1]);
    let seed = seed(&options);
    let first_keys = documents.as_ref().map(integers);
    let shapes = [separate_shape(&shape), sums_shape(&shape)];
    let [output, log_sums] = all_filled(shapes, |[out, sums]| {
        let [q, k, v] = [0, 1, 2].map(|n| heads(&inputs[n]));
        let out = HeadsMut::new(out, row_strides(&shape), shape.q_dims());
        let (keys, dropout) = (first_keys.as_deref(), dropout(&options, seed));
        attention::attention(&shape, &options, keys, dropout, q, k, v, out, Some(sums));
    });
    let output = by_heads(output);
    drop(first_keys);
    let state = LogSums {
        inputs: AttentionInputs::Separate(inputs),
        output: output.clone(),
        log_sums,
        documents,
        seed,
    };
    (output, AttentionState::LogSums(state))
}

pub(super) fn attention_backward(
    state: LogSums<Flex>,
    grad: FlexTensor,
    options: AttentionOptions,
) -> AttentionGradients<Flex> {
    let inputs = match state.inputs {
        AttentionInputs::Separate(inputs) => inputs,
        AttentionInputs::Fused(all) => [all.clone(), all.clone(), all],
    };
    let shape = shape(&inputs[0], &inputs[1]);
    let grad = strides(grad).0;
    let documents = state.documents.as_ref().map(integers);
    let shapes = [shape.q_dims(), shape.k_dims(), shape.k_dims()];
    let [q, k, v] = all_filled(shapes.map(Into::into), |[q_out, k_out, v_out]| {
        let [q, k, v] = [0, 1, 2].map(|n| heads(&inputs[n]));
        let out = |data, dims| HeadsMut::new(data, HeadStrides::contiguous(dims), dims);
        attention::attention_backward(
            &shape,
            &options,
            documents.as_deref(),
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
        );
    });
    AttentionGradients { q, k, v }
}

pub(super) fn self_attention(
    qkv: FlexTensor,
    angles: Option<RotaryAngles<Flex>>,
    documents: Option<FlexTensor>,
    how: SelfAttention,
) -> FlexTensor {
    let qkv = turned(qkv, angles.as_ref(), how, false);
    let shape = fused_shape(&qkv, how);
    let documents = documents.as_ref().map(integers);
    filled(output_shape(&shape), |out| {
        let (q, k, v) = Heads::split_fused(elements(&qkv), &shape);
        let out = HeadsMut::new(out, row_strides(&shape), shape.q_dims());
        attention::attention(
            &shape,
            &how.options,
            documents.as_deref(),
            None,
            q,
            k,
            v,
            out,
            None,
        );
    })
}

pub(super) fn self_attention_training(
    qkv: FlexTensor,
    angles: Option<RotaryAngles<Flex>>,
    documents: Option<FlexTensor>,
    how: SelfAttention,
) -> (FlexTensor, AttentionState<Flex>) {
    let qkv = turned(qkv, angles.as_ref(), how, false);
    let shape = fused_shape(&qkv, how);
    let seed = seed(&how.options);
    let first_keys = documents.as_ref().map(integers);
    let shapes = [output_shape(&shape).into(), sums_shape(&shape)];
    let [output, log_sums] = all_filled(shapes, |[out, sums]| {
        let (q, k, v) = Heads::split_fused(elements(&qkv), &shape);
        let out = HeadsMut::new(out, row_strides(&shape), shape.q_dims());
        let (keys, dropout) = (first_keys.as_deref(), dropout(&how.options, seed));
        attention::attention(
            &shape,
            &how.options,
            keys,
            dropout,
            q,
            k,
            v,
            out,
            Some(sums),
        );
    });
    drop(first_keys);
    let state = LogSums {
        inputs: AttentionInputs::Fused(qkv),
        output: output.clone(),
        log_sums,
        documents,
        seed,
    };
    (output, AttentionState::LogSums(state))
}

pub(super) fn self_attention_backward(
    state: LogSums<Flex>,
    angles: Option<RotaryAngles<Flex>>,
    grad: FlexTensor,
    how: SelfAttention,
) -> FlexTensor {
    let AttentionInputs::Fused(qkv) = state.inputs else {
        let state = AttentionState::LogSums(state);
        return crate::reference::self_attention_backward::<Flex>(state, angles, grad, how);
    };
    let shape = fused_shape(&qkv, how);
    let grad = dense(grad);
    let documents = state.documents.as_ref().map(integers);
    let made = filled(dims(&qkv), |made| {
        let (q, k, v) = Heads::split_fused(elements(&qkv), &shape);
        let (q_grad, k_grad, v_grad) = HeadsMut::split_fused(made, &shape);
        let rows = row_strides(&shape);
        attention::attention_backward(
            &shape,
            &how.options,
            documents.as_deref(),
            dropout(&how.options, state.seed),
            q,
            k,
            v,
            Heads::new(elements(&state.output), rows, shape.q_dims()),
            elements(&state.log_sums),
            Heads::new(elements(&grad), rows, shape.q_dims()),
            q_grad,
            k_grad,
            v_grad,
        );
    });
    turned(made, angles.as_ref(), how, true)
}

/// The queries and keys of a fused map's output turned, in place where nobody else holds it; backwards for a gradient.
fn turned(
    qkv: FlexTensor,
    angles: Option<&RotaryAngles<Flex>>,
    how: SelfAttention,
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
        HeadStrides::of_rows(seq, how.head_dim, width),
        [batch, how.heads + how.kv_heads, seq, how.head_dim],
        elements(&cos),
        elements(&sin),
        inverse,
    );
    qkv
}

/// What dropout is drawn from: two draws of the backend's random state.
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

/// Queries `[batch, heads, q_len, head_dim]`, keys `[batch, kv_heads, k_len, head_dim]`.
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

fn fused_shape(qkv: &FlexTensor, how: SelfAttention) -> AttentionShape {
    let [batch, seq] = [0, 1].map(|dim| qkv.layout().shape()[dim]);
    AttentionShape {
        batch,
        heads: how.heads,
        kv_heads: how.kv_heads,
        q_len: seq,
        k_len: seq,
        head_dim: how.head_dim,
    }
}

/// `[batch, seq, heads · head_dim]`.
fn output_shape(shape: &AttentionShape) -> [usize; 3] {
    [shape.batch, shape.q_len, shape.heads * shape.head_dim]
}

/// Of heads that lie side by side in rows of tokens.
fn row_strides(shape: &AttentionShape) -> HeadStrides {
    HeadStrides::of_rows(shape.q_len, shape.head_dim, shape.heads * shape.head_dim)
}

/// Of an output of separate heads, which lies token by token, as the map after it reads it.
fn separate_shape(shape: &AttentionShape) -> Shape {
    [shape.batch, shape.q_len, shape.heads, shape.head_dim].into()
}

/// `[batch, heads, q_len, head_dim]` of what lies so.
fn by_heads(output: FlexTensor) -> FlexTensor {
    output.permute(&[0, 2, 1, 3])
}

/// `[batch, heads, q_len]`.
fn sums_shape(shape: &AttentionShape) -> Shape {
    [shape.batch, shape.heads, shape.q_len].into()
}

/// Vectors that are each in one piece, and where they lie.
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

/// Of a tensor that came out of [`strides`].
fn heads(x: &FlexTensor) -> Heads<'_> {
    let layout = x.layout();
    let [batch, head, token] = [0, 1, 2].map(|dim| layout.strides()[dim].unsigned_abs());
    let dims = [0, 1, 2, 3].map(|dim| layout.shape()[dim]);
    Heads::new(
        &x.storage()[layout.start_offset()..],
        HeadStrides { batch, head, token },
        dims,
    )
}
