//! Tests linear attention: values against the double sum in f64, gradients against central differences of that
//! sum, and numerical stability for large activations.

use burn::backend::Autodiff;
use burn::tensor::{Tensor, TensorData};
use emberlm_kernels::{Backend, ops, reference};

use crate::compare::{
    Definition, assert_close, assert_is_defined, constant, host, in_f32, numbers, tracked,
    with_gradients,
};

/// `[batch, kv_heads, queries per key-value head, seq, head_dim, features]`.
type Sizes = [usize; 6];

struct Case {
    /// Queries, keys and values.
    inputs: [TensorData; 3],
    features: TensorData,
}

/// The definition of linear attention in f64, without shifts and chunks.
struct Plain {
    inputs: [Vec<f64>; 3],
    features: Vec<f64>,
    heads: usize,
    kv_heads: usize,
    seq: usize,
    head_dim: usize,
}

impl Case {
    fn new([batch, kv_heads, group, seq, head_dim, features]: Sizes, seed: u64) -> Self {
        let keys = [batch, kv_heads, seq, head_dim];
        Self {
            inputs: [
                numbers(seed, [batch, kv_heads * group, seq, head_dim]),
                numbers(seed + 1, keys),
                numbers(seed + 2, keys),
            ],
            features: numbers(seed + 3, [features, head_dim]),
        }
    }

    fn plain(&self) -> Plain {
        let values = |data: &TensorData| data.iter::<f64>().collect::<Vec<_>>();
        let [_, heads, seq, head_dim] = self.inputs[0].shape.dims();
        Plain {
            inputs: [0, 1, 2].map(|n| values(&self.inputs[n])),
            features: values(&self.features),
            heads,
            kv_heads: self.inputs[1].shape.dims::<4>()[1],
            seq,
            head_dim,
        }
    }
}

impl Plain {
    /// `exp(ω x' - ‖x'‖²/2)` of each row.
    fn positive_features(&self, x: &[f64]) -> Vec<Vec<f64>> {
        let root = (self.head_dim as f64).powf(0.25);
        let row = |x: &[f64]| {
            let x: Vec<f64> = x.iter().map(|x| x / root).collect();
            let square: f64 = x.iter().map(|x| x * x).sum();
            let dot = |row: &[f64]| row.iter().zip(&x).map(|(a, b)| a * b).sum::<f64>();
            let rows = self.features.chunks(self.head_dim);
            rows.map(|row| (dot(row) - square / 2.0).exp()).collect()
        };
        x.chunks(self.head_dim).map(row).collect()
    }
}

impl Definition for Plain {
    fn input(&mut self, number: usize) -> &mut [f64] {
        &mut self.inputs[number]
    }

    fn output(&self) -> Vec<f64> {
        let [q, k] = [0, 1].map(|n| self.positive_features(&self.inputs[n]));
        let v: Vec<&[f64]> = self.inputs[2].chunks(self.head_dim).collect();
        let mut output = Vec::new();
        for (n, q) in q.iter().enumerate() {
            let (head, i) = (n / self.seq, n % self.seq);
            let (batch, head) = (head / self.heads, head % self.heads);
            let first = (batch * self.kv_heads + head * self.kv_heads / self.heads) * self.seq;
            let shared = |j: usize| q.iter().zip(&k[j]).map(|(a, b)| a * b).sum::<f64>();
            let weights: Vec<f64> = (first..=first + i).map(shared).collect();
            let total: f64 = weights.iter().sum();
            for e in 0..self.head_dim {
                let terms = weights.iter().zip(&v[first..]);
                output.push(terms.map(|(weight, v)| weight * v[e]).sum::<f64>() / total);
            }
        }
        output
    }
}

fn values_and_gradients<B: Backend>(sizes: Sizes, chunk: usize, seed: u64) {
    let case = Case::new(sizes, seed);
    let inputs = [0, 1, 2].map(|n| tracked::<Autodiff<B>, 4>(&case.inputs[n]));
    let [q, k, v] = &inputs;
    let features = constant::<Autodiff<B>, 2>(&case.features);
    let (output, _) = reference::linear_attention(
        q.clone(),
        k.clone(),
        v.clone(),
        features.clone(),
        None,
        chunk,
    );
    let actual = with_gradients(output, &[q, k, v]);
    assert_is_defined("linear attention", &actual, case.plain());
}

