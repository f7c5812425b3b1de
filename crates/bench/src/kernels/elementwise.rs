//! Memory-bound operations: norms, activations, rotary positions, embeddings, and the optimizer's updates.

use burn::tensor::ops::ModuleOps;
use emberlm_kernels::{Activation, AdamWStep, Backend, Normalization, RotaryLayout, reference};

use super::measurements::{Measurements, Work};
use super::workload::Workload;

/// Measures all memory-bound operations.
pub fn measure<B: Backend>(measurements: &mut Measurements<'_, B>, workload: &Workload) {
    normalize(measurements, workload);
    activation(measurements, workload);
    gated(measurements, workload);
    rotary(measurements, workload);
    embedding(measurements, workload);
    optimizer(measurements, workload);
}

fn normalize<B: Backend>(measurements: &mut Measurements<'_, B>, workload: &Workload) {
    let shape = [workload.tokens(), workload.width];
    let count = workload.tokens() * workload.width;
    let kind = Normalization::Layer { epsilon: 1e-5 };
    measurements.composed("normalize", Work::numbers(2 * count), |random| {
        let (x, row) = (random.floats(shape), random.floats([workload.width]));
        let inputs = move || (x.clone(), Some(row.clone()), Some(row.clone()));
        let again = inputs.clone();
        (
            move || {
                let (x, gain, bias) = inputs();
                B::normalize(kind, x, gain, bias)
            },
            move || {
                let (x, gain, bias) = again();
                reference::normalize::<B>(kind, x, gain, bias)
            },
        )
    });
    measurements.composed("normalize_backward", Work::numbers(3 * count), |random| {
        let (x, row) = (random.floats(shape), random.floats([workload.width]));
        let grad = random.floats(shape);
        let inputs = move || (x.clone(), Some(row.clone()), grad.clone());
        let again = inputs.clone();
        (
            move || {
                let (x, gain, grad) = inputs();
                B::normalize_backward(kind, x, gain, true, grad, None)
            },
            move || {
                let (x, gain, grad) = again();
                reference::normalize_backward::<B>(kind, x, gain, true, grad, None)
            },
        )
    });
}

fn activation<B: Backend>(measurements: &mut Measurements<'_, B>, workload: &Workload) {
    let shape = [workload.tokens(), workload.hidden];
    let count = workload.tokens() * workload.hidden;
    let kind = Activation::Gelu;
    measurements.composed("activation", Work::numbers(2 * count), |random| {
        let x = random.floats(shape);
        let again = x.clone();
        (
            move || B::activation(kind, x.clone()),
            move || reference::activation::<B>(kind, again.clone()),
        )
    });
    measurements.composed(
        "activation and backward",
        Work::numbers(5 * count),
        |random| {
            let (x, grad) = (random.floats(shape), random.floats(shape));
            let inputs = move || (x.clone(), grad.clone());
            let again = inputs.clone();
            (
                move || {
                    let (x, grad) = inputs();
                    let (out, kept) = B::activation_training(kind, x);
                    (out, B::activation_backward(kind, kept, grad))
                },
                move || {
                    let (x, grad) = again();
                    let out = reference::activation::<B>(kind, x.clone());
                    (out, reference::activation_backward::<B>(kind, x, grad))
                },
            )
        },
    );
}

fn gated<B: Backend>(measurements: &mut Measurements<'_, B>, workload: &Workload) {
    let shape = [workload.tokens(), workload.hidden];
    let count = workload.tokens() * workload.hidden;
    let kind = Activation::Silu;
    measurements.composed("gated", Work::numbers(3 * count), |random| {
        let (gate, up) = (random.floats(shape), random.floats(shape));
        let inputs = move || (gate.clone(), up.clone());
        let again = inputs.clone();
        (
            move || {
                let (gate, up) = inputs();
                B::gated(kind, gate, up)
            },
            move || {
                let (gate, up) = again();
                reference::gated::<B>(kind, gate, up)
            },
        )
    });
    measurements.composed("gated_backward", Work::numbers(5 * count), |random| {
        let [gate, up, grad] = [(); 3].map(|()| random.floats(shape));
        let inputs = move || (gate.clone(), up.clone(), grad.clone());
        let again = inputs.clone();
        (
            move || {
                let (gate, up, grad) = inputs();
                B::gated_backward(kind, gate, up, grad)
            },
            move || {
                let (gate, up, grad) = again();
                reference::gated_backward::<B>(kind, gate, up, grad)
            },
        )
    });
}

