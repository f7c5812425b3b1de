//! Tests the gated delta rule and the short convolution: values against the recurrence in f64, gradients against central
//! differences of it, sequences in parts, and keys that are all alike.

use burn::backend::Autodiff;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorData};
use emberlm_kernels::{Backend, DeltaRuleHeads, DeltaRuleInputs, Recurrences, ops, reference};

use crate::compare::{
    Definition, Reference, assert_all_close, assert_close, assert_is_defined, constant, host,
    in_f32, numbers, primitive, tracked, typed, with_gradients,
};

/// `[batch, key_heads, heads per key head, seq, key_dim, value_dim]`.
type Sizes = [usize; 6];

/// Queries, keys, values, decays, rates, and the memory at the start.
struct Case {
    inputs: [TensorData; 6],
}

/// The recurrence in f64, token by token.
struct Plain {
    inputs: [Vec<f64>; 6],
    heads: usize,
    group: usize,
    seq: usize,
    key_dim: usize,
    value_dim: usize,
}

impl Case {
    fn new([batch, key_heads, group, seq, key_dim, value_dim]: Sizes, seed: u64) -> Self {
        let heads = key_heads * group;
        let keys = [batch, key_heads, seq, key_dim];
        let column = [batch, heads, seq, 1];
        // From ±2 to -1 to 0, and to 0 to 1.
        let moved = |seed, factor: f32, middle: f32| {
            let drawn = numbers(seed, column);
            let of = drawn.iter::<f32>();
            let of: Vec<f32> = of.map(|x| x * factor + middle).collect();
            TensorData::new(of, column)
        };
        Self {
            inputs: [
                numbers(seed, keys),
                numbers(seed + 1, keys),
                numbers(seed + 2, [batch, heads, seq, value_dim]),
                moved(seed + 3, 0.25, -0.5),
                moved(seed + 4, 0.25, 0.5),
                numbers(seed + 5, [batch, heads, key_dim, value_dim]),
            ],
        }
    }

    fn plain(&self) -> Plain {
        let [_, key_heads, _, key_dim] = self.inputs[1].shape.dims();
        let [_, heads, seq, value_dim] = self.inputs[2].shape.dims();
        Plain {
            inputs: self.inputs.each_ref().map(|data| data.iter().collect()),
            heads,
            group: heads / key_heads,
            seq,
            key_dim,
            value_dim,
        }
    }
}

impl Definition for Plain {
    fn input(&mut self, number: usize) -> &mut [f64] {
        &mut self.inputs[number]
    }

    fn output(&self) -> Vec<f64> {
        let (keys, values) = (self.key_dim, self.value_dim);
        let mut output = Vec::new();
        for (n, memory) in self.inputs[5].chunks(keys * values).enumerate() {
            let (batch, head) = (n / self.heads, n % self.heads);
            let key_head = batch * self.heads / self.group + head / self.group;
            let mut memory = memory.to_vec();
            for t in 0..self.seq {
                let row = |input: usize, head: usize, width: usize| {
                    &self.inputs[input][(head * self.seq + t) * width..][..width]
                };
                let q = unit(row(0, key_head, keys), 1.0 / (keys as f64).sqrt());
                let k = unit(row(1, key_head, keys), 1.0);
                let v = row(2, n, values);
                let [decay, rate] = [3, 4].map(|input| row(input, n, 1)[0]);
                memory.iter_mut().for_each(|x| *x *= decay.exp());
                let read = |memory: &[f64], key: &[f64], e: usize| -> f64 {
                    (0..keys).map(|d| key[d] * memory[d * values + e]).sum()
                };
                let known: Vec<f64> = (0..values).map(|e| read(&memory, &k, e)).collect();
                for (at, x) in memory.iter_mut().enumerate() {
                    let e = at % values;
                    *x += k[at / values] * rate * (v[e] - known[e]);
                }
                output.extend((0..values).map(|e| read(&memory, &q, e)));
            }
        }
        output
    }
}

/// `scale · x / √(‖x‖² + 1e-6)`.
fn unit(x: &[f64], scale: f64) -> Vec<f64> {
    let square: f64 = x.iter().map(|x| x * x).sum();
    x.iter()
        .map(|x| x * scale / (square + 1e-6).sqrt())
        .collect()
}

/// The rule's heads and inputs. Those of the recurrence have the tokens of each head together.
fn joined<B: Backend>(inputs: [Tensor<B, 4>; 6]) -> (DeltaRuleHeads, DeltaRuleInputs<B>) {
    let [q, k, v, decay, rate, memory] = inputs;
    let [_, heads, key_dim, value_dim] = memory.dims();
    let heads = DeltaRuleHeads {
        heads,
        key_heads: k.dims()[1],
        key_dim,
        value_dim,
    };
    let rows = |x: Tensor<B, 4>| {
        let [batch, heads, seq, width] = x.dims();
        x.swap_dims(1, 2).reshape([batch, seq, heads * width])
    };
    let inputs = DeltaRuleInputs {
        qkv: primitive(Tensor::cat([q, k, v].map(rows).to_vec(), 2)),
        decay: primitive(rows(decay)),
        rate: primitive(rows(rate)),
        memory: Some(primitive(memory)),
    };
    (heads, inputs)
}

