//! Activations, normalisations and rotary positions.

use burn::backend::Autodiff;
use emberlm_kernels::{Activation, Backend, Normalization, RotaryLayout, ops, reference};
use proptest::sample::select;

use crate::compare::{
    Reference, assert_all_close, constant, numbers, primitive, tracked, typed, with_gradients,
};

fn activation<B: Backend>(kind: Activation, shape: [usize; 3], seed: u64) {
    let data = numbers(seed, shape);
    let x = tracked::<Autodiff<B>, 3>(&data);
    let found = with_gradients(ops::activation(kind, x.clone()), &[&x]);
    let x = tracked::<Reference, 3>(&data);
    let y = reference::activation::<Reference>(kind, primitive(x.clone()));
    let expected = with_gradients(typed::<Reference, 3>(y), &[&x]);
    assert_all_close(&format!("{kind:?}"), &found, &expected);
}

fn normalization<B: Backend>(kind: Normalization, shape: [usize; 2], seed: u64) {
    let data = numbers(seed, shape);
    let x = tracked::<Autodiff<B>, 2>(&data);
    let found = with_gradients(ops::normalize(kind, x.clone()), &[&x]);
    let x = tracked::<Reference, 2>(&data);
    let y = reference::normalize::<Reference>(kind, primitive(x.clone()));
    let expected = with_gradients(typed::<Reference, 2>(y), &[&x]);
    assert_all_close(&format!("{kind:?}"), &found, &expected);
}

/// `rest` elements of each head are not turned.
fn rotary<B: Backend>(layout: RotaryLayout, shape: [usize; 4], rest: usize, seed: u64) {
    let [batch, heads, seq, pairs] = shape;
    let data = numbers(seed, [batch, heads, seq, 2 * pairs + rest]);
    let angles = [seq, pairs];
    let (cos, sin) = (numbers(seed + 1, angles), numbers(seed + 2, angles));
    let x = tracked::<Autodiff<B>, 4>(&data);
    let turned = ops::rotary(layout, x.clone(), constant(&cos), constant(&sin));
    let found = with_gradients(turned, &[&x]);

    let x = tracked::<Reference, 4>(&data);
    let angles = (
        constant::<Reference, 2>(&cos),
        constant::<Reference, 2>(&sin),
    );
    let turned = reference::rotary::<Reference>(
        layout,
        primitive(x.clone()),
        primitive(angles.0),
        primitive(angles.1),
    );
    let expected = with_gradients(typed::<Reference, 4>(turned), &[&x]);
    assert_all_close(&format!("{layout:?}"), &found, &expected);
}

const NORMS: [Normalization; 3] = [
    Normalization::Layer { epsilon: 1e-5 },
    Normalization::Rms { epsilon: 1e-2 },
    Normalization::UnitRms { epsilon: 1e-2 },
];
const LAYOUTS: [RotaryLayout; 2] = [RotaryLayout::Interleaved, RotaryLayout::HalfSplit];

crate::on_backends! {
    activation(
        kind in select(&Activation::ALL[..]),
        shape in [1_usize..4, 1..6, 1..20],
        seed in any::<u64>(),
    );
    // A layer norm of one element is zero whatever comes in; of two, it is a sign, whose gradient is all rounding.
    normalization(
        kind in select(&NORMS[..]),
        shape in [1_usize..8, 3..24],
        seed in any::<u64>(),
    );
    rotary(
        layout in select(&LAYOUTS[..]),
        shape in [1_usize..3, 1..4, 1..6, 1..5],
        rest in 0_usize..4,
        seed in 0..u64::MAX - 2,
    );
}
