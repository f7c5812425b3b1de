//! Tests activations, normalization, linear layers, embeddings, optimizer steps and rotary embeddings.

use burn::tensor::{Int, Tensor, TensorData};
use emberlm_kernels::{
    Activation, AdamWStep, Backend, ColumnGroups, ColumnNorms, Normalization, Precision,
    RotaryLayout, SQUARES_CHUNK, ops, reference,
};
use proptest::sample::select;

use crate::compare::{
    Reference, assert_all_close, assert_close, assert_same, constant, host, numbers, primitive,
    typed,
};

fn activation<B: Backend>(kind: Activation, shape: [usize; 3], seed: u64) {
    assert_same::<B, _, 3, _>(
        &format!("{kind:?}"),
        &[numbers(seed, shape)],
        |[x]| ops::activation(kind, x),
        |[x]| typed(reference::activation::<Reference>(kind, primitive(x))),
    );
}

fn gated<B: Backend>(kind: Activation, shape: [usize; 3], seed: u64) {
    assert_same::<B, _, 3, _>(
        &format!("gated {kind:?}"),
        &[0, 1].map(|n| numbers(seed + n, shape)),
        |[gate, up]| ops::gated(kind, gate, up),
        |[gate, up]| {
            let up = match kind {
                Activation::ClampedSilu => up.clamp(-7.0, 7.0) + 1.0,
                _ => up,
            };
            typed(reference::activation::<Reference>(kind, primitive(gate))) * up
        },
    );
}

/// With and without gain, bias and a residual branch of `x`.
pub fn normalization<B: Backend>(
    kind: Normalization,
    shape: [usize; 2],
    [gained, biased, residual]: [bool; 3],
    seed: u64,
) {
    let row = [1, shape[1]];
    let branch = f64::from(u8::from(residual));
    assert_same::<B, _, 2, _>(
        &format!("{kind:?} {shape:?}, gain: {gained}, bias: {biased}, residual: {residual}"),
        &[
            numbers(seed, shape),
            numbers(seed + 1, row),
            numbers(seed + 2, row),
        ],
        |[x, gain, bias]| {
            let gain = gained.then(|| gain.squeeze_dim(0));
            let bias = biased.then(|| bias.squeeze_dim(0));
            let y = ops::normalize(kind, x.clone(), gain, bias);
            if residual { y + x } else { y }
        },
        |[x, gain, bias]| {
            let gain = gained.then(|| primitive(gain.squeeze_dim::<1>(0)));
            let bias = biased.then(|| primitive(bias.squeeze_dim::<1>(0)));
            let y = reference::normalize::<Reference>(kind, primitive(x.clone()), gain, bias);
            typed::<Reference, 2>(y) + x * branch
        },
    );
}

/// Sets of `counts` groups of columns, of `widths`, and one column that is not normalized.
pub fn column_norms<B: Backend>(
    kind: Normalization,
    [rows, counts, widths]: [[usize; 2]; 3],
    [gained, biased]: [bool; 2],
    seed: u64,
) {
    let columns = [0, 1].map(|set| counts[set] * widths[set]);
    let width = columns[0] + columns[1] + 1;
    let shape = [rows[0] * rows[1], width];
    let norms = ColumnNorms {
        kind,
        sets: [0, 1].map(|set| ColumnGroups {
            count: counts[set],
            width: widths[set],
        }),
    };
    let [gain1, gain2] = widths.map(|width| [1, width]);
    let shapes = [shape, gain1, gain2, gain1, gain2];
    let inputs = [0, 1, 2, 3, 4].map(|at| numbers(seed + at as u64, shapes[at]));
    assert_same::<B, _, 2, _>(
        &format!("{norms:?} {shape:?}, gain: {gained}, bias: {biased}"),
        &inputs,
        |[x, gain1, gain2, bias1, bias2]| {
            let gains = gained.then(|| [gain1, gain2].map(|row| row.squeeze_dim(0)));
            let biases = biased.then(|| [bias1, bias2].map(|row| row.squeeze_dim(0)));
            ops::normalize_columns(norms, x, gains, biases)
        },
        |[x, gain1, gain2, bias1, bias2]| {
            let of_set = |start: usize, set: usize, gain: Tensor<Reference, 2>, bias| {
                let all = x.clone().narrow(1, start, columns[set]);
                let groups = all.reshape([shape[0] * counts[set], widths[set]]);
                let row = |given: bool, row: Tensor<Reference, 2>| {
                    given.then(|| primitive(row.squeeze_dim::<1>(0)))
                };
                let (gain, bias) = (row(gained, gain), row(biased, bias));
                let y = reference::normalize::<Reference>(kind, primitive(groups), gain, bias);
                typed::<Reference, 2>(y).reshape([shape[0], columns[set]])
            };
            let normalized = [
                of_set(0, 0, gain1, bias1),
                of_set(columns[0], 1, gain2, bias2),
            ];
            let rest = x.clone().narrow(1, width - 1, 1);
            Tensor::cat(normalized.into_iter().chain([rest]).collect(), 1)
        },
    );
}