/// The sequence is split anywhere, and the second part continues from the state of the first.
fn state_continues_the_sequence<B: Backend>(sizes: Sizes, chunks: [usize; 2], seed: u64) {
    let case = Case::new(sizes, seed);
    let inputs = [0, 1, 2].map(|n| constant::<B, 4>(&case.inputs[n]));
    let features = constant::<B, 2>(&case.features);
    let seq = sizes[3];
    let mut state = None;
    let mut parts = Vec::new();
    for (start, end) in [(0, seq / 2), (seq / 2, seq)] {
        if start == end {
            continue;
        }
        let [q, k, v] = inputs
            .each_ref()
            .map(|x| x.clone().narrow(2, start, end - start));
        let (output, next) =
            reference::linear_attention(q, k, v, features.clone(), state, chunks[start.min(1)]);
        parts.push(output);
        state = next;
    }
    let actual = host(Tensor::cat(parts, 2));
    assert_close("continued", &actual, &in_f32(&case.plain().output()));
}

fn weights_make_the_output<B: Backend>(sizes: Sizes, seed: u64) {
    let case = Case::new(sizes, seed);
    let [q, k, v] = [0, 1, 2].map(|n| constant::<B, 4>(&case.inputs[n]));
    let (heads, [batch, kv_heads, seq, head_dim]) = (q.dims()[1], v.dims());
    let weights = ops::linear_attention_weights(q, k, constant::<B, 2>(&case.features));
    for (row, weights) in host(weights.clone()).chunks(seq).enumerate() {
        let sum: f32 = weights.iter().sum();
        assert!((sum - 1.0).abs() < 1e-5, "a row's weights sum to {sum}");
        assert!(weights[row % seq + 1..].iter().all(|&weight| weight == 0.0));
    }
    let v = v.repeat_dim(2, heads / kv_heads);
    let output = weights.matmul(v.reshape([batch, heads, seq, head_dim]));
    assert_close("weights", &host(output), &in_f32(&case.plain().output()));
}

/// Activations a thousand times larger: features far outside f32's range and some weights underflowing to 0.
/// Outputs must be finite and within the bounds of the values.
fn large_activations_stay_finite<B: Backend>(sizes: Sizes, factor: f64, seed: u64) {
    let case = Case::new(sizes, seed);
    let [q, k, v] = [0, 1, 2].map(|n| constant::<Autodiff<B>, 4>(&case.inputs[n]));
    let [q, k] = [q, k].map(|x| (x * factor).detach().require_grad());
    let v = v.require_grad();
    let features = constant::<Autodiff<B>, 2>(&case.features);
    let (output, _) =
        reference::linear_attention(q.clone(), k.clone(), v.clone(), features, None, 3);
    let all = with_gradients(output, &[&q, &k, &v]);
    assert!(all.iter().flatten().all(|x| x.is_finite()), "{all:?}");
    assert!(all[0].iter().all(|x| x.abs() <= 2.001), "{:?}", all[0]);
}

crate::on_backends! {
    values_and_gradients(
        // With a single token or feature, the gradient is the rounding error of terms that cancel.
        sizes in [1_usize..3, 1..3, 1..3, 2..9, 1..5, 4..12],
        chunk in 1_usize..10,
        seed in 0..u64::MAX - 3,
    );
    state_continues_the_sequence(
        sizes in [1_usize..3, 1..3, 1..4, 1..12, 1..6, 1..9],
        chunks in [1_usize..6, 1..6],
        seed in 0..u64::MAX - 3,
    );
    weights_make_the_output(
        sizes in [1_usize..3, 1..3, 1..4, 1..12, 1..6, 1..9],
        seed in 0..u64::MAX - 3,
    );
    large_activations_stay_finite(
        sizes in [1_usize..3, 1..3, 1..3, 1..12, 1..9, 1..33],
        factor in 1.0..1000.0_f64,
        seed in 0..u64::MAX - 3,
    );
}
