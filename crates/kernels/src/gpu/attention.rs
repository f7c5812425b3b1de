//! Attention in tiles, so that scores are only in registers and shared memory.
//!
//! - The forward pass keeps a running softmax over tiles of keys (Dao et al. 2022, "FlashAttention") and skips those
//!   that no query of its tile sees. If there are few queries, as in decoding, cubes share the keys and another kernel
//!   combines their outputs.
//! - The backward pass computes the weights again from the log-sum of each query. Each gradient is summed by one cube, in a
//!   fixed order.
//! - All kernels find vectors by strides, so the heads of a fused projection are not copied.
//!
//! | file | contents |
//! |---|---|
//! | `tile` | tiles in shared memory and their products |
//! | `scores` | scores, visible keys and dropout of a tile |
//! | `forward`, `combine`, `backward`, `rotate` | the kernels |
//! | `cached` | attention that appends to a cache |
//! | `task`, `operands`, `words`, `state` | inputs of the kernels, and the state between the passes |
//!
//! The reference implementation computes the rest: heads of more than 256 elements, tensors of several types or without
//! elements, more than 65,535 heads of all sequences, gradients of a bias, and devices with less than 256 units per cube
//! or 32 KiB of shared memory.

mod backward;
mod cached;
mod combine;
mod forward;
mod operands;
mod rotate;
mod scores;
mod state;
mod task;
mod tile;
mod words;

use std::marker::PhantomData;

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::slice;
use burn_cubecl::tensor::CubeTensor;

use self::backward::backward;
use self::cached::cached_attention;
use self::forward::forward;
use self::operands::{Operands, VectorStrides};
use self::rotate::{Angles, rotate};
pub use self::state::TiledState;
use self::state::{Saved, Tiled};
use self::task::Task;
use self::words::words;
use super::launch::{empty, input_or, with_contiguous_rows};
use super::queue::{OnRuntime, Queued, queue};
use crate::reference::{BlockedAttention, DropoutDraws, sink_gradient, with_sinks};
use crate::{
    AttentionGradients, AttentionKernels, AttentionMask, AttentionOptions, BaseOps, KeyValueCache,
    RotaryAngles, SelfAttention, SelfAttentionGradients,
};

/// Attention by the kernels of this module, on the runtime `R`.
#[derive(Clone, Copy, Debug)]
pub struct TiledAttention<R>(PhantomData<R>);

impl<R: CubeRuntime, B: OnRuntime<R>> AttentionKernels<B> for TiledAttention<R> {
    type State = TiledState<B>;
    type SelfState = TiledState<B>;

    fn attention(
        q: FloatTensor<B>,
        k: FloatTensor<B>,
        v: FloatTensor<B>,
        mask: AttentionMask<B>,
        options: AttentionOptions,
    ) -> FloatTensor<B> {
        let options = options.usable::<B>(&q);
        match Task::separate::<R, B>([&q, &k, &v], &mask, options) {
            Some(task) => attend(task, [q, k, v], mask),
            None => BlockedAttention::attention(q, k, v, mask, options),
        }
    }

    fn attention_training(
        q: FloatTensor<B>,
        k: FloatTensor<B>,
        v: FloatTensor<B>,
        mask: AttentionMask<B>,
        options: AttentionOptions,
    ) -> (FloatTensor<B>, TiledState<B>) {
        let options = options.usable::<B>(&q);
        match Task::separate::<R, B>([&q, &k, &v], &mask, options) {
            Some(task) => attend_training(task, [q, k, v], mask),
            None => {
                let made = BlockedAttention::attention_training(q, k, v, mask, options);
                (made.0, TiledState(Saved::Reference(made.1)))
            }
        }
    }

    fn attention_backward(
        state: TiledState<B>,
        grad: FloatTensor<B>,
        options: AttentionOptions,
        bias: bool,
    ) -> AttentionGradients<B> {
        let options = options.usable::<B>(&grad);
        match state.0 {
            Saved::Tiled(state) if computes_gradients(&state, &grad, bias) => {
                let sinks = gradient_of_sinks(&state, &grad);
                let [q, k, v] = gradients(state, grad);
                AttentionGradients {
                    q,
                    k,
                    v,
                    bias: None,
                    sinks,
                }
            }
            state => {
                let state = TiledState(state).into_reference();
                BlockedAttention::attention_backward(state, grad, options, bias)
            }
        }
    }

    fn self_attention(
        qkv: FloatTensor<B>,
        angles: Option<RotaryAngles<B>>,
        mask: AttentionMask<B>,
        config: SelfAttention,
    ) -> FloatTensor<B> {
        let config = config.usable::<B>(&qkv);
        match Task::fused::<R, B>(&qkv, None, &mask, config) {
            Some(task) => {
                let qkv = rotated::<R, B>(qkv, angles, config, false);
                attend(task, fused(qkv), mask)
            }
            None => BlockedAttention::self_attention(qkv, angles, mask, config),
        }
    }

