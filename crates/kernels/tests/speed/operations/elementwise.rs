//! Memory-bound operations: norms, activations, rotary positions, embeddings, and the optimizer's updates.

use burn::tensor::ops::{FloatTensor, ModuleOps};
use emberlm_kernels::{
    Activation, AdamWInputs, AdamWStep, Backend, Normalization, RotaryLayout, reference,
};

use super::{Operation, Work};

const NORM: Normalization = Normalization::Layer { epsilon: 1e-5 };

/// The number of elements.
fn count<const D: usize>(shape: [usize; D]) -> usize {
    shape.iter().product()
}

/// Layer norm of rows.
pub fn normalize<B: Backend>([rows, width]: [usize; 2]) -> Operation<B> {
    Operation::<B>::new(
        "normalize",
        Work::numbers(2 * rows * width),
        move |random| {
            let row = random.floats([width]);
            (random.floats([rows, width]), Some(row.clone()), Some(row))
        },
        |(x, gain, bias)| B::normalize(NORM, x, gain, bias),
        |(x, gain, bias)| reference::normalize::<B>(NORM, x, gain, bias),
    )
}

/// The backward pass of layer norm.
pub fn normalize_backward<B: Backend>([rows, width]: [usize; 2]) -> Operation<B> {
    Operation::<B>::new(
        "normalize_backward",
        Work::numbers(3 * rows * width),
        move |random| {
            let [x, grad] = [(); 2].map(|()| random.floats([rows, width]));
            (x, Some(random.floats([width])), grad)
        },
        |(x, gain, grad)| B::normalize_backward(NORM, x, gain, true, grad, None),
        |(x, gain, grad)| reference::normalize_backward::<B>(NORM, x, gain, true, grad, None),
    )
}

/// An activation function.
pub fn activation<B: Backend>(kind: Activation, shape: [usize; 2]) -> Operation<B> {
    Operation::<B>::new(
        "activation",
        Work::numbers(2 * count(shape)),
        move |random| random.floats(shape),
        move |x| B::activation(kind, x),
        move |x| reference::activation::<B>(kind, x),
    )
}

/// An activation function and its backward pass.
pub fn activation_and_backward<B: Backend>(kind: Activation, shape: [usize; 2]) -> Operation<B> {
    Operation::<B>::new(
        "activation and backward",
        Work::numbers(5 * count(shape)),
        move |random| (random.floats(shape), random.floats(shape)),
        move |(x, grad)| {
            let (out, kept) = B::activation_training(kind, x);
            (out, B::activation_backward(kind, kept, grad))
        },
        move |(x, grad)| {
            let out = reference::activation::<B>(kind, x.clone());
            (out, reference::activation_backward::<B>(kind, x, grad))
        },
    )
}

/// A gated activation.
pub fn gated<B: Backend>(shape: [usize; 2]) -> Operation<B> {
    let kind = Activation::Silu;
    Operation::<B>::new(
        "gated",
        Work::numbers(3 * count(shape)),
        move |random| (random.floats(shape), random.floats(shape)),
        move |(gate, up)| B::gated(kind, gate, up),
        move |(gate, up)| reference::gated::<B>(kind, gate, up),
    )
}

/// The backward pass of a gated activation.
pub fn gated_backward<B: Backend>(shape: [usize; 2]) -> Operation<B> {
    let kind = Activation::Silu;
    Operation::<B>::new(
        "gated_backward",
        Work::numbers(5 * count(shape)),
        move |random| [(); 3].map(|()| random.floats(shape)),
        move |[gate, up, grad]| B::gated_backward(kind, gate, up, grad),
        move |[gate, up, grad]| reference::gated_backward::<B>(kind, gate, up, grad),
    )
}

/// Rotary positions of `[batch, heads, sequence, width of a head]`.
pub fn rotary<B: Backend>(layout: RotaryLayout, shape: [usize; 4]) -> Operation<B> {
    let angles = [shape[2], shape[3] / 2];
    Operation::<B>::new(
        "rotary",
        Work::numbers(2 * count(shape)),
        move |random| {
            let [cos, sin] = [(); 2].map(|()| random.floats(angles));
            (random.floats(shape), cos, sin)
        },
        move |(x, cos, sin)| B::rotary(layout, x, cos, sin),
        move |(x, cos, sin)| reference::rotary::<B>(layout, x, cos, sin),
    )
}

/// Rows of a table `[ids, width]` for `[batch, sequence]` ids. The other implementation is Burn's lookup.
pub fn embedding<B: Backend>(table: [usize; 2], ids: [usize; 2]) -> Operation<B> {
    Operation::<B>::new(
        "embedding",
        Work::numbers(2 * count(ids) * table[1]),
        move |random| (random.floats(table), random.ids(ids, table[0])),
        |(table, ids)| <B as Backend>::embedding(table, ids),
        |(table, ids)| <B as ModuleOps<B>>::embedding(table, ids),
    )
}

/// The backward pass of a lookup.
pub fn embedding_backward<B: Backend>(table: [usize; 2], ids: [usize; 2]) -> Operation<B> {
    let [end, width] = table;
    Operation::<B>::new(
        "embedding_backward",
        Work::numbers(count(table) + 3 * count(ids) * width),
        move |random| {
            let grad = random.floats([ids[0], ids[1], width]);
            (random.floats(table), random.ids(ids, end), grad)
        },
        |(table, ids, grad)| <B as Backend>::embedding_backward(table, ids, grad, None),
        |(table, ids, grad)| reference::embedding_backward::<B>(table, ids, grad, None),
    )
}

/// The update of a matrix by AdamW, with the factor of clipping.
pub fn adamw<B: Backend>(shape: [usize; 2]) -> Operation<B> {
    let step = AdamWStep {
        rate: 1e-6,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        decay: 0.1,
        cautious: false,
        step: 3,
    };
    let inputs = move |[parameter, m, v]: [FloatTensor<B>; 3], grad| AdamWInputs::<B> {
        parameter,
        grad,
        moments: (m, v),
        step,
    };
    Operation::<B>::in_place(
        "adamw",
        Work::numbers(7 * count(shape)),
        move |random| {
            let held = [(); 2].map(|()| [(); 3].map(|()| random.positive(shape)));
            (held, (random.floats(shape), Some(random.number(0.5))))
        },
        move |held, (grad, factor)| B::adamw(vec![inputs(held, grad)], factor).remove(0).into(),
        move |held, (grad, factor)| {
            reference::clipped_adamw::<B>(inputs(held, grad), factor).into()
        },
    )
}

/// The sum of a gradient's squares.
pub fn sum_of_squares<B: Backend>(shape: [usize; 2]) -> Operation<B> {
    Operation::<B>::new(
        "sum_of_squares",
        Work::numbers(count(shape)),
        move |random| random.floats(shape),
        |x| B::sum_of_squares(x),
        |x| reference::sum_of_squares::<B>(x),
    )
}

/// A matrix multiplied with a number close to 1, so that repeated scaling keeps the magnitude of its elements.
pub fn scaled<B: Backend>(shape: [usize; 2]) -> Operation<B> {
    Operation::<B>::in_place(
        "scaled",
        Work::numbers(2 * count(shape)),
        move |random| {
            let held = [(); 2].map(|()| random.floats(shape));
            (held, random.number(0.999_999))
        },
        |x, factor| B::scaled(x, factor),
        |x, factor| reference::scaled::<B>(x, factor),
    )
}