fn rotary<B: Backend>(measurements: &mut Measurements<'_, B>, workload: &Workload) {
    let Workload {
        batch, seq, heads, ..
    } = *workload;
    let head_dim = workload.head_dim();
    let layout = RotaryLayout::HalfSplit;
    let work = Work::numbers(2 * workload.tokens() * workload.width);
    measurements.composed("rotary", work, |random| {
        let x = random.floats([batch, heads, seq, head_dim]);
        let [cos, sin] = [(); 2].map(|()| random.floats([seq, head_dim / 2]));
        let inputs = move || (x.clone(), cos.clone(), sin.clone());
        let again = inputs.clone();
        (
            move || {
                let (x, cos, sin) = inputs();
                B::rotary(layout, x, cos, sin)
            },
            move || {
                let (x, cos, sin) = again();
                reference::rotary::<B>(layout, x, cos, sin)
            },
        )
    });
}

/// The reference implementation is Burn's lookup.
fn embedding<B: Backend>(measurements: &mut Measurements<'_, B>, workload: &Workload) {
    let Workload {
        batch,
        seq,
        width,
        vocab,
        ..
    } = *workload;
    let rows = workload.tokens() * width;
    measurements.composed("embedding", Work::numbers(2 * rows), |random| {
        let (table, ids) = (
            random.floats([vocab, width]),
            random.ids([batch, seq], vocab),
        );
        let inputs = move || (table.clone(), ids.clone());
        let again = inputs.clone();
        (
            move || {
                let (table, ids) = inputs();
                <B as Backend>::embedding(table, ids)
            },
            move || {
                let (table, ids) = again();
                <B as ModuleOps<B>>::embedding(table, ids)
            },
        )
    });
    let work = Work::numbers(vocab * width + 3 * rows);
    measurements.composed("embedding_backward", work, |random| {
        let (table, ids) = (
            random.floats([vocab, width]),
            random.ids([batch, seq], vocab),
        );
        let grad = random.floats([batch, seq, width]);
        let inputs = move || (table.clone(), ids.clone(), grad.clone());
        let again = inputs.clone();
        (
            move || {
                let (table, ids, grad) = inputs();
                <B as Backend>::embedding_backward(table, ids, grad, None)
            },
            move || {
                let (table, ids, grad) = again();
                reference::embedding_backward::<B>(table, ids, grad, None)
            },
        )
    });
}

/// The update of a matrix, and the clipping of its gradient.
fn optimizer<B: Backend>(measurements: &mut Measurements<'_, B>, workload: &Workload) {
    let shape = [workload.width, workload.hidden];
    let count = workload.width * workload.hidden;
    let step = AdamWStep {
        rate: 1e-6,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        decay: 0.1,
        step: 3,
    };
    measurements.composed("adamw", Work::numbers(7 * count), |random| {
        let (grad, factor) = (random.floats(shape), random.number(0.5));
        let again = (grad.clone(), factor.clone());
        // As in training, the tensors have one owner, so that they can be updated in place.
        let held = || Some([(); 3].map(|()| random.positive(shape)));
        let (mut ours, mut other) = (held(), held());
        (
            move || {
                let moved = ours
                    .take()
                    .map(|[p, m, v]| B::adamw(p, grad.clone(), (m, v), Some(factor.clone()), step));
                ours = moved.map(<[_; 3]>::from);
            },
            move || {
                let moved = other.take().map(|[p, m, v]| {
                    let (grad, factor) = again.clone();
                    reference::clipped_adamw::<B>(p, grad, (m, v), Some(factor), step)
                });
                other = moved.map(<[_; 3]>::from);
            },
        )
    });
    measurements.composed("sum_of_squares", Work::numbers(count), |random| {
        let x = random.floats(shape);
        let again = x.clone();
        (
            move || B::sum_of_squares(x.clone()),
            move || reference::sum_of_squares::<B>(again.clone()),
        )
    });
    measurements.composed("scaled", Work::numbers(2 * count), |random| {
        // Close to 1, so that repeated scaling keeps the magnitude of the numbers.
        let factor = random.number(0.999_999);
        let again = factor.clone();
        let (mut ours, mut other) = (Some(random.floats(shape)), Some(random.floats(shape)));
        (
            move || ours = ours.take().map(|x| B::scaled(x, factor.clone())),
            move || {
                let scaled = |x| reference::scaled::<B>(x, again.clone());
                other = other.take().map(scaled);
            },
        )
    });
}
