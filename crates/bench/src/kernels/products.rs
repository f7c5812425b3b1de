//! Operations with matrix products: linear layers, attention, and the loss of the head.

use emberlm_kernels::{
    AttentionKernels, AttentionMask, Backend, HeadLossOptions, LinearInputs, Precision,
    RotaryAngles, RotaryLayout, reference,
};

use super::measurements::{Baseline, Measurements, Random, Work};
use super::workload::Workload;

/// Measures all operations with matrix products.
pub fn measure<B: Backend>(measurements: &mut Measurements<'_, B>, workload: &Workload) {
    linear(measurements, workload);
    attention(measurements, workload);
    head(measurements, workload);
}

/// The first linear layer of the feed-forward block, and the second with the residual.
fn linear<B: Backend>(measurements: &mut Measurements<'_, B>, workload: &Workload) {
    let Workload {
        batch,
        seq,
        width,
        hidden,
        ..
    } = *workload;
    let flops = 2.0 * (workload.tokens() * width * hidden) as f64;
    let forward = |random: &Random<B>| {
        let inputs = LinearInputs::<B> {
            x: random.floats([batch, seq, width]),
            weight: random.floats([width, hidden]),
            bias: Some(random.floats([hidden])),
            residual: None,
        };
        move || inputs.clone()
    };
    let back = |random: &Random<B>| {
        let inputs = LinearInputs::<B> {
            x: random.floats([batch, seq, hidden]),
            weight: random.floats([hidden, width]),
            bias: Some(random.floats([width])),
            residual: Some(random.floats([batch, seq, width])),
        };
        move || inputs.clone()
    };
    measurements.composed("linear", Work::Flops(flops), |random| {
        let inputs = forward(random);
        let again = inputs.clone();
        (
            move || <B as Backend>::linear(inputs(), Precision::F32),
            move || reference::linear::<B>(again(), Precision::F32),
        )
    });
    measurements.composed("linear_residual", Work::Flops(flops), |random| {
        let inputs = back(random);
        let again = inputs.clone();
        (
            move || <B as Backend>::linear(inputs(), Precision::F32),
            move || reference::linear::<B>(again(), Precision::F32),
        )
    });
    measurements.pair("linear_bf16", Work::Flops(flops), Baseline::F32, |random| {
        let inputs = forward(random);
        let again = inputs.clone();
        (
            move || <B as Backend>::linear(inputs(), Precision::Bf16),
            move || <B as Backend>::linear(again(), Precision::F32),
        )
    });

    let gradients = |random: &Random<B>| {
        let x = random.floats([batch, seq, width]);
        let weight = random.floats([width, hidden]);
        let grad = random.floats([batch, seq, hidden]);
        move || (x.clone(), weight.clone(), grad.clone())
    };
    let all = [true; 3];
    let work = Work::Flops(2.0 * flops);
    measurements.composed("linear_backward", work, |random| {
        let inputs = gradients(random);
        let again = inputs.clone();
        (
            move || {
                let (x, weight, grad) = inputs();
                B::linear_backward(x, weight, grad, None, all, Precision::F32)
            },
            move || {
                let (x, weight, grad) = again();
                reference::linear_backward::<B>(x, weight, grad, None, all, Precision::F32)
            },
        )
    });
    measurements.pair("linear_backward_bf16", work, Baseline::F32, |random| {
        let inputs = gradients(random);
        let again = inputs.clone();
        (
            move || {
                let (x, weight, grad) = inputs();
                B::linear_backward(x, weight, grad, None, all, Precision::Bf16)
            },
            move || {
                let (x, weight, grad) = again();
                B::linear_backward(x, weight, grad, None, all, Precision::F32)
            },
        )
    });
}