    fn cached_attention(
        qkv: FloatTensor<B>,
        angles: Option<RotaryAngles<B>>,
        cache: KeyValueCache<B>,
        mask: AttentionMask<B>,
        config: SelfAttention,
    ) -> (FloatTensor<B>, KeyValueCache<B>) {
        let config = config.usable::<B>(&qkv);
        match Task::fused::<R, B>(&qkv, Some(&cache), &mask, config) {
            Some(task) => cached_attention::<R, B>(task, qkv, angles, cache, mask, config),
            None => BlockedAttention::cached_attention(qkv, angles, cache, mask, config),
        }
    }

    fn self_attention_training(
        qkv: FloatTensor<B>,
        angles: Option<RotaryAngles<B>>,
        mask: AttentionMask<B>,
        config: SelfAttention,
    ) -> (FloatTensor<B>, TiledState<B>) {
        let config = config.usable::<B>(&qkv);
        match Task::fused::<R, B>(&qkv, None, &mask, config) {
            Some(task) => {
                let qkv = rotated::<R, B>(qkv, angles, config, false);
                attend_training(task, fused(qkv), mask)
            }
            None => {
                let made = BlockedAttention::self_attention_training(qkv, angles, mask, config);
                (made.0, TiledState(Saved::Reference(made.1)))
            }
        }
    }

    fn self_attention_backward(
        state: TiledState<B>,
        angles: Option<RotaryAngles<B>>,
        grad: FloatTensor<B>,
        config: SelfAttention,
        bias: bool,
    ) -> SelfAttentionGradients<B> {
        let config = config.usable::<B>(&grad);
        match state.0 {
            Saved::Tiled(state) if computes_gradients(&state, &grad, bias) => {
                let sinks = gradient_of_sinks(&state, &grad);
                let qkv = fused_gradient(state, grad);
                SelfAttentionGradients {
                    qkv: rotated::<R, B>(qkv, angles, config, true),
                    bias: None,
                    sinks,
                }
            }
            state => {
                let state = TiledState(state).into_reference();
                BlockedAttention::self_attention_backward(state, angles, grad, config, bias)
            }
        }
    }
}

/// Returns true if the kernels compute the backward pass.
fn computes_gradients<B: BaseOps>(state: &Tiled<B>, grad: &FloatTensor<B>, bias: bool) -> bool {
    !bias && grad.dtype() == state.inputs[0].dtype()
}

/// Queries, keys and values in the output of a fused projection.
fn fused<R: CubeRuntime>(qkv: Queued<R>) -> [Queued<R>; 3] {
    [qkv.clone(), qkv.clone(), qkv]
}

/// Rotates the queries and keys in the output of a fused projection, or in its gradient back.
fn rotated<R: CubeRuntime, B: OnRuntime<R>>(
    x: Queued<R>,
    angles: Option<RotaryAngles<B>>,
    config: SelfAttention,
    back: bool,
) -> Queued<R> {
    let Some(RotaryAngles { layout, cos, sin }) = angles else {
        return x;
    };
    let output = (x.shape.clone(), x.dtype);
    let [output] = queue("rotate", [x, cos, sin], [output], move |[x, cos, sin]| {
        let angles = Angles { layout, cos, sin };
        [rotate(x, angles, config, back)]
    });
    output
}

/// The inputs, then the bias and the words, or another tensor if there are none.
fn with_masks<R: CubeRuntime, B: OnRuntime<R>>(
    [q, k, v]: [Queued<R>; 3],
    mask: &AttentionMask<B>,
    words: Option<Queued<R>>,
) -> [Queued<R>; 5] {
    let [bias, words] = masks(&q, mask, words);
    [q, k, v, bias, words]
}

/// The bias and the words, or `other` if there are none.
fn masks<R: CubeRuntime, B: OnRuntime<R>>(
    other: &Queued<R>,
    mask: &AttentionMask<B>,
    words: Option<Queued<R>>,
) -> [Queued<R>; 2] {
    let bias = mask.bias.clone();
    let bias = bias.map(|bias| bias.into_primitive().tensor());
    [bias, words].map(|of| input_or(of, other))
}

/// The gradient of the sinks, if there are any.
fn gradient_of_sinks<B: BaseOps>(
    state: &Tiled<B>,
    grad: &FloatTensor<B>,
) -> Option<FloatTensor<B>> {
    let sinks = state.mask.sinks.as_ref()?;
    let [log_sums, output] = [&state.log_sums, &state.output].map(Clone::clone);
    Some(sink_gradient::<B>(sinks, log_sums, output, grad.clone()))
}

fn attend<R: CubeRuntime, B: OnRuntime<R>>(
    mut task: Task,
    inputs: [Queued<R>; 3],
    mask: AttentionMask<B>,
) -> Queued<R> {
    if mask.sinks.is_some() {
        // They need the log-sums.
        task.options.dropout = 0.0;
        return attend_training(task, inputs, mask).0;
    }
    let (shape, strides) = task.output(inputs[0].rank() == 3);
    let words = words::<B>(mask.documents.clone(), mask.padding.clone(), None);
    let kind = inputs[0].dtype;
    let inputs = with_masks(inputs, &mask, words);
    let outputs = [(shape.clone(), kind)];
    let [output] = queue(
        "attention",
        inputs,
        outputs,
        move |[q, k, v, bias, words]| {
            let operands = Operands::new(task, [q, k, v], [bias, words]);
            let [output, _] = forward(&operands, strides, shape.clone(), false);
            [output]
        },
    );
    output
}

