//! Operations with matrix products: linear layers, attention, and the loss of the head.

use emberlm_kernels::{
    AttentionKernels, AttentionMask, AttentionOptions, Backend, HeadLossInputs, HeadLossOptions,
    LinearInputs, Precision, Reach, RotaryAngles, RotaryLayout, SelfAttention, reference,
};

use super::{Operation, Random, Work};

const F32: Precision = Precision::F32;

/// A linear layer: its rows, inputs and outputs.
pub type LinearSize = [usize; 3];

/// The additions and multiplications of a linear layer.
fn linear_flops([rows, inputs, outputs]: LinearSize) -> f64 {
    2.0 * (rows * inputs * outputs) as f64
}

fn linear_inputs<B: Backend>(
    random: &Random<B>,
    [rows, inputs, outputs]: LinearSize,
    residual: bool,
) -> LinearInputs<B> {
    LinearInputs {
        x: random.floats([rows, inputs]),
        weight: random.floats([inputs, outputs]),
        bias: Some(random.floats([outputs])),
        residual: residual.then(|| random.floats([rows, outputs])),
    }
}

/// A linear layer with a bias.
pub fn linear<B: Backend>(size: LinearSize) -> Operation<B> {
    Operation::<B>::new(
        "linear",
        Work::Flops(linear_flops(size)),
        move |random| linear_inputs(random, size, false),
        |inputs| <B as Backend>::linear(inputs, F32),
        |inputs| reference::linear::<B>(inputs, F32),
    )
}

/// A linear layer with a bias and a residual.
pub fn linear_residual<B: Backend>(size: LinearSize) -> Operation<B> {
    Operation::<B>::new(
        "linear_residual",
        Work::Flops(linear_flops(size)),
        move |random| linear_inputs(random, size, true),
        |inputs| <B as Backend>::linear(inputs, F32),
        |inputs| reference::linear::<B>(inputs, F32),
    )
}

/// A linear layer in bf16, compared with f32.
pub fn linear_bf16<B: Backend>(size: LinearSize) -> Operation<B> {
    Operation::<B>::new(
        "linear_bf16",
        Work::Flops(linear_flops(size)),
        move |random| linear_inputs(random, size, false),
        |inputs| <B as Backend>::linear(inputs, Precision::Bf16),
        |inputs| <B as Backend>::linear(inputs, F32),
    )
    .against("f32")
}

fn linear_gradients<B: Backend>(
    random: &Random<B>,
    [rows, inputs, outputs]: LinearSize,
) -> [burn::tensor::ops::FloatTensor<B>; 3] {
    [[rows, inputs], [inputs, outputs], [rows, outputs]].map(|shape| random.floats(shape))
}

/// The backward pass of a linear layer.
pub fn linear_backward<B: Backend>(size: LinearSize) -> Operation<B> {
    let all = [true; 3];
    Operation::<B>::new(
        "linear_backward",
        Work::Flops(2.0 * linear_flops(size)),
        move |random| linear_gradients(random, size),
        move |[x, weight, grad]| B::linear_backward(x, weight, grad, None, all, F32),
        move |[x, weight, grad]| reference::linear_backward::<B>(x, weight, grad, None, all, F32),
    )
}

/// The backward pass of a linear layer in bf16, compared with f32.
pub fn linear_backward_bf16<B: Backend>(size: LinearSize) -> Operation<B> {
    let all = [true; 3];
    Operation::<B>::new(
        "linear_backward_bf16",
        Work::Flops(2.0 * linear_flops(size)),
        move |random| linear_gradients(random, size),
        move |[x, weight, grad]| B::linear_backward(x, weight, grad, None, all, Precision::Bf16),
        move |[x, weight, grad]| B::linear_backward(x, weight, grad, None, all, F32),
    )
    .against("f32")
}

/// Causal attention without a window.
pub fn attention_options(head_dim: usize) -> AttentionOptions {
    AttentionOptions {
        reach: Reach::Causal,
        scale: (head_dim as f64).sqrt().recip(),
        soft_cap: None,
        dropout: 0.0,
        precision: F32,
    }
}

/// Sequences of queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Sequences.
    pub batch: usize,
    /// Tokens of a sequence.
    pub seq: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

impl Attention {
    fn config(self, precision: Precision) -> SelfAttention {
        SelfAttention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            options: AttentionOptions {
                precision,
                ..attention_options(self.head_dim)
            },
        }
    }

    /// The work of a product of all queries with the keys that they see.
    fn product(self) -> f64 {
        let seen = self.batch * self.heads * self.seq * (self.seq + 1) / 2;
        2.0 * (seen * self.head_dim) as f64
    }

    /// The output of a fused projection, rotated if key-value heads are shared as in PocketTransformer.
    fn inputs<B: Backend>(
        self,
        random: &Random<B>,
    ) -> (burn::tensor::ops::FloatTensor<B>, Option<RotaryAngles<B>>) {
        let heads = self.heads + 2 * self.kv_heads;
        let half = [self.seq, self.head_dim / 2];
        let angles = (self.heads != self.kv_heads).then(|| RotaryAngles::<B> {
            layout: RotaryLayout::HalfSplit,
            cos: random.floats(half),
            sin: random.floats(half),
        });
        let qkv = random.floats([self.batch, self.seq, heads * self.head_dim]);
        (qkv, angles)
    }
}

/// Attention of training.
pub fn self_attention<B: Backend>(size: Attention) -> Operation<B> {
    let (config, mask) = (size.config(F32), AttentionMask::default);
    Operation::<B>::new(
        "self_attention",
        Work::Flops(2.0 * size.product()),
        move |random| size.inputs(random),
        move |(qkv, angles)| B::Attention::self_attention_training(qkv, angles, mask(), config),
        move |(qkv, angles)| reference::self_attention_training::<B>(qkv, angles, mask(), config),
    )
}