/// Attention on the output of a fused projection, rotated if key-value heads are shared as in
/// PocketTransformer; then for a single query.
fn attention<B: Backend>(measurements: &mut Measurements<'_, B>, workload: &Workload) {
    let Workload {
        batch,
        seq,
        heads,
        kv_heads,
        ..
    } = *workload;
    let how = workload.attention();
    let head_dim = how.head_dim;
    let inputs = |random: &Random<B>| {
        let qkv = random.floats([batch, seq, (heads + 2 * kv_heads) * head_dim]);
        let angles = (heads != kv_heads).then(|| RotaryAngles::<B> {
            layout: RotaryLayout::HalfSplit,
            cos: random.floats([seq, head_dim / 2]),
            sin: random.floats([seq, head_dim / 2]),
        });
        move || (qkv.clone(), angles.clone())
    };
    // Masked pairs of positions are not counted.
    let seen = batch * heads * seq * (seq + 1) / 2;
    let product = 2.0 * (seen * head_dim) as f64;
    measurements.composed("self_attention", Work::Flops(2.0 * product), |random| {
        let inputs = inputs(random);
        let again = inputs.clone();
        (
            move || {
                let (qkv, angles) = inputs();
                B::Attention::self_attention_training(qkv, angles, AttentionMask::default(), how)
            },
            move || {
                let (qkv, angles) = again();
                reference::self_attention_training::<B>(qkv, angles, AttentionMask::default(), how)
            },
        )
    });
    let work = Work::Flops(4.0 * product);
    measurements.composed("self_attention_backward", work, |random| {
        let (qkv, angles) = inputs(random)();
        let grad = random.floats([batch, seq, heads * head_dim]);
        let mask = AttentionMask::default;
        let (_, ours) =
            B::Attention::self_attention_training(qkv.clone(), angles.clone(), mask(), how);
        let (_, other) = reference::self_attention_training::<B>(qkv, angles.clone(), mask(), how);
        let given = move || (angles.clone(), grad.clone());
        let again = given.clone();
        (
            move || {
                let (angles, grad) = given();
                B::Attention::self_attention_backward(ours.clone(), angles, grad, how, false)
            },
            move || {
                let (angles, grad) = again();
                reference::self_attention_backward::<B>(other.clone(), angles, grad, how, false)
            },
        )
    });
    let cache = Work::numbers(2 * kv_heads * seq * head_dim);
    measurements.composed("attention_decode", cache, |random| {
        let q = random.floats([1, heads, 1, head_dim]);
        let k = random.floats([1, kv_heads, seq, head_dim]);
        let v = random.floats([1, kv_heads, seq, head_dim]);
        let inputs = move || (q.clone(), k.clone(), v.clone());
        let again = inputs.clone();
        (
            move || {
                let (q, k, v) = inputs();
                B::Attention::attention(q, k, v, AttentionMask::default(), how.options)
            },
            move || {
                let (q, k, v) = again();
                reference::attention::<B>(q, k, v, AttentionMask::default(), how.options)
            },
        )
    });
}

fn head<B: Backend>(measurements: &mut Measurements<'_, B>, workload: &Workload) {
    let (tokens, width, vocab) = (workload.tokens(), workload.width, workload.vocab);
    let options = HeadLossOptions::default();
    let rows = reference::rows_per_block(vocab, reference::BLOCK_BYTES);
    let product = 2.0 * (tokens * width * vocab) as f64;
    let inputs = |random: &Random<B>| {
        let hidden = random.floats([tokens, width]);
        let weight = random.floats([vocab, width]);
        let targets = random.ids([tokens], vocab);
        move || (hidden.clone(), vec![weight.clone()], targets.clone())
    };
    measurements.composed("head_loss", Work::Flops(product), |random| {
        let inputs = inputs(random);
        let again = inputs.clone();
        (
            move || {
                let (hidden, weight, targets) = inputs();
                B::head_loss(hidden, weight, targets, options, Precision::F32)
            },
            move || {
                let (hidden, weight, targets) = again();
                reference::head_loss::<B>(hidden, weight, targets, options, rows, Precision::F32)
            },
        )
    });
    let work = Work::Flops(3.0 * product);
    measurements.composed("head_loss_gradients", work, |random| {
        let inputs = inputs(random);
        let again = inputs.clone();
        (
            move || {
                let (hidden, weight, targets) = inputs();
                B::head_loss_gradients(hidden, weight, targets, options, Precision::F32)
            },
            move || {
                let (hidden, weight, targets) = again();
                reference::head_loss_gradients::<B>(
                    hidden,
                    weight,
                    targets,
                    options,
                    rows,
                    Precision::F32,
                )
            },
        )
    });
}