/// The output by head, `[batch, heads, seq, value_dim]`, as the recurrence has it.
fn by_head<B: Backend>(heads: DeltaRuleHeads, output: FloatTensor<B>) -> Tensor<B, 4> {
    let output = typed::<B, 3>(output);
    let [batch, seq, _] = output.dims();
    let shape = [batch, seq, heads.heads, heads.value_dim];
    output.reshape(shape).swap_dims(1, 2)
}

fn values_and_gradients_in_chunks<B: Backend>(sizes: Sizes, chunk: usize, seed: u64) {
    let case = Case::new(sizes, seed);
    let inputs = case.inputs.each_ref().map(tracked::<Autodiff<B>, 4>);
    let (heads, of) = joined(inputs.clone());
    let output = reference::gated_delta_rule(heads, of, chunk).output;
    let actual = with_gradients(by_head(heads, output), &inputs.each_ref());
    assert_is_defined("delta rule", &actual, case.plain());
}

fn values_and_gradients<B: Backend>(sizes: Sizes, seed: u64) {
    let case = Case::new(sizes, seed);
    let inputs = case.inputs.each_ref().map(tracked::<Autodiff<B>, 4>);
    let (heads, of) = joined(inputs.clone());
    let output = Autodiff::<B>::gated_delta_rule(heads, of).output;
    let actual = with_gradients(by_head(heads, output), &inputs.each_ref());
    assert_is_defined("delta rule", &actual, case.plain());
}

/// More tokens than a chunk, and systems of several blocks: compared with the reference implementation, which Burn differentiates.
fn long_sequences<B: Backend>(sizes: Sizes, seed: u64) {
    let case = Case::new(sizes, seed);
    let inputs = case.inputs.each_ref().map(tracked::<Autodiff<B>, 4>);
    let (heads, of) = joined(inputs.clone());
    let output = Autodiff::<B>::gated_delta_rule(heads, of).output;
    let actual = with_gradients(by_head(heads, output), &inputs.each_ref());
    let inputs = case.inputs.each_ref().map(tracked::<Reference, 4>);
    let (heads, of) = joined(inputs.clone());
    let output = reference::gated_delta_rule::<Reference>(heads, of, 50).output;
    let expected = with_gradients(by_head(heads, output), &inputs.each_ref());
    assert_all_close("long", &actual, &expected);
}

/// The sequence is split anywhere, also into single tokens, and the second part continues from the memory of the first.
fn memory_continues_the_sequence<B: Backend>(sizes: Sizes, split: usize, seed: u64) {
    let case = Case::new(sizes, seed);
    let [q, k, v, decay, rate, mut memory] = case.inputs.each_ref().map(constant::<B, 4>);
    let seq = sizes[3];
    let middle = split.min(seq);
    let mut parts = Vec::new();
    for (start, end) in [(0, middle), (middle, seq)] {
        if start == end {
            continue;
        }
        let [q, k, v, decay, rate] =
            [&q, &k, &v, &decay, &rate].map(|x| x.clone().narrow(2, start, end - start));
        let (heads, inputs) = joined([q, k, v, decay, rate, memory]);
        let made = B::gated_delta_rule(heads, inputs);
        parts.push(by_head::<B>(heads, made.output));
        memory = typed(made.memory);
    }
    let actual = host(Tensor::cat(parts, 2));
    assert_close("continued", &actual, &in_f32(&case.plain().output()));
}

/// Without a memory at the start, it is zero.
fn the_first_memory_is_zero<B: Backend>(sizes: Sizes, seed: u64) {
    let mut case = Case::new(sizes, seed);
    let [batch, key_heads, group, _, key_dim, value_dim] = sizes;
    let shape = [batch, key_heads * group, key_dim, value_dim];
    case.inputs[5] = TensorData::zeros::<f32, _>(shape);
    let (heads, inputs) = joined(case.inputs.each_ref().map(constant::<B, 4>));
    let inputs = DeltaRuleInputs {
        memory: None,
        ..inputs
    };
    let output = by_head::<B>(heads, B::gated_delta_rule(heads, inputs).output);
    assert_close("first", &host(output), &in_f32(&case.plain().output()));
}

/// The keys of all tokens are alike and nothing is forgotten, so that the powers of the system's matrix are huge.
fn equal_keys_are_exact<B: Backend>(seed: u64) {
    let mut case = Case::new([1, 1, 2, 64, 8, 5], seed);
    let key: Vec<f32> = case.inputs[1].iter().take(8).collect();
    case.inputs[1] = TensorData::new(key.repeat(64), [1, 1, 64, 8]);
    case.inputs[3] = TensorData::new(vec![0.0_f32; 128], [1, 2, 64, 1]);
    case.inputs[4] = TensorData::new(vec![0.97_f32; 128], [1, 2, 64, 1]);
    let (heads, inputs) = joined(case.inputs.each_ref().map(constant::<B, 4>));
    let output = by_head::<B>(heads, B::gated_delta_rule(heads, inputs).output);
    assert_close("equal keys", &host(output), &in_f32(&case.plain().output()));
}

