//! Inputs of attention, and attention with plain loops in f64.

use emberlm_kernels::cpu::attention::{
    AttentionShape, Dropout, HeadStrides, Heads, HeadsMut, Mask, TokenVectors, attention,
    attention_backward,
};
use emberlm_kernels::{AttentionOptions, Precision, Reach};
use proptest::prelude::*;

use crate::numbers::{assert_close, numbers, same_on_any_threads};

#[derive(Clone, Debug)]
pub struct Case {
    pub shape: AttentionShape,
    pub options: AttentionOptions,
    pub documents: Option<Vec<i32>>,
    /// `[batch, k_len]`.
    pub padding: Option<Vec<bool>>,
    /// `[heads, q_len, k_len]`.
    pub bias: Option<Vec<f32>>,
    /// `[heads]`.
    pub sinks: Option<Vec<f32>>,
    pub dropout: Option<Dropout>,
}

/// The gradients of queries, keys, values and bias; the last is empty without a bias.
pub type Gradients = [Vec<f32>; 4];

/// Random causal attention with documents, windows and dropout, with up to `most_keys` keys.
pub fn case(most_keys: usize, drops: bool) -> impl Strategy<Value = Case> {
    let sizes = (
        1..3usize,
        1..3usize,
        1..4usize,
        1..=most_keys,
        1..=80usize,
        0..4u8,
    );
    let window = prop::option::of(1..=most_keys);
    let dropout = prop::option::of((0.05..0.8f64, any::<u64>()));
    let documents = prop::option::of(1..60usize);
    (sizes, window, 0..20usize, documents, dropout, 0.0..1.0f64).prop_map(
        move |(sizes, window, global_tokens, documents, dropout, share)| {
            let (batch, kv_heads, group, k_len, head_dim, kind) = sizes;
            let q_len = match kind {
                0 => 1,
                1 => ((k_len as f64 * share) as usize).clamp(1, k_len),
                _ => k_len,
            };
            let shape = AttentionShape {
                batch,
                heads: kv_heads * group,
                kv_heads,
                q_len,
                k_len,
                head_dim,
            };
            // All documents have the same length, and are shifted between sequences.
            let documents = documents.map(|length| {
                let of = |b: usize, i: usize| {
                    let position = k_len - q_len + i;
                    ((position + 7 * b) / length * length).saturating_sub(7 * b) as i32
                };
                (0..batch * q_len)
                    .map(|at| of(at / q_len, at % q_len))
                    .collect()
            });
            Case {
                shape,
                options: AttentionOptions {
                    reach: window.map_or(Reach::Causal, |tokens| Reach::Window {
                        tokens,
                        global_tokens,
                    }),
                    ..causal(0.7 / (head_dim as f64).sqrt())
                },
                documents,
                padding: None,
                bias: None,
                sinks: None,
                dropout: dropout
                    .filter(|_| drops)
                    .map(|(probability, seed)| Dropout { probability, seed }),
            }
        },
    )
}

/// [`case`] with random soft caps, biases, sinks and padding, and full reach with any number of queries, or a window in both
/// directions.
pub fn any_case(most_keys: usize, drops: bool) -> impl Strategy<Value = Case> {
    let soft_cap = prop::option::of(0.2..4.0f64);
    let seen = prop::option::of(0.02..1.0f64);
    let full = prop::option::of(1..=most_keys);
    let local = prop::option::of(0..=most_keys);
    let options = (
        soft_cap,
        seen,
        full,
        local,
        any::<[bool; 2]>(),
        any::<u64>(),
    );
    (case(most_keys, drops), options).prop_map(|(case, options)| {
        let (soft_cap, seen, full, local, [biased, sunk], seed) = options;
        let mut case = case;
        case.options.soft_cap = soft_cap;
        if let Some(q_len) = full {
            case = case.full(q_len);
        } else if let Some(distance) = local {
            case.options.reach = Reach::Local { distance };
        }
        if biased {
            case = case.biased(seed);
        }
        if sunk {
            case.sinks = Some(numbers(seed ^ 1, case.shape.heads));
        }
        if let Some(share) = seen {
            case = case.padded(share, seed);
        }
        case
    })
}

fn causal(scale: f64) -> AttentionOptions {
    AttentionOptions {
        reach: Reach::Causal,
        scale,
        soft_cap: None,
        dropout: 0.0,
        precision: Precision::F32,
    }
}

/// Causal attention with `seq` queries and keys.
pub fn plain(batch: usize, heads: usize, kv_heads: usize, seq: usize, head_dim: usize) -> Case {
    Case {
        shape: AttentionShape {
            batch,
            heads,
            kv_heads,
            q_len: seq,
            k_len: seq,
            head_dim,
        },
        options: causal(0.3),
        documents: None,
        padding: None,
        bias: None,
        sinks: None,
        dropout: None,
    }
}

impl Case {
    /// Changes the reach to full and the number of queries to `q_len`.
    pub fn full(mut self, q_len: usize) -> Self {
        self.options.reach = Reach::Full;
        self.shape.q_len = q_len;
        self.documents = None;
        self
    }

