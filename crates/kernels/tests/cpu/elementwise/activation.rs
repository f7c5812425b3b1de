//! Tests activations.

use std::f64::consts::PI;

use emberlm_kernels::Activation;
use emberlm_kernels::cpu::activation::{
    activate_in_place, activation, activation_and_slope, gated, gated_backward, multiply,
};

use crate::numbers::{assert_close, numbers, same_on_any_threads};

/// `Q(t) = Φ(-t)` for `t ≥ 0`, by the power series where it converges fast, and by Laplace's continued fraction
/// in the tail.
fn tail(t: f64) -> f64 {
    let bell = (-t * t / 2.0).exp() / (2.0 * PI).sqrt();
    if t < 3.0 {
        let (mut term, mut sum, mut n) = (t, t, 1.0);
        while term > 1e-18 * sum {
            n += 2.0;
            term *= t * t / n;
            sum += term;
        }
        return 0.5 - bell * sum;
    }
    bell / (1..300).rev().fold(t, |below, n| t + f64::from(n) / below)
}

fn normal(x: f64) -> f64 {
    if x < 0.0 { tail(-x) } else { 1.0 - tail(x) }
}

fn expected(kind: Activation, x: f64) -> (f64, f64) {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match kind {
        Activation::Relu => (x.max(0.0), if x > 0.0 { 1.0 } else { 0.0 }),
        Activation::ReluSquared => (x.max(0.0).powi(2), 2.0 * x.max(0.0)),
        Activation::Gelu => {
            let bell = (-x * x / 2.0).exp() / (2.0 * PI).sqrt();
            (x * normal(x), normal(x) + x * bell)
        }
        Activation::GeluTanh => {
            let scale = 2.0 * (2.0 / PI).sqrt();
            let u = scale * (x + 0.044715 * x.powi(3));
            let slope = scale * (1.0 + 3.0 * 0.044715 * x * x);
            let (right, left) = (sigmoid(u), sigmoid(-u));
            (x * right, right + x * right * left * slope)
        }
        Activation::Silu => {
            let (right, left) = (sigmoid(x), sigmoid(-x));
            (x * right, right + x * right * left)
        }
        Activation::ClampedSilu => {
            let y = x.min(7.0);
            let (right, left) = (sigmoid(1.702 * y), sigmoid(-1.702 * y));
            let slope = right + 1.702 * y * right * left;
            (y * right, if x >= 7.0 { 0.0 } else { slope })
        }
    }
}

/// The other factor of a gated layer from its projection, and its derivative.
fn expected_factor(kind: Activation, up: f64) -> (f64, f64) {
    match kind {
        Activation::ClampedSilu => {
            let slope = if up.abs() >= 7.0 { 0.0 } else { 1.0 };
            (up.clamp(-7.0, 7.0) + 1.0, slope)
        }
        _ => (up, 1.0),
    }
}

/// Numbers from -20 to 20 in small steps, and across the range of magnitudes from the smallest up.
fn inputs() -> Vec<f32> {
    let mut x: Vec<f32> = (-20_000..=20_000).map(|i| i as f32 * 1e-3).collect();
    x.extend((0..100).flat_map(|i| [0.5f32.powi(i), -(0.5f32.powi(i))]));
    x
}

#[test]
fn values_are_accurate_in_the_tails() {
    let x = inputs();
    for kind in Activation::ALL {
        let mut y = vec![f32::NAN; x.len()];
        activation(kind, &x, &mut y);
        let mut in_place = x.clone();
        activate_in_place(kind, &mut in_place);
        assert_eq!(in_place, y, "{kind:?}");
        for (x, y) in x.iter().zip(&y) {
            let expected = expected(kind, f64::from(*x)).0;
            // The argument of the tanh approximation is rounded and grows with x³, that of the steep sigmoid with x.
            let rounding = match kind {
                Activation::GeluTanh => f64::from(x.abs()).powi(3) * 3e-8,
                Activation::ClampedSilu => f64::from(x.abs()) * 1.2e-7,
                _ => 0.0,
            };
            let error = (f64::from(*y) - expected).abs();
            assert!(
                error <= (1e-6 + rounding) * expected.abs() + 2e-36,
                "{kind:?}({x}) = {y} and not {expected}"
            );
        }
    }
}

#[test]
fn derivatives_match_the_definition() {
    let x = inputs();
    for kind in Activation::ALL {
        let (mut y, mut values, mut alone) = (x.clone(), vec![f32::NAN; x.len()], x.clone());
        activation_and_slope(kind, &mut y, &mut values);
        activation(kind, &x, &mut alone);
        assert_eq!(values, alone, "{kind:?}");
        for (x, y) in x.iter().zip(&y) {
            let expected = expected(kind, f64::from(*x)).1;
            let error = (f64::from(*y) - expected).abs();
            assert!(
                error <= 1e-6 * expected.abs() + 3e-7,
                "{kind:?}'({x}) = {y} and not {expected}"
            );
        }
    }
}

#[test]
fn nan_stays_nan() {
    for kind in Activation::ALL {
        let mut y = [0.0; 3];
        activation(kind, &[f32::NAN, f32::INFINITY, -1000.0], &mut y);
        assert!(y[0].is_nan());
        let most = match kind {
            Activation::ClampedSilu => expected(kind, 7.0).0 as f32,
            _ => f32::INFINITY,
        };
        assert_eq!(y[1], most);
        assert_eq!(y[2], 0.0);
    }
}

#[test]
fn gated_activations_multiply() {
    for len in [0, 1, 17, 1000, 100_003] {
        // Some are beyond the clamps.
        let large = |seed| numbers(seed, len).into_iter().map(|x| 5.0 * x);
        let (gate, up): (Vec<f32>, Vec<f32>) = (large(1).collect(), large(2).collect());
        let grad = numbers(3, len);
        for kind in Activation::ALL {
            let actual = same_on_any_threads(|| {
                let mut all = vec![f32::NAN; 5 * len];
                let (out, rest) = all.split_at_mut(len);
                let (gate_grad, rest) = rest.split_at_mut(len);
                let (up_grad, rest) = rest.split_at_mut(len);
                let (alone, alone_grad) = rest.split_at_mut(len);
                gated(kind, &gate, &up, out);
                gated_backward(kind, &gate, &up, &grad, gate_grad, up_grad);
                activation(kind, &gate, alone);
                let mut slope = gate.clone();
                activation_and_slope(kind, &mut slope, &mut vec![0.0; len]);
                alone_grad.copy_from_slice(&grad);
                multiply(alone_grad, &slope);
                all
            });
            let mut plain = vec![0.0; 5 * len];
            for i in 0..len {
                let [x, up, grad] = [gate[i], up[i], grad[i]].map(f64::from);
                let (value, slope) = expected(kind, x);
                let (factor, factor_slope) = expected_factor(kind, up);
                plain[i] = value * factor;
                plain[len + i] = grad * factor * slope;
                plain[2 * len + i] = grad * value * factor_slope;
                plain[3 * len + i] = value;
                plain[4 * len + i] = grad * slope;
            }
            assert_close("gated", &actual, &plain, 1e-6);
        }
    }
}
