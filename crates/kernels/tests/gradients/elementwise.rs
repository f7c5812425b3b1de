//! Tests activations, normalization, linear layers, embeddings, optimizer steps and rotary embeddings.

use burn::backend::Autodiff;
use burn::tensor::{Int, Tensor, TensorData};
use emberlm_kernels::{
    Activation, AdamWStep, Backend, Normalization, Precision, RotaryLayout, ops, reference,
};
use proptest::sample::select;

use crate::compare::{
    Reference, assert_all_close, assert_close, constant, host, numbers, primitive, tracked, typed,
    with_gradients,
};

fn activation<B: Backend>(kind: Activation, shape: [usize; 3], seed: u64) {
    let data = numbers(seed, shape);
    let x = tracked::<Autodiff<B>, 3>(&data);
    let actual = with_gradients(ops::activation(kind, x.clone()), &[&x]);
    let x = tracked::<Reference, 3>(&data);
    let y = reference::activation::<Reference>(kind, primitive(x.clone()));
    let expected = with_gradients(typed::<Reference, 3>(y), &[&x]);
    assert_all_close(&format!("{kind:?}"), &actual, &expected);
}

fn gated<B: Backend>(kind: Activation, shape: [usize; 3], seed: u64) {
    let (gate_data, up_data) = (numbers(seed, shape), numbers(seed + 1, shape));
    let [gate, up] = [&gate_data, &up_data].map(tracked::<Autodiff<B>, 3>);
    let actual = with_gradients(ops::gated(kind, gate.clone(), up.clone()), &[&gate, &up]);
    let [gate, up] = [&gate_data, &up_data].map(tracked::<Reference, 3>);
    let y = reference::activation::<Reference>(kind, primitive(gate.clone()));
    let y = typed::<Reference, 3>(y) * up.clone();
    assert_all_close(
        &format!("gated {kind:?}"),
        &actual,
        &with_gradients(y, &[&gate, &up]),
    );
}

/// With and without gain and bias. `x` also has a residual branch.
fn normalization<B: Backend>(kind: Normalization, shape: [usize; 2], affine: [bool; 2], seed: u64) {
    let data = numbers(seed, shape);
    let rows = [1, 2].map(|n| numbers(seed + n, [1, shape[1]]));
    let what = format!("{kind:?} {affine:?}");
    let x = tracked::<Autodiff<B>, 2>(&data);
    let params = [0, 1].map(|n| tracked::<Autodiff<B>, 2>(&rows[n]));
    let param = |n: usize| affine[n].then(|| params[n].clone().reshape([shape[1]]));
    let y = ops::normalize(kind, x.clone(), param(0), param(1)) + x.clone();
    let used = |params: &[bool; 2]| {
        [0, 1]
            .into_iter()
            .filter(move |n| params[*n])
            .collect::<Vec<_>>()
    };
    let inputs: Vec<_> = std::iter::once(&x)
        .chain(used(&affine).into_iter().map(|n| &params[n]))
        .collect();
    let actual = with_gradients(y, &inputs);

    let x = tracked::<Reference, 2>(&data);
    let params = [0, 1].map(|n| tracked::<Reference, 2>(&rows[n]));
    let param = |n: usize| affine[n].then(|| primitive(params[n].clone().reshape([shape[1]])));
    let y = reference::normalize::<Reference>(kind, primitive(x.clone()), param(0), param(1));
    let y = typed::<Reference, 2>(y) + x.clone();
    let inputs: Vec<_> = std::iter::once(&x)
        .chain(used(&affine).into_iter().map(|n| &params[n]))
        .collect();
    assert_all_close(&what, &actual, &with_gradients(y, &inputs));
}

/// With and without bias and residual. `x` is multiplied by two weights and so receives two gradients.
fn linear<B: Backend>([tokens, width, out]: [usize; 3], parts: [bool; 2], seed: u64) {
    let shapes = [[tokens, width], [width, out], [1, out], [tokens, out]];
    let data: Vec<_> = (0..4)
        .map(|n| numbers(seed + n as u64, shapes[n]))
        .collect();
    let inputs: Vec<_> = data.iter().map(tracked::<Autodiff<B>, 2>).collect();
    let [x, weight, bias, residual] = &inputs[..] else {
        unreachable!()
    };
    let y = ops::linear(
        x.clone(),
        weight.clone(),
        parts[0].then(|| bias.clone().reshape([out])),
        parts[1].then(|| residual.clone()),
        Precision::F32,
    );
    let y = y + ops::linear(x.clone(), weight.clone() * 0.5, None, None, Precision::F32);
    let used = [true, true, parts[0], parts[1]];
    let wanted: Vec<_> = inputs
        .iter()
        .zip(used)
        .filter(|(_, used)| *used)
        .map(|(x, _)| x)
        .collect();
    let actual = with_gradients(y, &wanted);

    let inputs: Vec<_> = data.iter().map(tracked::<Reference, 2>).collect();
    let [x, weight, bias, residual] = &inputs[..] else {
        unreachable!()
    };
    let mut y = x.clone().matmul(weight.clone()) * 1.5;
    if parts[0] {
        y = y + bias.clone();
    }
    if parts[1] {
        y = y + residual.clone();
    }
    let wanted: Vec<_> = inputs
        .iter()
        .zip(used)
        .filter(|(_, used)| *used)
        .map(|(x, _)| x)
        .collect();
    assert_all_close(
        &format!("linear {parts:?}"),
        &actual,
        &with_gradients(y, &wanted),
    );
}

