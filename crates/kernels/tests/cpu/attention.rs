//! Attention and its gradients against loops in f64.

mod dropout;

use emberlm_kernels::cpu::attention::{
    AttentionShape, Dropout, HeadStrides, Heads, HeadsMut, attention, attention_backward,
};
use emberlm_kernels::{AttentionOptions, Precision};
use proptest::prelude::*;

use crate::numbers::{assert_close, cases, numbers, same_on_any_threads};

#[derive(Clone, Debug)]
struct Case {
    shape: AttentionShape,
    options: AttentionOptions,
    documents: Option<Vec<i32>>,
    dropout: Option<Dropout>,
}

/// Every option at random, with sizes up to `most_keys`.
fn case(most_keys: usize, drops: bool) -> impl Strategy<Value = Case> {
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
            // Documents of one length, shifted from one sequence to the next.
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
                    scale: 0.7 / (head_dim as f64).sqrt(),
                    window,
                    global_tokens,
                    dropout: 0.0,
                    precision: Precision::F32,
                },
                documents,
                dropout: dropout
                    .filter(|_| drops)
                    .map(|(probability, seed)| Dropout { probability, seed }),
            }
        },
    )
}

impl Case {
    fn sees(&self, b: usize, i: usize, j: usize) -> bool {
        let position = self.shape.k_len - self.shape.q_len + i;
        let documents = self.documents.as_ref();
        let first = documents.map_or(0, |of| of[b * self.shape.q_len + i] as usize);
        let near = self
            .options
            .window
            .is_none_or(|window| j + window > position);
        j <= position && j >= first && (near || j < first + self.options.global_tokens)
    }

    fn queries(&self, seed: u64) -> Vec<f32> {
        numbers(seed, self.shape.q_dims().iter().product())
    }

    fn keys(&self, seed: u64) -> Vec<f32> {
        numbers(seed, self.shape.k_dims().iter().product())
    }

    fn queries_view<'a>(&self, data: &'a [f32]) -> Heads<'a> {
        let dims = self.shape.q_dims();
        Heads::new(data, HeadStrides::contiguous(dims), dims)
    }

    fn keys_view<'a>(&self, data: &'a [f32]) -> Heads<'a> {
        let dims = self.shape.k_dims();
        Heads::new(data, HeadStrides::contiguous(dims), dims)
    }

    /// The output and the logarithms of the sums.
    fn forward(&self, q: &[f32], k: &[f32], v: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let dims = self.shape.q_dims();
        let mut out = vec![f32::NAN; dims.iter().product()];
        let mut log_sum = vec![f32::NAN; dims[..3].iter().product()];
        attention(
            &self.shape,
            &self.options,
            self.documents.as_deref(),
            self.dropout,
            self.queries_view(q),
            self.keys_view(k),
            self.keys_view(v),
            HeadsMut::new(&mut out, HeadStrides::contiguous(dims), dims),
            Some(&mut log_sum),
        );
        (out, log_sum)
    }

    /// The gradients of queries, keys and values.
    fn backward(&self, q: &[f32], k: &[f32], v: &[f32], grad: &[f32]) -> [Vec<f32>; 3] {
        let (out, log_sum) = self.forward(q, k, v);
        let (q_dims, k_dims) = (self.shape.q_dims(), self.shape.k_dims());
        let mut dq = vec![f32::NAN; q.len()];
        let mut dk = vec![f32::NAN; k.len()];
        let mut dv = vec![f32::NAN; v.len()];
        attention_backward(
            &self.shape,
            &self.options,
            self.documents.as_deref(),
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
        );
        [dq, dk, dv]
    }

    /// Output, sums' logarithms, and the gradients of queries, keys and values, without dropout.
    fn expected(&self, q: &[f32], k: &[f32], v: &[f32], grad: &[f32]) -> [Vec<f64>; 5] {
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
        let f64 = |x: &[f32]| x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
        let (q, k, v, grad) = (f64(q), f64(k), f64(v), f64(grad));
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        for b in 0..batch {
            for h in 0..heads {
                for i in 0..q_len {
                    let at = ((b * heads + h) * q_len + i) * d;
                    let (query, grad) = (&q[at..at + d], &grad[at..at + d]);
                    let kv = b * kv_heads + h / (heads / kv_heads);
                    let keys: Vec<_> = (0..k_len)
                        .filter(|j| self.sees(b, i, *j))
                        .map(|j| (kv * k_len + j) * d)
                        .collect();
                    let scores: Vec<_> = keys
                        .iter()
                        .map(|j| dot(query, &k[*j..j + d]) * self.options.scale)
                        .collect();
                    let sum = scores.iter().map(|score| score.exp()).sum::<f64>();
                    log_sums.push(sum.ln());
                    let weights: Vec<_> = scores.iter().map(|score| score.exp() / sum).collect();
                    for (j, weight) in keys.iter().zip(&weights) {
                        for l in 0..d {
                            out[at + l] += weight * v[j + l];
                            dv[j + l] += weight * grad[l];
                        }
                    }
                    let along = dot(grad, &out[at..at + d]);
                    for (j, weight) in keys.iter().zip(&weights) {
                        let weight_grad = dot(grad, &v[*j..j + d]);
                        let score_grad = weight * (weight_grad - along) * self.options.scale;
                        for l in 0..d {
                            dq[at + l] += score_grad * k[j + l];
                            dk[j + l] += score_grad * query[l];
                        }
                    }
                }
            }
        }
        [out, log_sums, dq, dk, dv]
    }

    fn is_the_same_on_any_threads(&self) {
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

    fn check(&self) {
        let (q, k, v) = (self.queries(1), self.keys(2), self.keys(3));
        let grad = self.queries(4);
        let [out, log_sums, dq, dk, dv] = self.expected(&q, &k, &v, &grad);
        let found = self.forward(&q, &k, &v);
        assert_close("output", &found.0, &out, 1e-6);
        assert_close("sums", &found.1, &log_sums, 1e-6);
        let found = self.backward(&q, &k, &v, &grad);
        // A query that sees itself alone has a gradient of zero, up to rounding.
        let against = |what: &str, found: &[f32], expected: &[f64]| {
            let scale = grad.len() as f64;
            let mut found = found.to_vec();
            let mut expected = expected.to_vec();
            found.push(scale.sqrt() as f32);
            expected.push(f64::from(scale.sqrt() as f32));
            assert_close(what, &found, &expected, 2e-6);
        };
        against("queries' gradient", &found[0], &dq);
        against("keys' gradient", &found[1], &dk);
        against("values' gradient", &found[2], &dv);
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn attention_is_the_softmax_of_what_is_seen(case in case(300, false)) {
        case.check();
    }
}

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn threads_do_not_change_a_bit(case in case(300, true)) {
        case.is_the_same_on_any_threads();
    }
}