/// `y_t = Σ_j w_j x_{t - taps + 1 + j}` by loops in f64.
struct Convolution {
    inputs: [Vec<f64>; 2],
    sizes: [usize; 4],
}

impl Definition for Convolution {
    fn input(&mut self, number: usize) -> &mut [f64] {
        &mut self.inputs[number]
    }

    fn output(&self) -> Vec<f64> {
        let [batch, seq, channels, taps] = self.sizes;
        let [values, factors] = &self.inputs;
        let mut output = Vec::new();
        for row in 0..batch * seq {
            for channel in 0..channels {
                let reached = (0..taps).filter(|tap| row % seq + tap + 1 >= taps);
                let term = |tap: usize| {
                    values[(row + tap + 1 - taps) * channels + channel]
                        * factors[tap * channels + channel]
                };
                output.push(reached.map(term).sum::<f64>());
            }
        }
        output
    }
}

/// The weight has a third dimension of 1, as the tensors of a test have as many.
fn convolution_matches_loops<B: Backend>(sizes: [usize; 4], split: usize, seed: u64) {
    let [batch, seq, channels, taps] = sizes;
    let x = numbers(seed, [batch, seq, channels]);
    let weight = numbers(seed + 1, [1, taps, channels]);
    let plain = Convolution {
        inputs: [&x, &weight].map(|data| data.iter().collect()),
        sizes,
    };
    let expected = in_f32(&plain.output());
    let [tracked_x, tracked_weight] = [&x, &weight].map(tracked::<Autodiff<B>, 3>);
    let factors = tracked_weight.clone().squeeze_dim::<2>(0);
    let (y, _) = ops::short_convolution(tracked_x.clone(), factors, None);
    let actual = with_gradients(y, &[&tracked_x, &tracked_weight]);
    assert_is_defined("convolution", &actual, plain);

    // In two parts that are continued.
    let (x, weight) = (constant::<B, 3>(&x), constant::<B, 3>(&weight));
    let weight = weight.squeeze_dim::<2>(0);
    let first = split.min(seq - 1).max(1).min(seq);
    let (y, past) = ops::short_convolution(x.clone().narrow(1, 0, first), weight.clone(), None);
    let mut parts = vec![y];
    if first < seq {
        let rest = x.narrow(1, first, seq - first);
        parts.push(ops::short_convolution(rest, weight, Some(past)).0);
    }
    let actual = host(Tensor::cat(parts, 1));
    assert_close("continued convolution", &actual, &expected);
}

/// Values and slopes from -90 to 90, where `e^x` is infinite in f32, and at 0.
fn softplus_and_its_slope<B: Backend>(scale: f64, seed: u64) {
    let drawn = numbers(seed, [31]);
    let numbers = drawn.iter::<f64>().map(|x| x * scale);
    let numbers: Vec<f32> = numbers.chain([0.0]).map(|x| x as f32).collect();
    let data = TensorData::new(numbers.clone(), [32]);
    let x = tracked::<Autodiff<B>, 1>(&data);
    let y = ops::softplus(x.clone());
    let slopes = host(x.grad(&y.clone().sum().backward()).unwrap());
    let plain = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    let expected = numbers.iter().map(|&x| plain(f64::from(x)) as f32);
    assert_close("softplus", &host(y.inner()), &expected.collect::<Vec<_>>());
    let slope = |x: f64| 1.0 / (1.0 + (-x).exp());
    let expected = numbers.iter().map(|&x| slope(f64::from(x)) as f32);
    assert_close("slope", &slopes, &expected.collect::<Vec<_>>());
}

crate::on_backends! {
    softplus_and_its_slope(scale in 0.1..45.0_f64, seed in 0..u64::MAX);
    values_and_gradients_in_chunks(
        sizes in [1_usize..3, 1..3, 1..3, 2..9, 2..5, 1..4],
        chunk in 1_usize..10,
        seed in 0..u64::MAX - 9,
    );
    values_and_gradients(
        sizes in [1_usize..3, 1..3, 1..3, 1..9, 2..5, 1..4],
        seed in 0..u64::MAX - 9,
    );
    long_sequences(
        sizes in [1_usize..3, 1..3, 1..4, 10..150, 2..20, 1..20],
        seed in 0..u64::MAX - 9,
    );
    memory_continues_the_sequence(
        sizes in [1_usize..3, 1..3, 1..4, 1..140, 2..6, 1..20],
        split in 0_usize..140,
        seed in 0..u64::MAX - 9,
    );
    the_first_memory_is_zero(
        sizes in [1_usize..3, 1..3, 1..4, 1..5, 2..6, 1..40],
        seed in 0..u64::MAX - 9,
    );
    equal_keys_are_exact(seed in 0..u64::MAX - 9);
    convolution_matches_loops(
        sizes in [1_usize..3, 1..9, 1..6, 2..6],
        split in 0_usize..9,
        seed in 0..u64::MAX - 9,
    );
}
