//! Measures linear layers, attention, the head's loss and rotary embeddings.

use burn::tensor::ops::{FloatTensorOps, IntTensor};
use burn_flex::Flex;
use emberlm_kernels::{
    AttentionKernels, AttentionMask, AttentionOptions, Backend, HeadLossOptions, LinearInputs,
    Precision, Reach, RotaryAngles, RotaryLayout, SelfAttention, cpu, reference,
};

use crate::{BATCH, Float, HIDDEN, SEQ, TOKENS, VOCAB, WIDTH, assert_within, ids, is_amd, numbers};

const CONFIG: SelfAttention = SelfAttention {
    heads: 8,
    kv_heads: 4,
    head_dim: 32,
    options: OPTIONS,
};
const OPTIONS: AttentionOptions = AttentionOptions {
    reach: Reach::Causal,
    scale: 0.17,
    soft_cap: None,
    dropout: 0.0,
    precision: Precision::F32,
};
const F32: Precision = Precision::F32;

/// Sizes of linear layers with so few inputs that bias and residual are half of the work, which exposes separate
/// additions. The residual is not shared, as in training, so it can be updated in place.
const SHALLOW: [[usize; 2]; 3] = [[8 * TOKENS, 16], [16, WIDTH], [8 * TOKENS, WIDTH]];

#[test]
fn linear() {
    let [x, weight, _] = SHALLOW.map(numbers);
    let bias = numbers([WIDTH]);
    let inputs = |residual| LinearInputs::<Flex> {
        x: x.clone(),
        weight: weight.clone(),
        bias: Some(bias.clone()),
        residual: Some(residual),
    };
    let held = || Some(numbers(SHALLOW[2]));
    let (mut ours, mut composed) = (held(), held());
    assert_within(
        0.8,
        || {
            let made = |residual| <Flex as Backend>::linear(inputs(residual), F32);
            ours = ours.take().map(made);
        },
        || {
            let made = |residual| reference::linear::<Flex>(inputs(residual), F32);
            composed = composed.take().map(made);
        },
    );
}

#[test]
fn linear_backward() {
    let [grad, transposed, x] = SHALLOW.map(numbers);
    let weight = Flex::float_transpose(transposed);
    let mut held = Some(x.clone());
    let inputs = || (x.clone(), weight.clone(), grad.clone());
    // The weight's gradient is a plain product, which takes equally long in both.
    let wanted = [true, false, true];
    assert_within(
        0.85,
        || {
            let (x, weight, grad) = inputs();
            let mut made = Flex::linear_backward(x, weight, grad, held.take(), wanted, F32);
            held = made.x.take();
            made
        },
        || {
            let (x, weight, grad) = inputs();
            let added = Some(x.clone());
            reference::linear_backward::<Flex>(x, weight, grad, added, wanted, F32)
        },
    );
}

/// Products are not slower than Burn's own, which use the same crate.
#[test]
fn linear_is_as_fast_as_burn() {
    for [rows, inner, columns] in [[TOKENS, WIDTH, HIDDEN], [TOKENS, HIDDEN, WIDTH]] {
        let (x, weight) = (numbers([rows, inner]), numbers([inner, columns]));
        let inputs = || LinearInputs::<Flex> {
            x: x.clone(),
            weight: weight.clone(),
            bias: None,
            residual: None,
        };
        assert_within(
            1.0 / 0.8,
            || <Flex as Backend>::linear(inputs(), F32),
            || Flex::float_matmul(x.clone(), weight.clone()),
        );
    }
}

/// A head's logits for several sequences, as in serving, without packing its weight.
#[test]
fn logits_of_several_rows() {
    let (x, weight) = (numbers([16, WIDTH]), numbers([VOCAB, WIDTH]));
    let inputs = || LinearInputs::<Flex> {
        x: x.clone(),
        weight: Flex::float_transpose(weight.clone()),
        bias: None,
        residual: None,
    };
    assert_within(
        0.7,
        || <Flex as Backend>::linear(inputs(), F32),
        || reference::linear::<Flex>(inputs(), F32),
    );
}

#[test]
fn linear_in_bf16() {
    // Intel's CPUs execute fewer dot products in bf16 than multiply-adds in f32: 1.5 of the time on a Xeon.
    if !cpu::bf16::supported() || !is_amd() {
        return;
    }
    let (x, weight) = (numbers([TOKENS, HIDDEN]), numbers([HIDDEN, HIDDEN]));
    let inputs = || LinearInputs::<Flex> {
        x: x.clone(),
        weight: weight.clone(),
        bias: None,
        residual: None,
    };
    assert_within(
        0.75,
        || <Flex as Backend>::linear(inputs(), Precision::Bf16),
        || <Flex as Backend>::linear(inputs(), F32),
    );
}

