//! The feed-forward's activations and their derivatives, alone and gated.

use rayon::prelude::*;

use super::parallel::elements_per_task;
use super::vector::{LEAST_EXPONENT, reduced_exp, wide};
use crate::Activation;

/// `out = f(x)`.
///
/// # Panics
/// Where the sizes differ.
pub fn activation(kind: Activation, x: &[f32], out: &mut [f32]) {
    match kind {
        Activation::Relu => activate::<Relu>(x, out),
        Activation::ReluSquared => activate::<ReluSquared>(x, out),
        Activation::Gelu => activate::<Gelu>(x, out),
        Activation::GeluTanh => activate::<GeluTanh>(x, out),
        Activation::Silu => activate::<Silu>(x, out),
    }
}

/// `out = grad · f'(x)`.
///
/// # Panics
/// Where the sizes differ.
pub fn activation_backward(kind: Activation, x: &[f32], grad: &[f32], out: &mut [f32]) {
    match kind {
        Activation::Relu => activate_backward::<Relu>(x, grad, out),
        Activation::ReluSquared => activate_backward::<ReluSquared>(x, grad, out),
        Activation::Gelu => activate_backward::<Gelu>(x, grad, out),
        Activation::GeluTanh => activate_backward::<GeluTanh>(x, grad, out),
        Activation::Silu => activate_backward::<Silu>(x, grad, out),
    }
}

/// `out = f(gate) · up` (Shazeer 2020).
///
/// # Panics
/// Where the sizes differ.
pub fn gated(kind: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    match kind {
        Activation::Relu => gate_up::<Relu>(gate, up, out),
        Activation::ReluSquared => gate_up::<ReluSquared>(gate, up, out),
        Activation::Gelu => gate_up::<Gelu>(gate, up, out),
        Activation::GeluTanh => gate_up::<GeluTanh>(gate, up, out),
        Activation::Silu => gate_up::<Silu>(gate, up, out),
    }
}

/// [`gated`]'s gradients: `gate_grad = grad · up · f'(gate)` and `up_grad = grad · f(gate)`.
///
/// # Panics
/// Where the sizes differ.
pub fn gated_backward(
    kind: Activation,
    gate: &[f32],
    up: &[f32],
    grad: &[f32],
    gate_grad: &mut [f32],
    up_grad: &mut [f32],
) {
    let back = match kind {
        Activation::Relu => gate_up_backward::<Relu>,
        Activation::ReluSquared => gate_up_backward::<ReluSquared>,
        Activation::Gelu => gate_up_backward::<Gelu>,
        Activation::GeluTanh => gate_up_backward::<GeluTanh>,
        Activation::Silu => gate_up_backward::<Silu>,
    };
    back(gate, up, grad, gate_grad, up_grad);
}

fn activate<F: Function>(x: &[f32], out: &mut [f32]) {
    assert!(x.len() == out.len(), "the sizes differ");
    let step = elements_per_task(out.len());
    out.par_chunks_mut(step)
        .zip(x.par_chunks(step))
        .with_max_len(1)
        .for_each(|(out, x)| {
            wide(
                #[inline(always)]
                || {
                    for (out, x) in out.iter_mut().zip(x) {
                        *out = F::value(*x);
                    }
                },
            );
        });
}

fn activate_backward<F: Function>(x: &[f32], grad: &[f32], out: &mut [f32]) {
    assert!(
        x.len() == out.len() && grad.len() == out.len(),
        "the sizes differ"
    );
    let step = elements_per_task(out.len());
    out.par_chunks_mut(step)
        .zip(x.par_chunks(step))
        .zip(grad.par_chunks(step))
        .with_max_len(1)
        .for_each(|((out, x), grad)| {
            wide(
                #[inline(always)]
                || {
                    for ((out, x), grad) in out.iter_mut().zip(x).zip(grad) {
                        *out = *grad * F::both(*x).1;
                    }
                },
            );
        });
}

fn gate_up<F: Function>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(
        gate.len() == out.len() && up.len() == out.len(),
        "the sizes differ"
    );
    let step = elements_per_task(out.len());
    out.par_chunks_mut(step)
        .zip(gate.par_chunks(step))
        .zip(up.par_chunks(step))
        .with_max_len(1)
        .for_each(|((out, gate), up)| {
            wide(
                #[inline(always)]
                || {
                    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
                        *out = F::value(*gate) * *up;
                    }
                },
            );
        });
}

fn gate_up_backward<F: Function>(
    gate: &[f32],
    up: &[f32],
    grad: &[f32],
    gate_grad: &mut [f32],
    up_grad: &mut [f32],
) {
    let len = grad.len();
    assert!(
        gate.len() == len && up.len() == len && gate_grad.len() == len && up_grad.len() == len,
        "the sizes differ"
    );
    let step = elements_per_task(len);
    gate_grad
        .par_chunks_mut(step)
        .zip(up_grad.par_chunks_mut(step))
        .zip(gate.par_chunks(step))
        .zip(up.par_chunks(step))
        .zip(grad.par_chunks(step))
        .with_max_len(1)
        .for_each(|((((gate_grad, up_grad), gate), up), grad)| {
            wide(
                #[inline(always)]
                || {
                    let inputs = gate.iter().zip(up).zip(grad);
                    for ((gate_grad, up_grad), ((gate, up), grad)) in
                        gate_grad.iter_mut().zip(up_grad).zip(inputs)
                    {
                        let (value, slope) = F::both(*gate);
                        *gate_grad = *grad * *up * slope;
                        *up_grad = *grad * value;
                    }
                },
            );
        });
}

/// A function of one number.
trait Function {
    /// `f(x)`.
    fn value(x: f32) -> f32;
    /// `f(x)` and `f'(x)`.
    fn both(x: f32) -> (f32, f32);
}

