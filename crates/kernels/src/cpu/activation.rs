//! Activations of the feed-forward network, plain and gated, and their derivatives.

use super::parallel::{Tasks, elements_per_task};
use super::vector::{LEAST_EXPONENT, MultiplyAdd, reduced_exp_by, wide, wide_fused};
use crate::Activation;

/// `out = f(x)`.
///
/// # Panics
/// Panics if the sizes differ.
pub fn activation(kind: Activation, x: &[f32], out: &mut [f32]) {
    match kind {
        Activation::Relu => activate::<Relu>(x, out),
        Activation::ReluSquared => activate::<ReluSquared>(x, out),
        Activation::Gelu => activate::<Gelu>(x, out),
        Activation::GeluTanh => activate::<GeluTanh>(x, out),
        Activation::Silu => activate::<Silu>(x, out),
        Activation::ClampedSilu => activate::<ClampedSilu>(x, out),
    }
}

/// `x = f(x)`.
pub fn activate_in_place(kind: Activation, x: &mut [f32]) {
    let step = elements_per_task(x.len());
    x.chunks_mut(step).for_each_task(|x| activate_row(kind, x));
}

/// [`activate_in_place`] on the calling thread only. For use within parallel tasks.
pub fn activate_row(kind: Activation, x: &mut [f32]) {
    match kind {
        Activation::Relu => activate_here::<Relu>(x),
        Activation::ReluSquared => activate_here::<ReluSquared>(x),
        Activation::Gelu => activate_here::<Gelu>(x),
        Activation::GeluTanh => activate_here::<GeluTanh>(x),
        Activation::Silu => activate_here::<Silu>(x),
        Activation::ClampedSilu => activate_here::<ClampedSilu>(x),
    }
}

/// Computes `out = f(x)` and overwrites `x` with `f'(x)`, which is all that the backward pass needs.
///
/// # Panics
/// Panics if the sizes differ.
pub fn activation_and_slope(kind: Activation, x: &mut [f32], out: &mut [f32]) {
    match kind {
        Activation::Relu => activate_and_slope::<Relu>(x, out),
        Activation::ReluSquared => activate_and_slope::<ReluSquared>(x, out),
        Activation::Gelu => activate_and_slope::<Gelu>(x, out),
        Activation::GeluTanh => activate_and_slope::<GeluTanh>(x, out),
        Activation::Silu => activate_and_slope::<Silu>(x, out),
        Activation::ClampedSilu => activate_and_slope::<ClampedSilu>(x, out),
    }
}

/// Computes `grad *= slope`.
///
/// # Panics
/// Panics if the sizes differ.
pub fn multiply(grad: &mut [f32], slope: &[f32]) {
    assert!(grad.len() == slope.len(), "the sizes differ");
    let step = elements_per_task(grad.len());
    grad.chunks_mut(step)
        .zip(slope.chunks(step))
        .for_each_task(|(grad, slope)| {
            wide(
                #[inline(always)]
                || {
                    for (grad, slope) in grad.iter_mut().zip(slope) {
                        *grad *= *slope;
                    }
                },
            );
        });
}

/// `out = f(gate) · up` (Shazeer 2020), with the factor of [`Activation::ClampedSilu`] in place of `up`.
///
/// # Panics
/// Panics if the sizes differ.
pub fn gated(kind: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    match kind {
        Activation::Relu => gate_up::<Relu>(gate, up, out),
        Activation::ReluSquared => gate_up::<ReluSquared>(gate, up, out),
        Activation::Gelu => gate_up::<Gelu>(gate, up, out),
        Activation::GeluTanh => gate_up::<GeluTanh>(gate, up, out),
        Activation::Silu => gate_up::<Silu>(gate, up, out),
        Activation::ClampedSilu => gate_up::<ClampedSilu>(gate, up, out),
    }
}

/// The gradients of [`gated`]: `gate_grad = grad · up · f'(gate)` and `up_grad = grad · f(gate)`.
///
/// # Panics
/// Panics if the sizes differ.
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
        Activation::ClampedSilu => gate_up_backward::<ClampedSilu>,
    };
    back(gate, up, grad, gate_grad, up_grad);
}

fn activate<F: Function>(x: &[f32], out: &mut [f32]) {
    assert!(x.len() == out.len(), "the sizes differ");
    let step = elements_per_task(out.len());
    out.chunks_mut(step)
        .zip(x.chunks(step))
        .for_each_task(|(out, x)| {
            wide_fused(
                #[inline(always)]
                |add| {
                    for (out, x) in out.iter_mut().zip(x) {
                        *out = F::value(add, *x);
                    }
                },
            );
        });
}