/// Heads of one piece of keys and one block of queries, whose vectors are whole ones of any processor: what they hold is
/// read and written where it lies.
fn short(drops: bool) -> impl Strategy<Value = Case> {
    case(128, drops).prop_map(|mut case| {
        let shape = &mut case.shape;
        shape.head_dim = [16, 32, 48, 64, 128][shape.head_dim % 5];
        shape.heads = shape.kv_heads;
        let cut = shape.q_len.saturating_sub(64);
        if cut > 0 {
            shape.q_len -= cut;
            let q_len = shape.q_len;
            if let Some(documents) = &mut case.documents {
                let rows = documents.chunks(q_len + cut);
                *documents = rows.flat_map(|row| row[cut..].to_vec()).collect();
            }
        }
        case
    })
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn short_heads_are_the_same(case in short(false)) {
        case.check();
    }
}

proptest! {
    #![proptest_config(cases(30))]

    /// What was in memory before must not be seen where a few queries together see keys far apart.
    #[test]
    fn documents_may_begin_in_any_order(mut case in case(300, false), seed in any::<u64>()) {
        let shape = case.shape;
        let first = |(at, x): (usize, f32)| {
            let position = shape.k_len - shape.q_len + at % shape.q_len;
            ((x + 2.0) / 4.0 * position as f32) as i32
        };
        let numbers = numbers(seed, shape.batch * shape.q_len);
        case.documents = Some(numbers.into_iter().enumerate().map(first).collect());
        case.check();
    }
}

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn threads_do_not_change_a_bit_of_short_heads(case in short(true)) {
        case.is_the_same_on_any_threads();
    }
}

fn plain(batch: usize, heads: usize, kv_heads: usize, seq: usize, head_dim: usize) -> Case {
    Case {
        shape: AttentionShape {
            batch,
            heads,
            kv_heads,
            q_len: seq,
            k_len: seq,
            head_dim,
        },
        options: AttentionOptions {
            scale: 0.3,
            window: None,
            global_tokens: 0,
            dropout: 0.0,
            precision: Precision::F32,
        },
        documents: None,
        dropout: None,
    }
}

