//! Activations within other kernels. By themselves they are fused with other operations by Burn.

use std::f32::consts::FRAC_1_SQRT_2;

use cubecl::prelude::*;

use crate::Activation;

/// `√(2/π)`.
const SCALE: f32 = 0.797_884_6;

/// GPT-2's cubic coefficient.
const CUBIC: f32 = 0.044_715;

/// `f(x)`, or `x` without an activation.
#[cube]
pub fn activated(x: f32, #[comptime] kind: Option<Activation>) -> f32 {
    match comptime!(kind) {
        None => x,
        Some(Activation::Relu) => max(x, 0.0),
        Some(Activation::ReluSquared) => max(x, 0.0) * max(x, 0.0),
        Some(Activation::Gelu) => x * (0.5 + 0.5 * Erf::erf(x * FRAC_1_SQRT_2)),
        // (1 + tanh(u))/2 = σ(2u), which does not cancel for negative u.
        Some(Activation::GeluTanh) => x * sigmoid(2.0 * SCALE * (x + CUBIC * x * x * x)),
        Some(Activation::Silu) => x * sigmoid(x),
    }
}

/// `1 / (1 + exp(-x))`, whose exponential does not overflow.
#[cube]
fn sigmoid(x: f32) -> f32 {
    let small = (-x.abs()).exp();
    select(x >= 0.0, 1.0 / (1.0 + small), small / (1.0 + small))
}