/// Columns of `groups` groups of `width` that are added to the last ones of `before + groups · width`.
pub fn gated_columns<B: Backend>([rows, before, groups, width]: [usize; 4], seed: u64) {
    let columns = groups * width;
    let shapes = [[rows, before + columns], [rows, groups], [rows, columns]];
    let inputs = [0, 1, 2].map(|at| numbers(seed + at as u64, shapes[at]));
    assert_same::<B, _, 2, _>(
        &format!("{shapes:?}"),
        &inputs,
        |[x, gates, added]| ops::add_gated_columns(x, gates, added),
        |[x, gates, added]| {
            let mut parts = vec![x.clone().narrow(1, 0, before)];
            for group in 0..groups {
                let own = |of: &Tensor<Reference, 2>, start| of.clone().narrow(1, start, width);
                let gated = own(&added, group * width) * gates.clone().narrow(1, group, 1);
                parts.push(own(&x, before + group * width) + gated);
            }
            Tensor::cat(parts, 1)
        },
    );
}

/// With and without bias and residual. `x` is multiplied by two weights and so receives two gradients.
pub fn linear<B: Backend>([tokens, width, out]: [usize; 3], parts: [bool; 2], seed: u64) {
    let shapes = [[tokens, width], [width, out], [1, out], [tokens, out]];
    assert_same::<B, _, 2, _>(
        &format!("linear {parts:?}"),
        &[0, 1, 2, 3].map(|n| numbers(seed + n as u64, shapes[n])),
        |[x, weight, bias, residual]| {
            let bias = parts[0].then(|| bias.squeeze_dim(0));
            let residual = parts[1].then_some(residual);
            let half = ops::linear(x.clone(), weight.clone() * 0.5, None, None, Precision::F32);
            ops::linear(x, weight, bias, residual, Precision::F32) + half
        },
        |[x, weight, bias, residual]| {
            let mut y = x.matmul(weight) * 1.5;
            if parts[0] {
                y = y + bias;
            }
            if parts[1] {
                y = y + residual;
            }
            y
        },
    );
}

/// With and without a gradient of the table from other operations.
pub fn embedding_gradient<B: Backend>([tokens, vocab_size, width]: [usize; 3], seed: u64) {
    let ids = numbers(seed, [1, tokens]);
    let ids: Vec<i64> = ids
        .iter::<f64>()
        .map(|x| ((x + 2.0) / 4.0 * vocab_size as f64) as i64)
        .collect();
    let ids = TensorData::new(ids, [1, tokens]);
    let table = numbers(seed + 1, [vocab_size, width]);
    let grad = numbers(seed + 2, [1, tokens, width]);
    fn of<T: Backend>([table, grad, ids]: [&TensorData; 3], added: bool) -> Vec<f32> {
        let table = primitive(constant::<T, 2>(table));
        let ids = Tensor::<T, 2, Int>::from_data(ids.clone(), &Default::default());
        let grad = primitive(constant::<T, 3>(grad));
        let added = added.then(|| table.clone());
        let sums = <T as Backend>::embedding_backward(table, ids.into_primitive(), grad, added);
        host(typed::<T, 2>(sums))
    }
    for added in [false, true] {
        let data = [&table, &grad, &ids];
        let expected = of::<burn_flex::Flex>(data, added);
        let actual = of::<B>(data, added);
        assert_close("embedding", &actual, &expected);
        assert_eq!(actual, of::<B>(data, added), "differs between runs");
    }
}

