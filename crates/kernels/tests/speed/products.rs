//! Linear maps, attention, the head's loss, and rotary positions.

use burn::tensor::ops::{FloatTensorOps, IntTensor};
use burn_flex::Flex;
use emberlm_kernels::{
    AttentionKernels, AttentionMask, AttentionOptions, Backend, HeadLossOptions, LinearInputs,
    Precision, Reach, RotaryAngles, RotaryLayout, SelfAttention, cpu, reference,
};

use crate::{BATCH, Float, HIDDEN, SEQ, TOKENS, VOCAB, WIDTH, assert_within, ids, numbers};

const HOW: SelfAttention = SelfAttention {
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

/// Linear maps so shallow that bias and residual are half of the work: a body composed of a product and additions shows.
/// What they are added to is held by nobody else, as in training, and so written in place.
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
    // The weight's gradient is only a product, and takes as long in both.
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

/// Its products are no slower than Burn's own, which come from the same crate.
#[test]
fn linear_multiplies_as_fast_as_burn() {
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

/// A head's logits of several sequences, as in serving, without packing its weight.
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
    if !cpu::bf16::supported() {
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
    let heads = HOW.heads + 2 * HOW.kv_heads;
    let angles = RotaryAngles {
        layout: RotaryLayout::HalfSplit,
        cos: numbers([SEQ, HOW.head_dim / 2]),
        sin: numbers([SEQ, HOW.head_dim / 2]),
    };
    (numbers([BATCH, SEQ, heads * HOW.head_dim]), Some(angles))
}

#[test]
fn self_attention() {
    let (qkv, angles) = qkv();
    assert_within(
        0.4,
        || Tiled::self_attention_training(qkv.clone(), angles.clone(), mask(), HOW),
        || reference::self_attention_training::<Flex>(qkv.clone(), angles.clone(), mask(), HOW),
    );
}

#[test]
fn self_attention_backward() {
    let (qkv, angles) = qkv();
    let (_, ours) = Tiled::self_attention_training(qkv.clone(), angles.clone(), mask(), HOW);
    let (_, composed) =
        reference::self_attention_training::<Flex>(qkv, angles.clone(), mask(), HOW);
    let grad = numbers([BATCH, SEQ, HOW.heads * HOW.head_dim]);
    assert_within(
        0.6,
        || Tiled::self_attention_backward(ours.clone(), angles.clone(), grad.clone(), HOW, false),
        || {
            let (state, angles) = (composed.clone(), angles.clone());
            reference::self_attention_backward::<Flex>(state, angles, grad.clone(), HOW, false)
        },
    );
}

/// One query over many keys, as in generation.
#[test]
fn attention_of_one_query() {
    let q = numbers([1, HOW.heads, 1, HOW.head_dim]);
    let [k, v] = [(); 2].map(|()| numbers([1, HOW.heads, 4 * SEQ, HOW.head_dim]));
    assert_within(
        0.85,
        || Tiled::attention(q.clone(), k.clone(), v.clone(), mask(), OPTIONS),
        || reference::attention::<Flex>(q.clone(), k.clone(), v.clone(), mask(), OPTIONS),
    );
}

/// Hidden states, the head's weight, targets. The head is narrow, so that its exponentials are much of the work.
fn head() -> impl Fn() -> (Float, Float, IntTensor<Flex>) + Sync {
    let width = WIDTH / 4;
    let (hidden, weight) = (numbers([SEQ, width]), numbers([VOCAB, width]));
    let targets = ids([SEQ]);
    move || (hidden.clone(), weight.clone(), targets.clone())
}

#[test]
fn head_loss() {
    let (inputs, options) = (head(), HeadLossOptions::default());
    let rows = reference::rows_per_block(VOCAB);
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
    let rows = reference::rows_per_block(VOCAB);
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
    let x = numbers([BATCH, HOW.heads, SEQ, HOW.head_dim]);
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
