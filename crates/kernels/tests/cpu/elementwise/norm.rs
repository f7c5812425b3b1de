//! Tests normalization.

use emberlm_kernels::Normalization;
use emberlm_kernels::cpu::norm::{NormGradients, Residual, normalize, normalize_backward};

use crate::numbers::{assert_close, numbers, same_on_any_threads};

const KINDS: [Normalization; 3] = [
    Normalization::Layer { epsilon: 1e-5 },
    Normalization::Rms { epsilon: 1e-5 },
    Normalization::UnitRms { epsilon: 1e-2 },
];

struct Plain {
    out: Vec<f64>,
    x: Vec<f64>,
    gain: Vec<f64>,
    bias: Vec<f64>,
}

/// Normalizes row by row in f64.
fn plain(kind: Normalization, x: &[f32], gain: &[f64], bias: &[f64], grad: &[f32]) -> Plain {
    let width = gain.len();
    let n = width as f64;
    let mut all = Plain {
        out: vec![],
        x: vec![],
        gain: vec![0.0; width],
        bias: vec![0.0; width],
    };
    for (x, grad) in x.chunks_exact(width).zip(grad.chunks_exact(width)) {
        let mut x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let layer = matches!(kind, Normalization::Layer { .. });
        let mean = x.iter().sum::<f64>() / n;
        if layer {
            x.iter_mut().for_each(|x| *x -= mean);
        }
        let square = x.iter().map(|x| x * x).sum::<f64>() / n;
        let (root, divisor) = match kind {
            Normalization::Layer { epsilon } | Normalization::Rms { epsilon } => {
                let root = (square + epsilon).sqrt();
                (root, root)
            }
            Normalization::UnitRms { epsilon } => (square.sqrt(), square.sqrt() + epsilon),
        };
        let y: Vec<f64> = x.iter().map(|x| x / divisor).collect();
        let g: Vec<f64> = (0..width).map(|i| f64::from(grad[i]) * gain[i]).collect();
        let along = g.iter().zip(&y).map(|(g, y)| g * y).sum::<f64>() / n * divisor / root;
        let mut dx: Vec<f64> = (0..width)
            .map(|i| (g[i] - y[i] * along) / divisor)
            .collect();
        if layer {
            let mean = dx.iter().sum::<f64>() / n;
            dx.iter_mut().for_each(|dx| *dx -= mean);
        }
        for i in 0..width {
            all.out.push(y[i] * gain[i] + bias[i]);
            all.gain[i] += f64::from(grad[i]) * y[i];
            all.bias[i] += f64::from(grad[i]);
        }
        all.x.extend(dx);
    }
    all
}

fn check(rows: usize, width: usize, kind: Normalization) {
    let x: Vec<f32> = numbers(1, rows * width).iter().map(|x| x + 0.5).collect();
    let grad = numbers(2, rows * width);
    let added = numbers(3, rows * width);
    let (gains, biases) = (numbers(4, width), numbers(5, width));
    // A row of one element minus its mean is only rounding error, so it is compared absolutely.
    let tolerance = if width < 3 { 1e-4 } else { 3e-6 };
    for (with_gain, with_bias) in [(true, true), (true, false), (false, true), (false, false)] {
        let gain = with_gain.then_some(&gains[..]);
        let bias = with_bias.then_some(&biases[..]);
        let wide = |x: Option<&[f32]>, none: f64| match x {
            Some(x) => x.iter().map(|x| f64::from(*x)).collect(),
            None => vec![none; width],
        };
        let expected = plain(kind, &x, &wide(gain, 1.0), &wide(bias, 0.0), &grad);
        let out = same_on_any_threads(|| {
            let mut out = vec![f32::NAN; x.len()];
            normalize(kind, &x, gain, bias, width, &mut out);
            out
        });
        assert_close("out", &out, &expected.out, tolerance);
        for residual in [Residual::None, Residual::From(&added), Residual::InPlace] {
            let actual = same_on_any_threads(|| {
                let mut x_grad = match residual {
                    Residual::InPlace => added.clone(),
                    _ => vec![f32::NAN; x.len()],
                };
                let (mut gain_grad, mut bias_grad) = (vec![f32::NAN; width], vec![f32::NAN; width]);
                let gradients = NormGradients {
                    x: &mut x_grad,
                    gain: with_gain.then_some(&mut gain_grad[..]),
                    bias: with_bias.then_some(&mut bias_grad[..]),
                };
                normalize_backward(kind, &x, gain, &grad, residual, width, gradients);
                [x_grad, gain_grad, bias_grad].concat()
            });
            let (x_grad, rest) = actual.split_at(x.len());
            let (gain_grad, bias_grad) = rest.split_at(width);
            let sum: Vec<f64> = match residual {
                Residual::None => expected.x.clone(),
                _ => expected
                    .x
                    .iter()
                    .zip(&added)
                    .map(|(x, a)| x + f64::from(*a))
                    .collect(),
            };
            assert_close("x's gradient", x_grad, &sum, tolerance);
            if with_gain {
                assert_close("the gain's", gain_grad, &expected.gain, tolerance);
            }
            if with_bias {
                assert_close("the bias's", bias_grad, &expected.bias, tolerance);
            }
        }
    }
}

#[test]
fn every_width_is_normalized() {
    for kind in KINDS {
        for width in 1..=70 {
            check(3, width, kind);
        }
    }
}

#[test]
fn rows_are_normalized_on_any_threads() {
    for kind in KINDS {
        for (rows, width) in [(0, 5), (1, 1), (1, 300), (501, 129), (3, 20_011)] {
            check(rows, width, kind);
        }
    }
}

#[test]
fn rows_of_zeros_have_finite_gradients() {
    for kind in KINDS {
        let mut x_grad = [f32::NAN; 4];
        let gradients = NormGradients {
            x: &mut x_grad,
            gain: None,
            bias: None,
        };
        normalize_backward(
            kind,
            &[0.0; 4],
            None,
            &[1.0, 2.0, 3.0, 4.0],
            Residual::None,
            4,
            gradients,
        );
        assert!(x_grad.iter().all(|x| x.is_finite()));
    }
}