/// The table is looked up twice and is also a factor of a product, like a tied embedding.
pub fn embedding<B: Backend>([batch, seq, vocab, width]: [usize; 4], seed: u64) {
    let ids = [1, 2].map(|n| {
        let ids = numbers(seed + n, [batch, seq])
            .iter::<f64>()
            .map(|x| ((x + 2.0) / 4.0 * vocab as f64) as i64)
            .collect::<Vec<_>>();
        TensorData::new(ids, [batch, seq])
    });
    fn looked_up<T: Backend>(
        table: Tensor<T, 2>,
        ids: &[TensorData; 2],
        look_up: impl Fn(Tensor<T, 2>, Tensor<T, 2, Int>) -> Tensor<T, 3>,
    ) -> Tensor<T, 3> {
        let ids = |n: usize| Tensor::from_data(ids[n].clone(), &Default::default());
        let [first, second] = [0, 1].map(|n| look_up(table.clone(), ids(n)));
        first * second + table.sum().unsqueeze::<3>()
    }
    assert_same::<B, _, 2, _>(
        "embedding",
        &[numbers(seed, [vocab, width])],
        |[table]| looked_up(table, &ids, ops::embedding),
        |[table]| {
            looked_up(table, &ids, |table, ids| {
                let rows = table.select(0, ids.reshape([batch * seq]));
                rows.reshape([batch, seq, width])
            })
        },
    );
}

/// Rows that are added twice to the same base, in the order of a bit pattern: those of its ones, then those of its zeros.
fn add_rows<B: Backend>([rows, width]: [usize; 2], pattern: u64, seed: u64) {
    let chosen = |bit: u64| (0..rows as i64).filter(move |row| pattern >> row & 1 == bit);
    let ids: Vec<Vec<i64>> = [1, 0].map(|bit| chosen(bit).collect()).to_vec();
    fn added<T: Backend>(
        [base, x, weights]: [Tensor<T, 2>; 3],
        ids: &[Vec<i64>],
        add: impl Fn(Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 1>, Tensor<T, 1, Int>) -> Tensor<T, 2>,
    ) -> Tensor<T, 2> {
        let mut sum = base * 1.0;
        for ids in ids.iter().filter(|ids| !ids.is_empty()) {
            let data = TensorData::new(ids.clone(), [ids.len()]);
            let ids = Tensor::<T, 1, Int>::from_data(data, &Default::default());
            let weights = weights.clone().select(0, ids.clone()).squeeze_dim(1);
            sum = add(sum, x.clone().select(0, ids.clone()), weights, ids);
        }
        sum
    }
    assert_same::<B, _, 2, _>(
        "added rows",
        &[0, 1, 2].map(|n| numbers(seed + n, [rows, if n == 2 { 1 } else { width }])),
        |tensors| added(tensors, &ids, ops::add_rows),
        |tensors| {
            added(tensors, &ids, |base, x, weights, ids| {
                let [base, x] = [base, x].map(primitive);
                let (weights, ids) = (primitive(weights), ids.into_primitive());
                typed(reference::add_rows::<Reference>(base, x, weights, ids))
            })
        },
    );
}

/// Two groups of rows with different factors, beside rows without any.
fn add_low_rank<B: Backend>([rows, fan_in, out]: [usize; 3], seed: u64) {
    let shapes = [[rows + 1, out], [rows + 1, fan_in], [fan_in, 3], [3, out]];
    let half = rows / 2;
    assert_same::<B, _, 2, _>(
        "low-rank updates",
        &[0, 1, 2, 3].map(|n| numbers(seed + n as u64, shapes[n])),
        |[y, x, a, b]| {
            let updates = vec![(0..half, a.clone(), b.clone()), (half..rows, a * 2.0, b)];
            ops::add_low_rank(y, x, updates, Precision::F32)
        },
        |[y, x, a, b]| {
            let factors = [(1.0, half), (2.0, rows - half), (0.0, 1)].into_iter();
            let factors: Vec<f32> = factors
                .flat_map(|(factor, count)| vec![factor; count])
                .collect();
            let factors = TensorData::new(factors, [rows + 1, 1]);
            y + x.matmul(a).matmul(b) * Tensor::from_data(factors, &Default::default())
        },
    );
}

