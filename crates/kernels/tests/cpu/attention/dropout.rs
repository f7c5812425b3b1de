//! Tests the dropout of weights: its rate, and that both passes drop the same weights.

use emberlm_kernels::cpu::attention::Dropout;
use proptest::prelude::*;

use super::case::{any_case, plain};
use crate::numbers::{cases, numbers};

proptest! {
    #![proptest_config(cases(16))]

    /// The backward pass drops the same weights as the forward pass. Both are linear in the values and in the
    /// output's gradient, so their inner products must agree, and the gradients of queries and keys must match
    /// finite differences of the forward pass.
    #[test]
    fn backward_drops_the_same_weights_as_forward(case in any_case(40, true)) {
        let (q, k, v) = (case.queries(1), case.keys(2), case.keys(3));
        let grad = case.queries(4);
        let [dq, dk, dv, _] = case.backward(&q, &k, &v, &grad);
        let loss = |q: &[f32], k: &[f32], v: &[f32]| -> f64 {
            let (out, _) = case.forward(q, k, v);
            out.iter().zip(&grad).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
        };
        let moved = |x: &[f32], by: &[f32], step: f32| -> Vec<f32> {
            x.iter().zip(by).map(|(x, by)| x + by * step).collect()
        };
        let along = |x: &[f32], y: &[f32]| -> f64 {
            x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
        };
        let step = 2e-3;
        let scale = (grad.len() as f64).sqrt();
        for (at, gradient) in [&dq, &dk, &dv].into_iter().enumerate() {
            let direction = numbers(9, gradient.len());
            let at_step = |step: f32| match at {
                0 => loss(&moved(&q, &direction, step), &k, &v),
                1 => loss(&q, &moved(&k, &direction, step), &v),
                _ => loss(&q, &k, &moved(&v, &direction, step)),
            };
            let difference = (at_step(step) - at_step(-step)) / (2.0 * f64::from(step));
            let expected = along(gradient, &direction);
            prop_assert!(
                (difference - expected).abs() <= 2e-3 * (expected.abs() + 10.0 * scale),
                "gradient {at}: {difference} by differences and not {expected}"
            );
        }
    }
}

/// With equal scores and values of 1, each weight is 1/n for n visible keys, and the output is the share of kept
/// weights times `1/(1 - p)`.
#[test]
fn dropout_has_the_requested_rate() {
    let mut case = plain(2, 4, 4, 300, 16);
    case.options.scale = 0.0;
    let (q, k) = (case.queries(1), case.keys(2));
    let v = vec![1.0; k.len()];
    let mut outputs = vec![];
    for seed in [1, 2] {
        case.dropout = Some(Dropout {
            probability: 0.3,
            seed,
        });
        let (out, _) = case.forward(&q, &k, &v);
        let heads = out.chunks(300 * 16);
        for head in heads {
            let late: Vec<_> = head.chunks(16).skip(100).map(|x| f64::from(x[0])).collect();
            let mean = late.iter().sum::<f64>() / late.len() as f64;
            assert!((mean - 1.0).abs() < 0.02, "a mean of {mean}");
            // The mean of about 200 weights, each 0 or 1/0.7.
            let spread = late.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / late.len() as f64;
            assert!((0.0012..0.0035).contains(&spread), "a variance of {spread}");
        }
        outputs.push(out);
    }
    let heads: Vec<_> = outputs
        .iter()
        .flat_map(|out| out.chunks(300 * 16))
        .collect();
    for i in 0..heads.len() {
        for j in 0..i {
            assert_ne!(
                heads[i], heads[j],
                "two heads or seeds drop the same weights"
            );
        }
    }
}