fn attend_training<R: CubeRuntime, B: OnRuntime<R>>(
    mut task: Task,
    inputs: [Queued<R>; 3],
    mask: AttentionMask<B>,
) -> (Queued<R>, TiledState<B>) {
    task.dropout = task.options.dropout > 0.0;
    let (shape, strides) = task.output(inputs[0].rank() == 3);
    let draws = task.dropout.then(|| {
        let of = [task.batch, task.heads, task.q_len];
        DropoutDraws::new(of, task.k_len, &B::float_device(&inputs[0]))
    });
    let words = words::<B>(mask.documents.clone(), mask.padding.clone(), draws);
    let log_sums = Shape::new([task.batch, task.heads, task.q_len, 1]);
    let outputs = [(shape.clone(), inputs[0].dtype), (log_sums, DType::F32)];
    let with_masks = with_masks(inputs.clone(), &mask, words.clone());
    let run = move |[q, k, v, bias, words]: [CubeTensor<R>; 5]| {
        let operands = Operands::new(task, [q, k, v], [bias, words]);
        forward(&operands, strides, shape.clone(), true)
    };
    let [mut output, mut log_sums] = queue("attention", with_masks, outputs, run);
    if let Some(sinks) = &mask.sinks {
        (output, log_sums) = with_sinks::<B>(output, log_sums, sinks);
    }
    let state = Tiled {
        task,
        inputs,
        mask,
        words,
        output: output.clone(),
        log_sums,
    };
    (output, TiledState(Saved::Tiled(state)))
}

/// Queues the backward pass of a state. `run` receives the operands, and output, gradient and log-sums.
fn queue_backward<R: CubeRuntime, B: OnRuntime<R>, const OUTPUTS: usize>(
    state: Tiled<B>,
    grad: Queued<R>,
    shapes: [Shape; OUTPUTS],
    run: impl Fn(&Operands<R>, [CubeTensor<R>; 3]) -> [CubeTensor<R>; OUTPUTS] + Send + Sync + 'static,
) -> [Queued<R>; OUTPUTS] {
    let (task, kind) = (state.task, state.inputs[0].dtype);
    let [q, k, v, bias, words] = with_masks(state.inputs, &state.mask, state.words);
    let inputs = [q, k, v, bias, words, state.output, grad, state.log_sums];
    let outputs = shapes.map(|shape| (shape, kind));
    queue("attention_backward", inputs, outputs, move |inputs| {
        let [q, k, v, bias, words, output, grad, log_sums] = inputs;
        let operands = Operands::new(task, [q, k, v], [bias, words]);
        let [output, grad] = [output, grad].map(with_contiguous_rows);
        run(&operands, [output, grad, log_sums])
    })
}

/// The gradients of separate queries, keys and values.
fn gradients<R: CubeRuntime, B: OnRuntime<R>>(state: Tiled<B>, grad: Queued<R>) -> [Queued<R>; 3] {
    let shapes = state.inputs.each_ref().map(|x| x.shape.clone());
    let task = state.task;
    let Task {
        batch,
        heads,
        kv_heads,
        q_len,
        k_len,
        head_dim,
        ..
    } = task;
    queue_backward(state, grad, shapes, move |operands, results| {
        let of_queries = empty(
            &operands.q,
            Shape::new([batch, heads, q_len, head_dim]),
            operands.q.dtype,
        );
        // Keys and values are in one tensor, since kernels may have few.
        let both = Shape::new([2 * batch, kv_heads, k_len, head_dim]);
        let of_keys = empty(&operands.q, both, operands.q.dtype);
        let keys = VectorStrides::by_heads(kv_heads, k_len, head_dim);
        let values = VectorStrides {
            first: batch * keys.sequence,
            ..keys
        };
        let strides = [
            VectorStrides::by_heads(heads, q_len, head_dim),
            keys,
            values,
        ];
        backward(operands, results, [&of_queries, &of_keys], strides);
        let part = |first: usize| {
            let sequences = first..first + batch;
            slice(
                of_keys.clone(),
                &[sequences, 0..kv_heads, 0..k_len, 0..head_dim],
            )
        };
        [of_queries, part(0), part(batch)]
    })
}

/// The gradient of the output of a fused projection with rotated queries and keys.
fn fused_gradient<R: CubeRuntime, B: OnRuntime<R>>(state: Tiled<B>, grad: Queued<R>) -> Queued<R> {
    let shape = state.inputs[0].shape.clone();
    let task = state.task;
    let [gradient] = queue_backward(state, grad, [shape.clone()], move |operands, results| {
        let gradient = empty(&operands.q, shape.clone(), operands.q.dtype);
        let firsts = [0, task.heads, task.heads + task.kv_heads];
        let strides = firsts.map(|first| VectorStrides::of(&gradient, first, task.head_dim));
        backward(operands, results, [&gradient, &gradient], strides);
        [gradient]
    });
    gradient
}