fn activate_here<F: Function>(x: &mut [f32]) {
    wide_fused(
        #[inline(always)]
        |add| {
            for x in x.iter_mut() {
                *x = F::value(add, *x);
            }
        },
    );
}

fn activate_and_slope<F: Function>(x: &mut [f32], out: &mut [f32]) {
    assert!(x.len() == out.len(), "the sizes differ");
    let step = elements_per_task(out.len());
    out.chunks_mut(step)
        .zip(x.chunks_mut(step))
        .for_each_task(|(out, x)| {
            wide_fused(
                #[inline(always)]
                |add| {
                    for (out, x) in out.iter_mut().zip(x) {
                        (*out, *x) = F::both(add, *x);
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
    out.chunks_mut(step)
        .zip(gate.chunks(step))
        .zip(up.chunks(step))
        .for_each_task(|((out, gate), up)| {
            wide_fused(
                #[inline(always)]
                |add| {
                    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
                        *out = F::value(add, *gate) * F::linear(*up);
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
        .chunks_mut(step)
        .zip(up_grad.chunks_mut(step))
        .zip(gate.chunks(step))
        .zip(up.chunks(step))
        .zip(grad.chunks(step))
        .for_each_task(|((((gate_grad, up_grad), gate), up), grad)| {
            wide_fused(
                #[inline(always)]
                |add| {
                    let inputs = gate.iter().zip(up).zip(grad);
                    for ((gate_grad, up_grad), ((gate, up), grad)) in
                        gate_grad.iter_mut().zip(up_grad).zip(inputs)
                    {
                        let (value, slope) = F::both(add, *gate);
                        *gate_grad = *grad * F::linear(*up) * slope;
                        *up_grad = *grad * value * F::linear_slope(*up);
                    }
                },
            );
        });
}

/// A scalar function with its derivative.
trait Function {
    /// `f(x)`.
    fn value(add: MultiplyAdd, x: f32) -> f32;
    /// `f(x)` and `f'(x)`.
    fn both(add: MultiplyAdd, x: f32) -> (f32, f32);

    /// The other factor of a gated layer, from its projection.
    #[inline(always)]
    fn linear(up: f32) -> f32 {
        up
    }

    /// The derivative of [`Function::linear`].
    #[inline(always)]
    fn linear_slope(_up: f32) -> f32 {
        1.0
    }
}

struct Relu;

impl Function for Relu {
    #[inline(always)]
    fn value(_: MultiplyAdd, x: f32) -> f32 {
        // Written so that NaN stays NaN.
        if x < 0.0 { 0.0 } else { x }
    }

    #[inline(always)]
    fn both(add: MultiplyAdd, x: f32) -> (f32, f32) {
        (Self::value(add, x), if x > 0.0 { 1.0 } else { 0.0 })
    }
}

struct ReluSquared;

impl Function for ReluSquared {
    #[inline(always)]
    fn value(add: MultiplyAdd, x: f32) -> f32 {
        let y = Relu::value(add, x);
        y * y
    }

    #[inline(always)]
    fn both(add: MultiplyAdd, x: f32) -> (f32, f32) {
        let y = Relu::value(add, x);
        (y * y, 2.0 * y)
    }
}

struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    fn value(add: MultiplyAdd, x: f32) -> f32 {
        x * normal(add, x).0
    }

    #[inline(always)]
    fn both(add: MultiplyAdd, x: f32) -> (f32, f32) {
        let (cumulative, bell) = normal(add, x);
        const SCALE: f32 = 0.398_942_3; // 1/√(2π)
        (x * cumulative, add.of(x, bell * SCALE, cumulative))
    }
}

/// Returns the normal distribution's `Φ(x)`, with a relative error of at most 1e-6 in both tails, and
/// `e^(-x²/2)`.
///
/// With `t = |x|` and `u = (t - 4) / (t + 4)`, `Φ(-t) = e^(-t²/2) h(u) / (t + 4)`. The function `h` is smooth
/// enough that the polynomial through its values at the Chebyshev nodes is within 2e-8 of it for `t` up to 14,
/// where the exponential underflows to 0.
#[inline(always)]
fn normal(add: MultiplyAdd, x: f32) -> (f32, f32) {
    let t = at_most(x.abs(), 14.0);
    // The absolute error of x²/2 must be a few 1e-8. The square of a 12-bit number is exact, and the remainder is
    // small.
    let high = f32::from_bits((t.to_bits() + 0x800) & 0xffff_f000);
    let rest = (high - t) * (high + t) * 0.5;
    let correction = add.of(rest, add.of(rest, add.of(rest, 1.0 / 6.0, 0.5), 1.0), 1.0);
    let bell = exp_minus(add, high * high * 0.5) * correction;
    let inverse = 1.0 / (t + 4.0);
    let u = (t - 4.0) * inverse;
    let mut h = -1.201_844_1e-4;
    h = add.of(h, u, 2.012_617_3e-4);
    h = add.of(h, u, 1.572_317_9e-3);
    h = add.of(h, u, -3.526_183_7e-3);
    h = add.of(h, u, -7.529_251e-3);
    h = add.of(h, u, 6.040_669e-2);
    h = add.of(h, u, -0.186_522_68);
    h = add.of(h, u, 0.387_136_7);
    h = add.of(h, u, -0.607_896_6);
    h = add.of(h, u, 0.755_285_14);
    let tail = bell * (h * inverse);
    // 1 - tail for positive x and tail for negative x, selected by sign bits: a branch would prevent
    // vectorization.
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
    fn value(add: MultiplyAdd, x: f32) -> f32 {
        // (1 + tanh(u))/2 = σ(2u), which does not cancel for negative u.
        x * sigmoid(add, doubled_argument(add, x)).0
    }

    #[inline(always)]
    fn both(add: MultiplyAdd, x: f32) -> (f32, f32) {
        const SCALE: f32 = 1.595_769; // 2√(2/π)
        const CUBIC: f32 = (3.0 * GeluTanh::CUBIC) as f32;
        let (right, left) = sigmoid(add, doubled_argument(add, x));
        let slope = add.of(x * x, CUBIC, 1.0) * SCALE;
        (x * right, right * add.of(x * left, slope, 1.0))
    }
}

/// `2√(2/π) (x + 0.044715 x³)`.
#[inline(always)]
fn doubled_argument(add: MultiplyAdd, x: f32) -> f32 {
    const SCALE: f32 = 1.595_769;
    const CUBIC: f32 = GeluTanh::CUBIC as f32;
    x * add.of(x * x, CUBIC, 1.0) * SCALE
}

struct Silu;

impl Function for Silu {
    #[inline(always)]
    fn value(add: MultiplyAdd, x: f32) -> f32 {
        x * sigmoid(add, x).0
    }

    #[inline(always)]
    fn both(add: MultiplyAdd, x: f32) -> (f32, f32) {
        let (right, left) = sigmoid(add, x);
        (x * right, right * add.of(x, left, 1.0))
    }
}

struct ClampedSilu;

impl Function for ClampedSilu {
    #[inline(always)]
    fn value(add: MultiplyAdd, x: f32) -> f32 {
        let y = below_clamp(x);
        y * sigmoid(add, Activation::STEEPNESS * y).0
    }

    #[inline(always)]
    fn both(add: MultiplyAdd, x: f32) -> (f32, f32) {
        let y = below_clamp(x);
        let steep = Activation::STEEPNESS * y;
        let (right, left) = sigmoid(add, steep);
        let slope = right * add.of(steep, left, 1.0);
        (y * right, if x >= Activation::CLAMP { 0.0 } else { slope })
    }

    #[inline(always)]
    fn linear(up: f32) -> f32 {
        -below_clamp(-below_clamp(up)) + 1.0
    }

    #[inline(always)]
    fn linear_slope(up: f32) -> f32 {
        if up.abs() >= Activation::CLAMP {
            0.0
        } else {
            1.0
        }
    }
}

/// `min(x, 7)`; NaN stays NaN.
#[inline(always)]
fn below_clamp(x: f32) -> f32 {
    if x > Activation::CLAMP {
        Activation::CLAMP
    } else {
        x
    }
}

/// Returns `σ(x)` and `σ(-x)`, both without cancellation.
#[inline(always)]
fn sigmoid(add: MultiplyAdd, x: f32) -> (f32, f32) {
    let e = exp_minus(add, x.abs());
    let large = 1.0 / (1.0 + e);
    let (right, left) = if x < 0.0 { (e, 1.0) } else { (1.0, e) };
    (right * large, left * large)
}

/// `e^-x` for `x ≥ 0`, within 2 units in the last place; 0 above 87.3. For NaN it returns a finite number, which
/// the caller multiplies by the NaN. A simplified [`super::vector::exp`].
#[inline(always)]
fn exp_minus(add: MultiplyAdd, x: f32) -> f32 {
    let (value, n) = reduced_exp_by(add, -at_most(x, -LEAST_EXPONENT));
    let value = value.to_bits().wrapping_add(n << 23);
    f32::from_bits(if x > -LEAST_EXPONENT { 0 } else { value })
}

/// `min(x, limit)` for a non-negative `x`, and `limit` for NaN. It compares bits, which order positive floats
/// correctly: the compiler would turn a float comparison into a branch.
#[inline(always)]
fn at_most(x: f32, limit: f32) -> f32 {
    f32::from_bits(x.to_bits().min(limit.to_bits()))
}