/// Compares three updates with those of the reference implementation.
pub fn adamw<B: Backend>(shape: [usize; 2], [clipped, cautious]: [bool; 2], seed: u64) {
    let data: Vec<_> = (0..3).map(|n| numbers(seed + n, shape)).collect();
    let actual = updated::<B>(&data, cautious, |p, g, m, v, step| {
        let factor = clipped.then(|| Tensor::from_data([0.3_f32], &Default::default()));
        let (p, (m, v)) = ops::adamw(p, g, (m, v), factor, step);
        [p, m, v]
    });
    let expected = updated::<burn_flex::Flex>(&data, cautious, |p, g, m, v, step| {
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
    // A step that is not applied, even of a gradient that is not finite.
    let skipped = updated::<B>(&data, cautious, |p, g, m, v, step| {
        let factor = Some(Tensor::from_data([-1.0_f32], &Default::default()));
        let (p, (m, v)) = ops::adamw(p, g * f32::NAN, (m, v), factor, step);
        [p, m, v]
    });
    let before = updated::<B>(&data, cautious, |p, _, m, v, _| [p, m, v]);
    assert_eq!(skipped, before, "a negative factor");
}

fn updated<B: Backend>(
    data: &[TensorData],
    cautious: bool,
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
            cautious,
            step: n,
        };
        let grad = constant::<B, 2>(&data[n as usize % 3]);
        // Tensors that are still used stay as they are.
        let used = (n == 2).then(|| [&p, &m, &v].map(Tensor::clone));
        let values = used.clone().map(|used| used.map(host));
        [p, m, v] = step(p, grad, m, v, numbers);
        assert_eq!(used.map(|used| used.map(host)), values);
    }
    [p, m, v].map(host).to_vec()
}

pub fn sum_of_squares<B: Backend>(shape: [usize; 2], seed: u64) {
    let data = numbers(seed, shape);
    let expected: f64 = data.iter::<f64>().map(|x| x * x).sum();
    let actual = host(ops::sum_of_squares(constant::<B, 2>(&data)));
    assert_close("sum of squares", &actual, &[expected as f32]);
    let squares: Vec<f64> = data.iter::<f64>().map(|x| x * x).collect();
    let chunks = squares.chunks(SQUARES_CHUNK);
    let expected: Vec<f32> = chunks.map(|of| of.iter().sum::<f64>() as f32).collect();
    let x = constant::<B, 2>(&data).reshape([squares.len()]);
    let actual = host(ops::chunk_sums_of_squares(x));
    assert_close("sums of squares of chunks", &actual, &expected);
}

/// `rest` elements of each head are not rotated.
fn rotary<B: Backend>(layout: RotaryLayout, shape: [usize; 4], rest: usize, seed: u64) {
    let [batch, heads, seq, pairs] = shape;
    let [cos, sin] = [1, 2].map(|n| numbers(seed + n, [seq, pairs]));
    assert_same::<B, _, 4, _>(
        &format!("{layout:?}"),
        &[numbers(seed, [batch, heads, seq, 2 * pairs + rest])],
        |[x]| ops::rotary(layout, x, constant(&cos), constant(&sin)),
        |[x]| {
            let [cos, sin] = [&cos, &sin].map(|of| primitive(constant::<Reference, 2>(of)));
            typed(reference::rotary::<Reference>(
                layout,
                primitive(x),
                cos,
                sin,
            ))
        },
    );
}

pub const NORMS: [Normalization; 3] = [
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
        parts in [any::<bool>(), any::<bool>(), any::<bool>()],
        seed in 0..u64::MAX - 2,
    );
    column_norms(
        kind in select(&NORMS[..]),
        sizes in [[1_usize..4, 1..4], [1..5, 1..3], [3..9, 3..9]],
        parts in [any::<bool>(), any::<bool>()],
        seed in 0..u64::MAX - 5,
    );
    gated_columns(
        sizes in [1_usize..40, 1..9, 1..5, 1..40],
        seed in 0..u64::MAX - 3,
    );
    gated(
        kind in select(&Activation::ALL[..]),
        shape in [1_usize..4, 1..6, 1..20],
        seed in 0..u64::MAX - 1,
    );
    linear(shape in [1_usize..9, 1..20, 1..20], parts in [any::<bool>(), any::<bool>()], seed in 0..u64::MAX - 4);
    embedding_gradient(shape in [1_usize..70, 1..9, 1..40], seed in 0..u64::MAX - 2);
    embedding(shape in [1_usize..3, 1..9, 1..9, 1..9], seed in 0..u64::MAX - 2);
    add_rows(shape in [1_usize..9, 1..40], pattern in any::<u64>(), seed in 0..u64::MAX - 2);
    add_low_rank(shape in [1_usize..9, 1..20, 1..20], seed in 0..u64::MAX - 4);
    adamw(shape in [1_usize..9, 1..40], options in any::<[bool; 2]>(), seed in 0..u64::MAX - 3);
    sum_of_squares(shape in [1_usize..9, 1..40], seed in any::<u64>());
    rotary(
        layout in select(&LAYOUTS[..]),
        shape in [1_usize..3, 1..4, 1..6, 1..5],
        rest in 0_usize..4,
        seed in 0..u64::MAX - 2,
    );
}