struct Relu;

impl Function for Relu {
    #[inline(always)]
    fn value(x: f32) -> f32 {
        // This way around a NaN stays one.
        if x < 0.0 { 0.0 } else { x }
    }

    #[inline(always)]
    fn both(x: f32) -> (f32, f32) {
        (Self::value(x), if x > 0.0 { 1.0 } else { 0.0 })
    }
}

struct ReluSquared;

impl Function for ReluSquared {
    #[inline(always)]
    fn value(x: f32) -> f32 {
        let y = Relu::value(x);
        y * y
    }

    #[inline(always)]
    fn both(x: f32) -> (f32, f32) {
        let y = Relu::value(x);
        (y * y, 2.0 * y)
    }
}

struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    fn value(x: f32) -> f32 {
        x * normal(x).0
    }

    #[inline(always)]
    fn both(x: f32) -> (f32, f32) {
        let (cumulative, bell) = normal(x);
        const SCALE: f32 = 0.398_942_3; // 1/√(2π)
        (x * cumulative, cumulative + x * (bell * SCALE))
    }
}

/// The normal distribution's cumulative function `Φ(x)`, within 1e-6 of itself on both sides, and `e^(-x²/2)`.
///
/// With `t = |x|`, `Φ(-t) = e^(-t²/2) h(u) / (t + 4)` where `u = (t - 4) / (t + 4)`: `h` is so smooth that a polynomial
/// through its values at Chebyshev's points is within 2e-8 of it for t up to 14, where the exponential is 0.
#[inline(always)]
fn normal(x: f32) -> (f32, f32) {
    let t = at_most(x.abs(), 14.0);
    // x² has to be exact to a few parts in 1e8 of 1, not of itself: the square of 12 bits is, and the rest is small.
    let high = f32::from_bits((t.to_bits() + 0x800) & 0xffff_f000);
    let rest = (high - t) * (high + t) * 0.5;
    let correction = 1.0 + rest * (1.0 + rest * (0.5 + rest * (1.0 / 6.0)));
    let bell = exp_minus(high * high * 0.5) * correction;
    let inverse = 1.0 / (t + 4.0);
    let u = (t - 4.0) * inverse;
    let mut h = -1.201_844_1e-4;
    h = h * u + 2.012_617_3e-4;
    h = h * u + 1.572_317_9e-3;
    h = h * u - 3.526_183_7e-3;
    h = h * u - 7.529_251e-3;
    h = h * u + 6.040_669e-2;
    h = h * u - 0.186_522_68;
    h = h * u + 0.387_136_7;
    h = h * u - 0.607_896_6;
    h = h * u + 0.755_285_14;
    let tail = bell * (h * inverse);
    // 1 - tail right of zero and tail left of it, by signs: a branch would keep the loop from becoming SIMD.
    let half = 0.5f32.copysign(x);
    (0.5 + half - tail.copysign(x), bell)
}

struct GeluTanh;

impl GeluTanh {
    /// GPT-2's cubic coefficient.
    const CUBIC: f64 = 0.044_715;
}

impl Function for GeluTanh {
    #[inline(always)]
    fn value(x: f32) -> f32 {
        // (1 + tanh(u))/2 = σ(2u), which does not cancel left of zero.
        x * sigmoid(doubled_argument(x)).0
    }

    #[inline(always)]
    fn both(x: f32) -> (f32, f32) {
        const SCALE: f32 = 1.595_769; // 2√(2/π)
        const CUBIC: f32 = (3.0 * GeluTanh::CUBIC) as f32;
        let (right, left) = sigmoid(doubled_argument(x));
        let slope = (x * x * CUBIC + 1.0) * SCALE;
        (x * right, right * (x * left * slope + 1.0))
    }
}

/// `2√(2/π) (x + 0.044715 x³)`.
#[inline(always)]
fn doubled_argument(x: f32) -> f32 {
    const SCALE: f32 = 1.595_769;
    const CUBIC: f32 = GeluTanh::CUBIC as f32;
    x * (x * x * CUBIC + 1.0) * SCALE
}

struct Silu;

impl Function for Silu {
    #[inline(always)]
    fn value(x: f32) -> f32 {
        x * sigmoid(x).0
    }

    #[inline(always)]
    fn both(x: f32) -> (f32, f32) {
        let (right, left) = sigmoid(x);
        (x * right, right * (x * left + 1.0))
    }
}

/// `σ(x)` and `σ(-x)`, neither through a difference.
#[inline(always)]
fn sigmoid(x: f32) -> (f32, f32) {
    let e = exp_minus(x.abs());
    let large = 1.0 / (1.0 + e);
    let (right, left) = if x < 0.0 { (e, 1.0) } else { (1.0, e) };
    (right * large, left * large)
}

/// `e^-x` for `x ≥ 0`, within 2 units in the last place; 0 above 87.3. A NaN becomes a number, which its caller then
/// multiplies by the NaN: [`super::vector::exp`] without what is not needed here.
#[inline(always)]
fn exp_minus(x: f32) -> f32 {
    let (value, n) = reduced_exp(-at_most(x, -LEAST_EXPONENT));
    let value = value.to_bits().wrapping_add(n << 23);
    f32::from_bits(if x > -LEAST_EXPONENT { 0 } else { value })
}

/// `min(x, limit)` of a number that is not negative, and the limit for a NaN. Positive floats are ordered as their bits
/// are, and of a comparison of floats the compiler would make a branch to what follows from the constant.
#[inline(always)]
fn at_most(x: f32, limit: f32) -> f32 {
    f32::from_bits(x.to_bits().min(limit.to_bits()))
}
