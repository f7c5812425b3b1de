//! Attention in blocks, of queries, keys and values wherever they lie.

use burn::tensor::ops::FloatTensorOps;
use burn::tensor::{DType, Distribution, Shape};
use burn_flex::{Flex, FlexTensor, Layout};

use super::buffer::{dense, dims, elements, filled, integers, is_f32};
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
    separate_output(&shape, |out| {
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
    })
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
    let mut output = None;
    let log_sums = filled([shape.batch, shape.heads, shape.q_len], |sums| {
        let first_keys = documents.as_ref().map(integers);
        output = Some(separate_output(&shape, |out| {
            let [q, k, v] = [0, 1, 2].map(|n| heads(&inputs[n]));
            let out = HeadsMut::new(out, row_strides(&shape), shape.q_dims());
            let dropout = dropout(&options, seed);
            attention::attention(
                &shape,
                &options,
                first_keys.as_deref(),
                dropout,
                q,
                k,
                v,
                out,
                Some(sums),
            );
        }));
    });
    let output = output.unwrap_or_else(|| log_sums.clone());
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
    let (mut k_grad, mut v_grad) = (None, None);
    let q_grad = filled(shape.q_dims(), |q_out| {
        k_grad = Some(filled(shape.k_dims(), |k_out| {
            v_grad = Some(filled(shape.k_dims(), |v_out| {
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
            }));
        }));
    });
    AttentionGradients {
        k: k_grad.unwrap_or_else(|| q_grad.clone()),
        v: v_grad.unwrap_or_else(|| q_grad.clone()),
        q: q_grad,
    }
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
    let mut output = None;
    let log_sums = filled([shape.batch, shape.heads, shape.q_len], |sums| {
        let first_keys = documents.as_ref().map(integers);
        output = Some(filled(output_shape(&shape), |out| {
            let (q, k, v) = Heads::split_fused(elements(&qkv), &shape);
            let out = HeadsMut::new(out, row_strides(&shape), shape.q_dims());
            attention::attention(
                &shape,
                &how.options,
                first_keys.as_deref(),
                dropout(&how.options, seed),
                q,
                k,
                v,
                out,
                Some(sums),
            );
        }));
    });
    let output = output.unwrap_or_else(|| log_sums.clone());
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
        qkv.storage_mut(),
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

/// An output `[batch, heads, q_len, head_dim]` that lies token by token, as the map after it reads it.
fn separate_output(shape: &AttentionShape, fill: impl FnOnce(&mut [f32])) -> FlexTensor {
    let dims = [shape.batch, shape.q_len, shape.heads, shape.head_dim];
    filled(dims, fill).permute(&[0, 2, 1, 3])
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
        &elements(x)[layout.start_offset()..],
        HeadStrides { batch, head, token },
        dims,
    )
}
