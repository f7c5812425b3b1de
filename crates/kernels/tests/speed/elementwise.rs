//! Measures normalization, activations, embeddings and optimizer steps.

use burn::tensor::Tensor;
use burn::tensor::ops::ModuleOps;
use burn_flex::Flex;
use emberlm_kernels::{Activation, AdamWStep, Backend, Normalization, reference};

use crate::{BATCH, HIDDEN, SEQ, TOKENS, VOCAB, WIDTH, assert_within, ids, is_amd, numbers};

const NORM: Normalization = Normalization::Layer { epsilon: 1e-5 };

#[test]
fn normalize() {
    let (x, gain) = (numbers([TOKENS, WIDTH]), Some(numbers([WIDTH])));
    assert_within(
        0.85,
        || Flex::normalize(NORM, x.clone(), gain.clone(), gain.clone()),
        || reference::normalize::<Flex>(NORM, x.clone(), gain.clone(), gain.clone()),
    );
}

#[test]
fn normalize_backward() {
    let (x, gain) = (numbers([TOKENS, WIDTH]), Some(numbers([WIDTH])));
    let grad = numbers([TOKENS, WIDTH]);
    let inputs = || (x.clone(), gain.clone(), grad.clone());
    assert_within(
        0.7,
        || {
            let (x, gain, grad) = inputs();
            Flex::normalize_backward(NORM, x, gain, true, grad, None)
        },
        || {
            let (x, gain, grad) = inputs();
            reference::normalize_backward::<Flex>(NORM, x, gain, true, grad, None)
        },
    );
}

#[test]
fn activation() {
    let x = numbers([TOKENS, HIDDEN]);
    for (kind, most) in [
        (Activation::Gelu, 0.8),
        (Activation::GeluTanh, 0.45),
        (Activation::Silu, 0.45),
    ] {
        assert_within(
            most,
            || Flex::activation(kind, x.clone()),
            || reference::activation::<Flex>(kind, x.clone()),
        );
    }
}

#[test]
fn activation_and_its_backward() {
    let (x, grad) = (numbers([TOKENS, HIDDEN]), numbers([TOKENS, HIDDEN]));
    for (kind, most) in [
        (Activation::Gelu, 0.5),
        (Activation::GeluTanh, 0.45),
        (Activation::Silu, 0.45),
    ] {
        assert_within(
            most,
            || {
                let (out, kept) = Flex::activation_training(kind, x.clone());
                (out, Flex::activation_backward(kind, kept, grad.clone()))
            },
            || {
                let out = reference::activation::<Flex>(kind, x.clone());
                let grad = reference::activation_backward::<Flex>(kind, x.clone(), grad.clone());
                (out, grad)
            },
        );
    }
}

#[test]
fn gated() {
    let (gate, up) = (numbers([TOKENS, HIDDEN]), numbers([TOKENS, HIDDEN]));
    let kind = Activation::Silu;
    assert_within(
        0.3,
        || Flex::gated(kind, gate.clone(), up.clone()),
        || reference::gated::<Flex>(kind, gate.clone(), up.clone()),
    );
}

#[test]
fn gated_backward() {
    let [gate, up, grad] = [(); 3].map(|()| numbers([TOKENS, HIDDEN]));
    let kind = Activation::Silu;
    assert_within(
        0.3,
        || Flex::gated_backward(kind, gate.clone(), up.clone(), grad.clone()),
        || reference::gated_backward::<Flex>(kind, gate.clone(), up.clone(), grad.clone()),
    );
}

#[test]
fn adamw() {
    let step = AdamWStep {
        rate: 1e-6,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        decay: 0.1,
        step: 3,
    };
    let (grad, factor) = (numbers([HIDDEN, WIDTH]), Some(numbers([1])));
    // The tensors are not shared, as in training, so they can be updated in place.
    let held = || Some([(); 3].map(|()| numbers([HIDDEN, WIDTH])));
    let (mut ours, mut composed) = (held(), held());
    assert_within(
        0.6,
        || {
            let [p, m, v] = ours.take().unwrap();
            let (p, m, v) = Flex::adamw(p, grad.clone(), (m, v), factor.clone(), step);
            ours = Some([p, m, v]);
        },
        || {
            let [p, m, v] = composed.take().unwrap();
            let (grad, factor) = (grad.clone(), factor.clone());
            let (p, m, v) = reference::clipped_adamw::<Flex>(p, grad, (m, v), factor, step);
            composed = Some([p, m, v]);
        },
    );
}

#[test]
fn sum_of_squares() {
    let x = numbers([WIDTH, WIDTH]);
    assert_within(
        0.85,
        || Flex::sum_of_squares(x.clone()),
        || reference::sum_of_squares::<Flex>(x.clone()),
    );
}

/// Burn's own lookup is a plain copy too, so this only tests that ours is not slower.
#[test]
fn embedding() {
    let (table, ids) = (numbers([VOCAB, WIDTH]), ids::<2>([BATCH, SEQ]));
    assert_within(
        1.25,
        || <Flex as Backend>::embedding(table.clone(), ids.clone()),
        || <Flex as ModuleOps<Flex>>::embedding(table.clone(), ids.clone()),
    );
}

#[test]
fn embedding_backward() {
    let (table, ids) = (numbers([VOCAB, WIDTH]), ids::<2>([BATCH, SEQ]));
    let grad = numbers([BATCH, SEQ, WIDTH]);
    let inputs = || (table.clone(), ids.clone(), grad.clone());
    let mut held = Some(numbers([VOCAB, WIDTH]));
    assert_within(
        0.6,
        || {
            let (table, ids, grad) = inputs();
            let added = held.take();
            held = Some(<Flex as Backend>::embedding_backward(
                table, ids, grad, added,
            ));
        },
        || {
            let (table, ids, grad) = inputs();
            let added = Some(table.clone());
            reference::embedding_backward::<Flex>(table, ids, grad, added)
        },
    );
}

#[test]
fn scaled() {
    let factor = Tensor::<Flex, 1>::from_data([0.999_999], &Default::default());
    let factor = factor.into_primitive().tensor();
    let held = || Some(numbers([WIDTH, WIDTH]));
    let (mut ours, mut composed) = (held(), held());
    // On a Xeon both are equally fast: the caches are the limit.
    let most = if is_amd() { 0.9 } else { 1.1 };
    assert_within(
        most,
        || ours = ours.take().map(|x| Flex::scaled(x, factor.clone())),
        || {
            let scaled = |x| reference::scaled::<Flex>(x, factor.clone());
            composed = composed.take().map(scaled);
        },
    );
}