/// Long enough for several ranges of keys and several pieces of each.
#[test]
fn long_sequences_are_cut_into_ranges() {
    plain(1, 2, 1, 1100, 20).check();
    let mut case = plain(1, 1, 1, 1100, 16);
    case.options.window = Some(70);
    case.options.global_tokens = 3;
    case.check();
}

#[test]
fn few_queries_see_a_long_cache() {
    for (q_len, window) in [(1, None), (3, None), (1, Some(600)), (2, Some(10))] {
        let mut case = plain(2, 4, 2, 1301, 40);
        case.shape.q_len = q_len;
        case.options.window = window;
        case.options.global_tokens = 5;
        case.check();
    }
}

/// Element `(b, t, part, i)` of a buffer whose tokens' rows are the queries', keys' and values' heads.
fn fused(case: &Case, [q, k, v]: [&[f32]; 3]) -> Vec<f32> {
    let shape = &case.shape;
    let d = shape.head_dim;
    let mut rows = vec![];
    for b in 0..shape.batch {
        for t in 0..shape.q_len {
            for (data, heads) in [(q, shape.heads), (k, shape.kv_heads), (v, shape.kv_heads)] {
                for h in 0..heads {
                    let at = ((b * heads + h) * shape.q_len + t) * d;
                    rows.extend_from_slice(&data[at..at + d]);
                }
            }
        }
    }
    rows
}

#[test]
fn fused_buffers_hold_the_same_numbers() {
    for case in [
        plain(2, 6, 2, 131, 24),
        plain(1, 2, 2, 700, 7),
        plain(3, 4, 4, 61, 32),
    ] {
        let (q, k, v) = (case.queries(1), case.keys(2), case.keys(3));
        let grad = case.queries(4);
        let (out, log_sum) = case.forward(&q, &k, &v);
        let [dq, dk, dv] = case.backward(&q, &k, &v, &grad);
        let expected = fused(&case, [&dq, &dk, &dv]);

        let shape = &case.shape;
        let buffer = fused(&case, [&q, &k, &v]);
        let mut found = vec![f32::NAN; buffer.len()];
        let (q, k, v) = Heads::split_fused(&buffer, shape);
        let (dq, dk, dv) = HeadsMut::split_fused(&mut found, shape);
        attention_backward(
            shape,
            &case.options,
            None,
            None,
            q,
            k,
            v,
            case.queries_view(&out),
            &log_sum,
            case.queries_view(&grad),
            dq,
            dk,
            dv,
        );
        assert_eq!(found, expected);

        let row = shape.heads * shape.head_dim;
        let mut rows = vec![f32::NAN; out.len()];
        let strides = HeadStrides::of_rows(shape.q_len, shape.head_dim, row);
        let view = HeadsMut::new(&mut rows, strides, shape.q_dims());
        attention(shape, &case.options, None, None, q, k, v, view, None);
        let mut expected = vec![];
        for b in 0..shape.batch {
            for t in 0..shape.q_len {
                for h in 0..shape.heads {
                    let at = ((b * shape.heads + h) * shape.q_len + t) * shape.head_dim;
                    expected.extend_from_slice(&out[at..at + shape.head_dim]);
                }
            }
        }
        assert_eq!(rows, expected);
    }
}

#[test]
fn a_document_that_begins_too_late_is_the_query_alone() {
    let mut case = plain(1, 2, 1, 70, 9);
    case.documents = Some((0..70).map(|i| if i % 3 == 0 { 500 } else { -4 }).collect());
    let (q, k, v) = (case.queries(1), case.keys(2), case.keys(3));
    let (found, _) = case.forward(&q, &k, &v);
    let gradients = case.backward(&q, &k, &v, &q);
    assert!(gradients.iter().flatten().all(|x| x.is_finite()));
    case.documents = Some((0..70).map(|i| if i % 3 == 0 { i } else { 0 }).collect());
    assert_eq!(found, case.forward(&q, &k, &v).0);
    assert_eq!(found[66 * 9..67 * 9], v[66 * 9..67 * 9]);
}

#[test]
#[should_panic(expected = "overlap")]
fn vectors_to_write_may_not_overlap() {
    let strides = HeadStrides {
        batch: 100,
        head: 3,
        token: 10,
    };
    HeadsMut::new(&mut [0.0; 200], strides, [1, 2, 2, 4]);
}
