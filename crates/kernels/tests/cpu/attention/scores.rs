//! Compares soft caps, biases, padding and full reach with loops in f64.

use emberlm_kernels::Reach;
use proptest::prelude::*;

use super::case::{any_case, plain};
use crate::numbers::cases;

proptest! {
    #![proptest_config(cases(80))]

    #[test]
    fn every_option_matches_loops(case in any_case(300, false)) {
        case.check();
    }
}

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn every_option_is_bit_identical_on_any_threads(case in any_case(300, true)) {
        case.assert_same_on_any_threads();
    }
}

/// Short heads whose vectors are accessed in place, and long ones whose keys are split into ranges.
#[test]
fn soft_cap_combines_with_windows_and_documents() {
    for (seq, head_dim) in [(60, 32), (128, 16), (700, 20)] {
        let mut case = plain(2, 2, 2, seq, head_dim);
        case.options.soft_cap = Some(0.8);
        case.options.reach = Reach::Window {
            tokens: 21,
            global_tokens: 2,
        };
        case.check();
        case.options.reach = Reach::Causal;
        let document = |at: usize| (at % seq / 19 * 19) as i32;
        case.documents = Some((0..2 * seq).map(document).collect());
        case.check();
    }
}

#[test]
fn lengths_of_queries_and_keys_are_independent_with_full_reach() {
    for (q_len, k_len) in [
        (1, 1),
        (1, 900),
        (5, 64),
        (64, 5),
        (300, 1),
        (131, 257),
        (3, 1000),
    ] {
        let mut case = plain(2, 4, 2, k_len, 24).full(q_len);
        case.check();
        case.options.soft_cap = Some(1.5);
        case.biased(3).padded(0.5, 4).check();
    }
}

/// A single query over a long cache, as in generation with a soft cap.
#[test]
fn few_queries_are_capped_biased_and_padded() {
    for q_len in [1, 2] {
        let mut case = plain(2, 4, 2, 1301, 16);
        case.shape.q_len = q_len;
        case.options.soft_cap = Some(0.9);
        case.clone().biased(5).check();
        case.padded(0.3, 6).check();
    }
}

#[test]
fn a_query_without_visible_keys_has_zero_output_and_gradients() {
    for (q_len, k_len, head_dim) in [(1, 40, 16), (70, 70, 16), (9, 300, 7)] {
        let mut case = plain(2, 2, 1, k_len, head_dim).full(q_len);
        // All keys of the first sequence are padding.
        case.padding = Some((0..2 * k_len).map(|at| at >= k_len).collect());
        case = case.biased(7);
        case.check();
        let (q, k, v) = (case.queries(1), case.keys(2), case.keys(3));
        let of_first = 2 * q_len * head_dim;
        let (out, log_sum) = case.forward(&q, &k, &v);
        assert!(out[..of_first].iter().all(|x| *x == 0.0));
        assert!(log_sum[..2 * q_len].iter().all(|x| *x == f32::NEG_INFINITY));
        let [dq, dk, dv, _] = case.backward(&q, &k, &v, &q);
        let zeros = [
            &dq[..of_first],
            &dk[..k_len * head_dim],
            &dv[..k_len * head_dim],
        ];
        assert!(zeros.into_iter().flatten().all(|x| *x == 0.0));
    }
}

/// Causal attention with left padding: the first queries only see padding.
#[test]
fn left_padding_is_supported() {
    let mut case = plain(2, 2, 2, 150, 16);
    case.padding = Some((0..300).map(|at| at % 150 >= 70 - at / 150 * 30).collect());
    case.check();
    let (q, k, v) = (case.queries(1), case.keys(2), case.keys(3));
    let (out, _) = case.forward(&q, &k, &v);
    assert!(out[..70 * 16].iter().all(|x| *x == 0.0));
    assert!(out[70 * 16..71 * 16].iter().any(|x| *x != 0.0));
}

#[test]
fn zero_keys_are_supported() {
    let case = plain(1, 2, 1, 0, 4).full(3);
    let q = case.queries(1);
    let (out, log_sum) = case.forward(&q, &[], &[]);
    assert!(out.iter().all(|x| *x == 0.0));
    assert!(log_sum.iter().all(|x| *x == f32::NEG_INFINITY));
    let [dq, ..] = case.backward(&q, &[], &[], &q);
    assert!(dq.iter().all(|x| *x == 0.0));
}

#[test]
#[should_panic(expected = "more queries than keys")]
fn causal_attention_rejects_more_queries_than_keys() {
    let mut case = plain(1, 1, 1, 3, 4);
    case.shape.q_len = 4;
    case.forward(&case.queries(1), &case.keys(2), &case.keys(3));
}

/// A large cap leaves the scores unchanged, up to rounding.
#[test]
fn a_wide_soft_cap_has_little_effect() {
    let mut case = plain(1, 2, 1, 90, 16);
    let (q, k, v) = (case.queries(1), case.keys(2), case.keys(3));
    let (plain, _) = case.forward(&q, &k, &v);
    case.options.soft_cap = Some(1e4);
    let (capped, _) = case.forward(&q, &k, &v);
    for (x, y) in plain.iter().zip(capped) {
        assert!((x - y).abs() < 1e-5, "{y} and not {x}");
    }
}