type Tiled = <Flex as Backend>::Attention;

fn mask() -> AttentionMask<Flex> {
    AttentionMask::default()
}

fn qkv() -> (Float, Option<RotaryAngles<Flex>>) {
    let heads = CONFIG.heads + 2 * CONFIG.kv_heads;
    let angles = RotaryAngles {
        layout: RotaryLayout::HalfSplit,
        cos: numbers([SEQ, CONFIG.head_dim / 2]),
        sin: numbers([SEQ, CONFIG.head_dim / 2]),
    };
    (numbers([BATCH, SEQ, heads * CONFIG.head_dim]), Some(angles))
}

#[test]
fn self_attention() {
    let (qkv, angles) = qkv();
    assert_within(
        0.4,
        || Tiled::self_attention_training(qkv.clone(), angles.clone(), mask(), CONFIG),
        || reference::self_attention_training::<Flex>(qkv.clone(), angles.clone(), mask(), CONFIG),
    );
}

#[test]
fn self_attention_backward() {
    let (qkv, angles) = qkv();
    let (_, ours) = Tiled::self_attention_training(qkv.clone(), angles.clone(), mask(), CONFIG);
    let (_, composed) =
        reference::self_attention_training::<Flex>(qkv, angles.clone(), mask(), CONFIG);
    let grad = numbers([BATCH, SEQ, CONFIG.heads * CONFIG.head_dim]);
    assert_within(
        0.6,
        || {
            Tiled::self_attention_backward(
                ours.clone(),
                angles.clone(),
                grad.clone(),
                CONFIG,
                false,
            )
        },
        || {
            let (state, angles) = (composed.clone(), angles.clone());
            reference::self_attention_backward::<Flex>(state, angles, grad.clone(), CONFIG, false)
        },
    );
}

/// A single query over many keys, as in generation.
#[test]
fn attention_of_one_query() {
    let q = numbers([1, CONFIG.heads, 1, CONFIG.head_dim]);
    let [k, v] = [(); 2].map(|()| numbers([1, CONFIG.heads, 4 * SEQ, CONFIG.head_dim]));
    assert_within(
        0.85,
        || Tiled::attention(q.clone(), k.clone(), v.clone(), mask(), OPTIONS),
        || reference::attention::<Flex>(q.clone(), k.clone(), v.clone(), mask(), OPTIONS),
    );
}

/// Hidden states, the head's weight, and targets. The head is narrow, so the exponentials are a large part of the
/// work.
fn head() -> impl Fn() -> (Float, Float, IntTensor<Flex>) + Sync {
    let width = WIDTH / 4;
    let (hidden, weight) = (numbers([SEQ, width]), numbers([VOCAB, width]));
    let targets = ids([SEQ]);
    move || (hidden.clone(), weight.clone(), targets.clone())
}

#[test]
fn head_loss() {
    let (inputs, options) = (head(), HeadLossOptions::default());
    let rows = reference::rows_per_block(VOCAB, reference::BLOCK_BYTES);
    assert_within(
        0.7,
        || {
            let (hidden, weight, targets) = inputs();
            Flex::head_loss(hidden, vec![weight], targets, options, F32)
        },
        || {
            let (hidden, weight, targets) = inputs();
            reference::head_loss::<Flex>(hidden, vec![weight], targets, options, rows, F32)
        },
    );
}

#[test]
fn head_loss_gradients() {
    let (inputs, options) = (head(), HeadLossOptions::default());
    let rows = reference::rows_per_block(VOCAB, reference::BLOCK_BYTES);
    assert_within(
        0.85,
        || {
            let (hidden, weight, targets) = inputs();
            Flex::head_loss_gradients(hidden, vec![weight], targets, options, F32)
        },
        || {
            let (hidden, weight, targets) = inputs();
            reference::head_loss_gradients::<Flex>(
                hidden,
                vec![weight],
                targets,
                options,
                rows,
                F32,
            )
        },
    );
}

#[test]
fn rotary() {
    let x = numbers([BATCH, CONFIG.heads, SEQ, CONFIG.head_dim]);
    let (_, angles) = qkv();
    let RotaryAngles { cos, sin, .. } = angles.unwrap();
    for layout in [RotaryLayout::HalfSplit, RotaryLayout::Interleaved] {
        assert_within(
            0.1,
            || Flex::rotary(layout, x.clone(), cos.clone(), sin.clone()),
            || reference::rotary::<Flex>(layout, x.clone(), cos.clone(), sin.clone()),
        );
    }
}
