//! Compares attention and its gradients with loops in f64.

mod case;
mod dropout;
mod packed;
mod rounded;
mod scores;

use emberlm_kernels::Reach;
use emberlm_kernels::cpu::attention::{
    HeadStrides, Heads, HeadsMut, Mask, attention, attention_backward,
};
use proptest::prelude::*;

use case::{Case, case, plain};

use crate::numbers::{cases, numbers};

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn attention_matches_loops(case in case(300, false)) {
        case.check();
    }
}

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn results_are_bit_identical_on_any_threads(case in case(300, true)) {
        case.assert_same_on_any_threads();
    }
}

/// Heads with a single chunk of keys and a single block of queries, whose lengths are multiples of the vector
/// width on any CPU. The kernels read and write them in place.
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
    fn short_heads_match_loops(case in short(false)) {
        case.check();
    }
}

proptest! {
    #![proptest_config(cases(30))]

    /// If a few queries together see distant keys, previous memory contents must not leak into the result.
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
    fn short_heads_are_bit_identical_on_any_threads(case in short(true)) {
        case.assert_same_on_any_threads();
    }
}

/// Long enough for several ranges of keys with several chunks each.
#[test]
fn long_sequences_are_split_into_ranges() {
    plain(1, 2, 1, 1100, 20).check();
    let mut case = plain(1, 1, 1, 1100, 16);
    case.options.reach = Reach::Window {
        tokens: 70,
        global_tokens: 3,
    };
    case.check();
}

#[test]
fn few_queries_attend_to_a_long_cache() {
    for (q_len, window) in [(1, None), (3, None), (1, Some(600)), (2, Some(10))] {
        let mut case = plain(2, 4, 2, 1301, 40);
        case.shape.q_len = q_len;
        case.options.reach = window.map_or(Reach::Causal, |tokens| Reach::Window {
            tokens,
            global_tokens: 5,
        });
        case.check();
    }
}

/// Interleaves the heads of queries, keys and values into the rows of a fused buffer.
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
fn fused_buffers_match_separate_ones() {
    for case in [
        plain(2, 6, 2, 131, 24),
        plain(1, 2, 2, 700, 7),
        plain(3, 4, 4, 61, 32),
    ] {
        let (q, k, v) = (case.queries(1), case.keys(2), case.keys(3));
        let grad = case.queries(4);
        let (out, log_sum) = case.forward(&q, &k, &v);
        let [dq, dk, dv, _] = case.backward(&q, &k, &v, &grad);
        let expected = fused(&case, [&dq, &dk, &dv]);

        let shape = &case.shape;
        let buffer = fused(&case, [&q, &k, &v]);
        let mut actual = vec![f32::NAN; buffer.len()];
        let (q, k, v) = Heads::split_fused(&buffer, shape);
        let (dq, dk, dv) = HeadsMut::split_fused(&mut actual, shape);
        attention_backward(
            shape,
            &case.options,
            Mask::default(),
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
            None,
        );
        assert_eq!(actual, expected);

        let row = shape.heads * shape.head_dim;
        let mut rows = vec![f32::NAN; out.len()];
        let strides = HeadStrides::of_rows(shape.q_len, shape.head_dim, row);
        let view = HeadsMut::new(&mut rows, strides, shape.q_dims());
        let mask = Mask::default();
        attention(shape, &case.options, mask, None, q, k, v, view, None);
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
fn a_document_that_begins_after_its_query_starts_at_the_query() {
    let mut case = plain(1, 2, 1, 70, 9);
    case.documents = Some((0..70).map(|i| if i % 3 == 0 { 500 } else { -4 }).collect());
    let (q, k, v) = (case.queries(1), case.keys(2), case.keys(3));
    let (actual, _) = case.forward(&q, &k, &v);
    let gradients = case.backward(&q, &k, &v, &q);
    assert!(gradients.iter().flatten().all(|x| x.is_finite()));
    case.documents = Some((0..70).map(|i| if i % 3 == 0 { i } else { 0 }).collect());
    assert_eq!(actual, case.forward(&q, &k, &v).0);
    assert_eq!(actual[66 * 9..67 * 9], v[66 * 9..67 * 9]);
}

#[test]
#[should_panic(expected = "overlap")]
fn writable_vectors_must_not_overlap() {
    let strides = HeadStrides {
        batch: 100,
        head: 3,
        token: 10,
    };
    HeadsMut::new(&mut [0.0; 200], strides, [1, 2, 2, 4]);
}