/// The backward pass of attention.
pub fn self_attention_backward<B: Backend>(size: Attention) -> Operation<B> {
    let (config, mask) = (size.config(F32), AttentionMask::default);
    Operation::<B>::new(
        "self_attention_backward",
        Work::Flops(4.0 * size.product()),
        move |random| {
            let (qkv, angles) = size.inputs(random);
            let (again, rotation) = (qkv.clone(), angles.clone());
            let grad = random.floats([size.batch, size.seq, size.heads * size.head_dim]);
            let (_, ours) = B::Attention::self_attention_training(again, rotation, mask(), config);
            let rotation = angles.clone();
            let (_, other) = reference::self_attention_training::<B>(qkv, rotation, mask(), config);
            (ours, other, angles, grad)
        },
        move |(state, _, angles, grad)| {
            B::Attention::self_attention_backward(state, angles, grad, config, false)
        },
        move |(_, state, angles, grad)| {
            reference::self_attention_backward::<B>(state, angles, grad, config, false)
        },
    )
}

/// Attention of training in bf16, compared with f32.
pub fn self_attention_bf16<B: Backend>(size: Attention) -> Operation<B> {
    let attend = move |(qkv, angles), precision| {
        let (mask, config) = (AttentionMask::default(), size.config(precision));
        B::Attention::self_attention_training(qkv, angles, mask, config)
    };
    Operation::<B>::new(
        "self_attention_bf16",
        Work::Flops(2.0 * size.product()),
        move |random| size.inputs(random),
        move |inputs| attend(inputs, Precision::Bf16),
        move |inputs| attend(inputs, F32),
    )
    .against("f32")
}

/// The backward pass of attention in bf16, compared with f32.
pub fn self_attention_backward_bf16<B: Backend>(size: Attention) -> Operation<B> {
    let differentiate = move |(state, angles, grad), precision| {
        let config = size.config(precision);
        B::Attention::self_attention_backward(state, angles, grad, config, false)
    };
    Operation::<B>::new(
        "self_attention_backward_bf16",
        Work::Flops(4.0 * size.product()),
        move |random| {
            let (qkv, angles) = size.inputs(random);
            let (mask, config, kept) = (AttentionMask::default(), size.config(F32), angles.clone());
            let grad = random.floats([size.batch, size.seq, size.heads * size.head_dim]);
            let (_, state) = B::Attention::self_attention_training(qkv, angles, mask, config);
            (state, kept, grad)
        },
        move |inputs| differentiate(inputs, Precision::Bf16),
        move |inputs| differentiate(inputs, F32),
    )
    .against("f32")
}

/// Attention of a single query to a cache, as in generation.
pub fn attention_decode<B: Backend>(size: Attention) -> Operation<B> {
    let options = attention_options(size.head_dim);
    let cache = [1, size.kv_heads, size.seq, size.head_dim];
    Operation::<B>::new(
        "attention_decode",
        Work::numbers(2 * cache.iter().product::<usize>()),
        move |random| {
            let q = random.floats([1, size.heads, 1, size.head_dim]);
            (q, random.floats(cache), random.floats(cache))
        },
        move |(q, k, v)| B::Attention::attention(q, k, v, AttentionMask::default(), options),
        move |(q, k, v)| reference::attention::<B>(q, k, v, AttentionMask::default(), options),
    )
}

/// A head: tokens, width and vocabulary.
pub type HeadSize = [usize; 3];

type HeadInputs<B> = (
    burn::tensor::ops::FloatTensor<B>,
    Vec<burn::tensor::ops::FloatTensor<B>>,
    burn::tensor::ops::IntTensor<B>,
);

fn head_inputs<B: Backend>(random: &Random<B>, [tokens, width, vocab]: HeadSize) -> HeadInputs<B> {
    let weight = vec![random.floats([vocab, width])];
    (
        random.floats([tokens, width]),
        weight,
        random.ids([tokens], vocab),
    )
}

fn head_flops([tokens, width, vocab]: HeadSize) -> f64 {
    2.0 * (tokens * width * vocab) as f64
}

/// The loss of the head.
pub fn head_loss<B: Backend>(size: HeadSize) -> Operation<B> {
    let options = HeadLossOptions::default();
    let rows = reference::rows_per_block(size[2], reference::BLOCK_BYTES);
    Operation::<B>::new(
        "head_loss",
        Work::Flops(head_flops(size)),
        move |random| head_inputs(random, size),
        move |(hidden, weight, targets)| {
            B::head_loss(HeadLossInputs {
                hidden,
                weights: weight,
                targets,
                options,
                precision: F32,
            })
        },
        move |(hidden, weight, targets)| {
            reference::head_loss::<B>(
                HeadLossInputs {
                    hidden,
                    weights: weight,
                    targets,
                    options,
                    precision: F32,
                },
                rows,
            )
        },
    )
}

/// The loss of the head and its gradients.
pub fn head_loss_gradients<B: Backend>(size: HeadSize) -> Operation<B> {
    let options = HeadLossOptions::default();
    let rows = reference::rows_per_block(size[2], reference::BLOCK_BYTES);
    Operation::<B>::new(
        "head_loss_gradients",
        Work::Flops(3.0 * head_flops(size)),
        move |random| head_inputs(random, size),
        move |(hidden, weight, targets)| {
            B::head_loss_gradients(HeadLossInputs {
                hidden,
                weights: weight,
                targets,
                options,
                precision: F32,
            })
        },
        move |(hidden, weight, targets)| {
            reference::head_loss_gradients::<B>(
                HeadLossInputs {
                    hidden,
                    weights: weight,
                    targets,
                    options,
                    precision: F32,
                },
                rows,
            )
        },
    )
}