/// The table is looked up twice and is also a factor of a product, like a tied embedding.
fn embedding<B: Backend>([batch, seq, vocab, width]: [usize; 4], seed: u64) {
    let data = numbers(seed, [vocab, width]);
    let ids = |n: u64| {
        let ids = numbers(seed + n, [batch, seq])
            .iter::<f64>()
            .map(|x| ((x + 2.0) / 4.0 * vocab as f64) as i64)
            .collect::<Vec<_>>();
        TensorData::new(ids, [batch, seq])
    };
    let (first, second) = (ids(1), ids(2));
    let table = tracked::<Autodiff<B>, 2>(&data);
    let actual = |ids: &TensorData| {
        ops::embedding(
            table.clone(),
            Tensor::from_data(ids.clone(), &Default::default()),
        )
    };
    let y = actual(&first) * actual(&second) + table.clone().sum().unsqueeze::<3>();
    let actual = with_gradients(y, &[&table]);
    let table = tracked::<Reference, 2>(&data);
    let expected = |ids: &TensorData| {
        let ids = Tensor::<Reference, 2, Int>::from_data(ids.clone(), &Default::default());
        table
            .clone()
            .select(0, ids.reshape([batch * seq]))
            .reshape([batch, seq, width])
    };
    let y = expected(&first) * expected(&second) + table.clone().sum().unsqueeze::<3>();
    assert_all_close("embedding", &actual, &with_gradients(y, &[&table]));
}

/// Rows that are added twice to the same base, in the order of a bit pattern: those of its ones, then those of its zeros.
fn add_rows<B: Backend>([rows, width]: [usize; 2], pattern: u64, seed: u64) {
    let chosen = |bit: u64| (0..rows as i64).filter(move |row| pattern >> row & 1 == bit);
    let ids: Vec<Vec<i64>> = [1, 0].map(|bit| chosen(bit).collect()).to_vec();
    let data = [0, 1, 2].map(|n| numbers(seed + n, [rows, if n == 2 { 1 } else { width }]));
    fn added<T: Backend>(
        tensors: &[Tensor<T, 2>; 3],
        ids: &[Vec<i64>],
        add: impl Fn(Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 1>, Tensor<T, 1, Int>) -> Tensor<T, 2>,
    ) -> Tensor<T, 2> {
        let [base, x, weights] = tensors;
        let mut sum = base.clone() * 1.0;
        for ids in ids.iter().filter(|ids| !ids.is_empty()) {
            let data = TensorData::new(ids.clone(), [ids.len()]);
            let ids = Tensor::<T, 1, Int>::from_data(data, &Default::default());
            let weights = weights.clone().select(0, ids.clone()).squeeze_dim(1);
            sum = add(sum, x.clone().select(0, ids.clone()), weights, ids);
        }
        sum
    }
    let tensors = data.each_ref().map(tracked::<Autodiff<B>, 2>);
    let y = added(&tensors, &ids, ops::add_rows);
    let found = with_gradients(y, &tensors.each_ref());
    let tensors = data.each_ref().map(tracked::<Reference, 2>);
    let y = added(&tensors, &ids, |base, x, weights, ids| {
        typed(reference::add_rows::<Reference>(
            primitive(base),
            primitive(x),
            primitive(weights),
            ids.into_primitive(),
        ))
    });
    let expected = with_gradients(y, &tensors.each_ref());
    assert_all_close("added rows", &found, &expected);
}

/// Two groups of rows with different factors, beside rows without any.
fn add_low_rank<B: Backend>([rows, fan_in, out]: [usize; 3], seed: u64) {
    let shapes = [[rows + 1, out], [rows + 1, fan_in], [fan_in, 3], [3, out]];
    let data = [0, 1, 2, 3].map(|n| numbers(seed + n as u64, shapes[n]));
    let half = rows / 2;
    let tensors = data.each_ref().map(tracked::<Autodiff<B>, 2>);
    let [y, x, a, b] = tensors.clone();
    let updates = vec![(0..half, a.clone(), b.clone()), (half..rows, a * 2.0, b)];
    let y = ops::add_low_rank(y, x, updates, Precision::F32);
    let found = with_gradients(y, &tensors.each_ref());
    let tensors = data.each_ref().map(tracked::<Reference, 2>);
    let [y, x, a, b] = tensors.clone();
    let factors = [(1.0, half), (2.0, rows - half), (0.0, 1)];
    let factors = factors.into_iter();
    let factors: Vec<f32> = factors
        .flat_map(|(factor, count)| vec![factor; count])
        .collect();
    let factors = TensorData::new(factors, [rows + 1, 1]);
    let factors = Tensor::from_data(factors, &Default::default());
    let y = y + x.matmul(a).matmul(b) * factors;
    let expected = with_gradients(y, &tensors.each_ref());
    assert_all_close("low-rank updates", &found, &expected);
}