    /// Rounds the operands of products to bfloat16 where the CPU has tile registers.
    pub fn rounded(mut self) -> Self {
        self.options.precision = Precision::Bf16;
        self
    }

    /// Adds a bias in ±2.
    pub fn biased(mut self, seed: u64) -> Self {
        let count = self.shape.heads * self.shape.q_len * self.shape.k_len;
        self.bias = Some(numbers(seed, count));
        self
    }

    /// Adds padding such that about this share of the keys is visible, possibly none.
    pub fn padded(mut self, share: f64, seed: u64) -> Self {
        let count = self.shape.batch * self.shape.k_len;
        let seen = numbers(seed, count)
            .into_iter()
            .map(|x| f64::from(x) + 2.0 < 4.0 * share);
        self.padding = Some(seen.collect());
        self
    }

    fn mask(&self) -> Mask<'_> {
        Mask {
            documents: self.documents.as_deref(),
            padding: self.padding.as_deref(),
            bias: self.bias.as_deref(),
            sinks: self.sinks.as_deref(),
        }
    }

    fn sees(&self, b: usize, i: usize, j: usize) -> bool {
        let AttentionShape { q_len, k_len, .. } = self.shape;
        let documents = self.documents.as_ref();
        let first = documents.map_or(0, |of| of[b * q_len + i] as usize);
        let position = || k_len - q_len + i;
        let reached = match self.options.reach {
            Reach::Causal => j <= position(),
            Reach::Window {
                tokens,
                global_tokens,
            } => j <= position() && (j + tokens > position() || j < first + global_tokens),
            Reach::Local { distance } => j.abs_diff(position()) <= distance,
            Reach::Full => true,
        };
        let padding = self.padding.as_ref();
        reached && j >= first && padding.is_none_or(|seen| seen[b * k_len + j])
    }

    pub fn queries(&self, seed: u64) -> Vec<f32> {
        numbers(seed, self.shape.q_dims().iter().product())
    }

    pub fn keys(&self, seed: u64) -> Vec<f32> {
        numbers(seed, self.shape.k_dims().iter().product())
    }

    pub fn queries_view<'a>(&self, data: &'a [f32]) -> Heads<'a> {
        let dims = self.shape.q_dims();
        Heads::new(data, HeadStrides::contiguous(dims), dims)
    }

    pub fn keys_view<'a>(&self, data: &'a [f32]) -> Heads<'a> {
        let dims = self.shape.k_dims();
        Heads::new(data, HeadStrides::contiguous(dims), dims)
    }

    /// Returns the output and the log-sums.
    pub fn forward(&self, q: &[f32], k: &[f32], v: &[f32]) -> (Vec<f32>, Vec<f32>) {
        self.forward_over(q, self.keys_view(k), self.keys_view(v))
    }

    /// [`Self::forward`] over keys and values in any form.
    pub fn forward_over<K: TokenVectors>(&self, q: &[f32], k: K, v: K) -> (Vec<f32>, Vec<f32>) {
        let dims = self.shape.q_dims();
        let mut out = vec![f32::NAN; dims.iter().product()];
        let mut log_sum = vec![f32::NAN; dims[..3].iter().product()];
        attention(
            &self.shape,
            &self.options,
            self.mask(),
            self.dropout,
            self.queries_view(q),
            k,
            v,
            HeadsMut::new(&mut out, HeadStrides::contiguous(dims), dims),
            Some(&mut log_sum),
        );
        (out, log_sum)
    }

    pub fn backward(&self, q: &[f32], k: &[f32], v: &[f32], grad: &[f32]) -> Gradients {
        let (out, log_sum) = self.forward(q, k, v);
        let (q_dims, k_dims) = (self.shape.q_dims(), self.shape.k_dims());
        let mut dq = vec![f32::NAN; q.len()];
        let mut dk = vec![f32::NAN; k.len()];
        let mut dv = vec![f32::NAN; v.len()];
        let mut dbias = vec![f32::NAN; self.bias.as_ref().map_or(0, Vec::len)];
        attention_backward(
            &self.shape,
            &self.options,
            self.mask(),
            self.dropout,
            self.queries_view(q),
            self.keys_view(k),
            self.keys_view(v),
            self.queries_view(&out),
            &log_sum,
            self.queries_view(grad),
            HeadsMut::new(&mut dq, HeadStrides::contiguous(q_dims), q_dims),
            HeadsMut::new(&mut dk, HeadStrides::contiguous(k_dims), k_dims),
            HeadsMut::new(&mut dv, HeadStrides::contiguous(k_dims), k_dims),
            self.bias.is_some().then_some(&mut dbias[..]),
        );
        [dq, dk, dv, dbias]
    }

    /// Computes output, log-sums, and the gradients of queries, keys, values and bias, without dropout.
    fn expected(&self, q: &[f32], k: &[f32], v: &[f32], grad: &[f32]) -> [Vec<f64>; 6] {
        let AttentionShape {
            batch,
            heads,
            kv_heads,
            q_len,
            k_len,
            head_dim: d,
        } = self.shape;
        let mut out = vec![0.0; q.len()];
        let mut log_sums = vec![];
        let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
        let mut dbias = vec![0.0; self.bias.as_ref().map_or(0, Vec::len)];
        let f64 = |x: &[f32]| x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
        let (q, k, v, grad) = (f64(q), f64(k), f64(v), f64(grad));
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        for b in 0..batch {
            for h in 0..heads {
                for i in 0..q_len {
                    let at = ((b * heads + h) * q_len + i) * d;
                    let (query, grad) = (&q[at..at + d], &grad[at..at + d]);
                    let kv = b * kv_heads + h / (heads / kv_heads);
                    let bias_at = |j: usize| (h * q_len + i) * k_len + j;
                    // For each visible key: the offset of its vectors, its score before the bias, and its weight.
                    let mut seen: Vec<(usize, usize, f64, f64)> = (0..k_len)
                        .filter(|j| self.sees(b, i, *j))
                        .map(|j| {
                            let at = (kv * k_len + j) * d;
                            let score = dot(query, &k[at..at + d]) * self.options.scale;
                            let cap = |cap: f64| cap * (score / cap).tanh();
                            let score = self.options.soft_cap.map_or(score, cap);
                            let bias = self
                                .bias
                                .as_ref()
                                .map_or(0.0, |of| f64::from(of[bias_at(j)]));
                            (j, at, score, (score + bias).exp())
                        })
                        .collect();
                    let sink = self.sinks.as_ref().map(|of| f64::from(of[h]).exp());
                    let sum = seen.iter().map(|seen| seen.3).sum::<f64>() + sink.unwrap_or(0.0);
                    log_sums.push(sum.ln());
                    for (_, j, _, weight) in &mut seen {
                        *weight /= sum;
                        for l in 0..d {
                            out[at + l] += *weight * v[*j + l];
                            dv[*j + l] += *weight * grad[l];
                        }
                    }
                    let along = dot(grad, &out[at..at + d]);
                    for (key, j, score, weight) in seen {
                        let weight_grad = dot(grad, &v[j..j + d]);
                        let score_grad = weight * (weight_grad - along);
                        if self.bias.is_some() {
                            dbias[bias_at(key)] += score_grad;
                        }
                        let slope = |cap: f64| 1.0 - (score / cap).powi(2);
                        let slope = self.options.soft_cap.map_or(1.0, slope);
                        let score_grad = score_grad * slope * self.options.scale;
                        for l in 0..d {
                            dq[at + l] += score_grad * k[j + l];
                            dk[j + l] += score_grad * query[l];
                        }
                    }
                }
            }
        }
        [out, log_sums, dq, dk, dv, dbias]
    }

    pub fn assert_same_on_any_threads(&self) {
        let (q, k, v) = (self.queries(1), self.keys(2), self.keys(3));
        let grad = self.queries(4);
        same_on_any_threads(|| {
            let (out, log_sum) = self.forward(&q, &k, &v);
            let gradients = self.backward(&q, &k, &v, &grad);
            [out, log_sum]
                .into_iter()
                .chain(gradients)
                .flatten()
                .collect()
        });
    }

    pub fn check(&self) {
        let (q, k, v) = (self.queries(1), self.keys(2), self.keys(3));
        let grad = self.queries(4);
        let [out, log_sums, dq, dk, dv, dbias] = self.expected(&q, &k, &v, &grad);
        let actual = self.forward(&q, &k, &v);
        // A few units of rounding.
        let error = match self.options.precision {
            Precision::F32 => 1e-6,
            Precision::Bf16 | Precision::F16 => 1e-2,
        };
        assert_close("output", &actual.0, &out, error);
        // The sum of a query without visible keys is 0.
        let pairs = actual.1.iter().copied().zip(log_sums);
        let (sums, none): (Vec<_>, Vec<_>) = pairs.partition(|pair| pair.1.is_finite());
        assert!(none.iter().all(|pair| pair.0 == f32::NEG_INFINITY));
        let (found_sums, log_sums): (Vec<_>, Vec<_>) = sums.into_iter().unzip();
        assert_close("sums", &found_sums, &log_sums, error);
        let actual = self.backward(&q, &k, &v, &grad);
        // The gradient of a query that only sees its own key is zero, up to rounding.
        let against = |what: &str, actual: &[f32], expected: &[f64]| {
            let scale = grad.len() as f64;
            let mut actual = actual.to_vec();
            let mut expected = expected.to_vec();
            actual.push(scale.sqrt() as f32);
            expected.push(f64::from(scale.sqrt() as f32));
            assert_close(what, &actual, &expected, 2.0 * error);
        };
        against("queries' gradient", &actual[0], &dq);
        against("keys' gradient", &actual[1], &dk);
        against("values' gradient", &actual[2], &dv);
        against("bias's gradient", &actual[3], &dbias);
    }
}