/// Compares three updates with those of the reference implementation.
fn adamw<B: Backend>(shape: [usize; 2], clipped: bool, seed: u64) {
    let data: Vec<_> = (0..3).map(|n| numbers(seed + n, shape)).collect();
    let actual = updated::<B>(&data, |p, g, m, v, step| {
        let factor = clipped.then(|| Tensor::from_data([0.3_f32], &Default::default()));
        let (p, (m, v)) = ops::adamw(p, g, (m, v), factor, step);
        [p, m, v]
    });
    let expected = updated::<burn_flex::Flex>(&data, |p, g, m, v, step| {
        let g = if clipped { g * 0.3 } else { g };
        let (p, m, v) = reference::adamw::<burn_flex::Flex>(
            primitive(p),
            primitive(g),
            primitive(m),
            primitive(v),
            step,
        );
        [p, m, v].map(typed)
    });
    assert_all_close("adamw", &actual, &expected);
}

fn updated<B: Backend>(
    data: &[TensorData],
    step: impl Fn(
        Tensor<B, 2>,
        Tensor<B, 2>,
        Tensor<B, 2>,
        Tensor<B, 2>,
        AdamWStep,
    ) -> [Tensor<B, 2>; 3],
) -> Vec<Vec<f32>> {
    let mut p = constant::<B, 2>(&data[0]);
    let (mut m, mut v) = (p.zeros_like(), p.zeros_like());
    for n in 1..=3 {
        let numbers = AdamWStep {
            rate: 0.01,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            decay: 0.1,
            step: n,
        };
        let grad = constant::<B, 2>(&data[n as usize % 3]);
        [p, m, v] = step(p, grad, m, v, numbers);
    }
    [p, m, v].map(host).to_vec()
}

fn sum_of_squares<B: Backend>(shape: [usize; 2], seed: u64) {
    let data = numbers(seed, shape);
    let expected: f64 = data.iter::<f64>().map(|x| x * x).sum();
    let actual = host(ops::sum_of_squares(constant::<B, 2>(&data)));
    assert_close("sum of squares", &actual, &[expected as f32]);
}

/// `rest` elements of each head are not rotated.
fn rotary<B: Backend>(layout: RotaryLayout, shape: [usize; 4], rest: usize, seed: u64) {
    let [batch, heads, seq, pairs] = shape;
    let data = numbers(seed, [batch, heads, seq, 2 * pairs + rest]);
    let angles = [seq, pairs];
    let (cos, sin) = (numbers(seed + 1, angles), numbers(seed + 2, angles));
    let x = tracked::<Autodiff<B>, 4>(&data);
    let turned = ops::rotary(layout, x.clone(), constant(&cos), constant(&sin));
    let actual = with_gradients(turned, &[&x]);

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
    assert_all_close(&format!("{layout:?}"), &actual, &expected);
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
    // A layer norm of one element is always zero. That of two elements is a sign, whose gradient is only rounding
    // errors.
    normalization(
        kind in select(&NORMS[..]),
        shape in [1_usize..8, 3..24],
        affine in [any::<bool>(), any::<bool>()],
        seed in 0..u64::MAX - 2,
    );
    gated(
        kind in select(&Activation::ALL[..]),
        shape in [1_usize..4, 1..6, 1..20],
        seed in 0..u64::MAX - 1,
    );
    linear(shape in [1_usize..9, 1..20, 1..20], parts in [any::<bool>(), any::<bool>()], seed in 0..u64::MAX - 4);
    embedding(shape in [1_usize..3, 1..9, 1..9, 1..9], seed in 0..u64::MAX - 2);
    add_rows(shape in [1_usize..9, 1..40], pattern in any::<u64>(), seed in 0..u64::MAX - 2);
    add_low_rank(shape in [1_usize..9, 1..20, 1..20], seed in 0..u64::MAX - 4);
    adamw(shape in [1_usize..9, 1..40], clipped in any::<bool>(), seed in 0..u64::MAX - 3);
    sum_of_squares(shape in [1_usize..9, 1..40], seed in any::<u64>());
    rotary(
        layout in select(&LAYOUTS[..]),
        shape in [1_usize..3, 1..4, 1..6, 1..5],
        rest in 0_usize..4,
        seed in 0..u64::MAX - 2,
    );
}
