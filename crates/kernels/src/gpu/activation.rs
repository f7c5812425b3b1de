//! Activations within other kernels, and gated ones, whose functions Burn computes one after the other. It fuses plain ones
//! with other operations.

#![allow(unsafe_code)]

use std::f32::consts::FRAC_1_SQRT_2;

use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{ELEMENTWISE_UNITS, address_type, elementwise_cubes, empty};
use super::queue::{Queued, queue};
use crate::Activation;

/// `√(2/π)`.
const SCALE: f32 = 0.797_884_6;

/// GPT-2's cubic coefficient.
const CUBIC: f32 = 0.044_715;

/// `1/√(2π)`.
const DENSITY: f32 = 0.398_942_3;

/// See [`crate::Backend::gated`]: one launch.
pub fn gated<R: CubeRuntime>(kind: Activation, gate: Queued<R>, up: Queued<R>) -> Queued<R> {
    let outputs = [(gate.shape.clone(), gate.dtype)];
    let [output] = queue("gated", [gate, up], outputs, move |inputs| {
        let [gate, up] = inputs.map(into_contiguous);
        let output = empty(&gate, gate.meta.shape().clone(), gate.dtype);
        let (client, elements) = (gate.client.clone(), gate.meta.num_elements());
        let (address, of_type) = (address_type(&[&gate]), gate.dtype.into());
        // SAFETY: the tensors are contiguous and of `elements` elements. The kernel skips units beyond.
        unsafe {
            gated_elements::launch_unchecked::<R>(
                &client,
                elementwise_cubes(elements),
                CubeDim::new_1d(ELEMENTWISE_UNITS),
                address,
                gate.into_array_arg(),
                up.into_array_arg(),
                output.clone().into_array_arg(),
                elements,
                kind,
                of_type,
            );
        }
        [output]
    });
    output
}

/// See [`crate::Backend::gated_backward`]: the gradients of the gate and of the other factor in one launch.
pub fn gated_backward<R: CubeRuntime>(
    kind: Activation,
    gate: Queued<R>,
    up: Queued<R>,
    grad: Queued<R>,
) -> [Queued<R>; 2] {
    let outputs = [&gate, &up].map(|of| (of.shape.clone(), of.dtype));
    queue("gated_backward", [gate, up, grad], outputs, move |inputs| {
        let [gate, up, grad] = inputs.map(into_contiguous);
        let made: [CubeTensor<R>; 2] =
            [&gate, &up].map(|x| empty(x, x.meta.shape().clone(), x.dtype));
        let (client, elements) = (gate.client.clone(), gate.meta.num_elements());
        let (address, of_type) = (address_type(&[&gate]), gate.dtype.into());
        let [of_gate, of_up] = made.clone().map(CubeTensor::into_array_arg);
        // SAFETY: the tensors are contiguous and of `elements` elements. The kernel skips units beyond.
        unsafe {
            gated_gradients::launch_unchecked::<R>(
                &client,
                elementwise_cubes(elements),
                CubeDim::new_1d(ELEMENTWISE_UNITS),
                address,
                gate.into_array_arg(),
                up.into_array_arg(),
                grad.into_array_arg(),
                of_gate,
                of_up,
                elements,
                kind,
                of_type,
            );
        }
        made
    })
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn gated_elements<T: Float>(
    gate: &Array<T>,
    up: &Array<T>,
    output: &mut Array<T>,
    elements: usize,
    #[comptime] kind: Activation,
    #[define(T)] _type: StorageType,
) {
    if ABSOLUTE_POS >= elements {
        terminate!();
    }
    let value = activated(f32::cast_from(gate[ABSOLUTE_POS]), comptime!(Some(kind)));
    let factor = linear_factor(f32::cast_from(up[ABSOLUTE_POS]), comptime!(Some(kind)));
    output[ABSOLUTE_POS] = T::cast_from(value * factor);
}

#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn gated_gradients<T: Float>(
    gate: &Array<T>,
    up: &Array<T>,
    grad: &Array<T>,
    of_gate: &mut Array<T>,
    of_up: &mut Array<T>,
    elements: usize,
    #[comptime] kind: Activation,
    #[define(T)] _type: StorageType,
) {
    if ABSOLUTE_POS >= elements {
        terminate!();
    }
    let gate = f32::cast_from(gate[ABSOLUTE_POS]);
    let grad = f32::cast_from(grad[ABSOLUTE_POS]);
    let up = f32::cast_from(up[ABSOLUTE_POS]);
    of_gate[ABSOLUTE_POS] =
        T::cast_from(grad * linear_factor(up, comptime!(Some(kind))) * slope(gate, kind));
    let factor_grad = grad * activated(gate, comptime!(Some(kind)));
    of_up[ABSOLUTE_POS] = T::cast_from(factor_grad * linear_factor_slope(up, kind));
}

/// The factor of a gated layer that has no activation function, from its projection.
#[cube]
pub fn linear_factor(up: f32, #[comptime] kind: Option<Activation>) -> f32 {
    match comptime!(kind) {
        Some(Activation::ClampedSilu) => max(min(up, Activation::CLAMP), -Activation::CLAMP) + 1.0,
        _ => up,
    }
}

/// The derivative of [`linear_factor`].
#[cube]
fn linear_factor_slope(up: f32, #[comptime] kind: Activation) -> f32 {
    match comptime!(kind) {
        Activation::ClampedSilu => select(up.abs() < Activation::CLAMP, 1.0f32, 0.0f32),
        _ => 1.0f32.runtime(),
    }
}

/// `f(x)`, or `x` without an activation.
#[cube]
pub fn activated(x: f32, #[comptime] kind: Option<Activation>) -> f32 {
    match comptime!(kind) {
        None => x,
        Some(Activation::Relu) => max(x, 0.0),
        Some(Activation::ReluSquared) => max(x, 0.0) * max(x, 0.0),
        Some(Activation::Gelu) => x * normal_cdf(x),
        // (1 + tanh(u))/2 = σ(2u), which does not cancel for negative u.
        Some(Activation::GeluTanh) => x * sigmoid(2.0 * SCALE * (x + CUBIC * x * x * x)),
        Some(Activation::Silu) => x * sigmoid(x),
        Some(Activation::ClampedSilu) => {
            let y = min(x, Activation::CLAMP);
            y * sigmoid(Activation::STEEPNESS * y)
        }
    }
}

/// `f'(x)`.
#[cube]
fn slope(x: f32, #[comptime] kind: Activation) -> f32 {
    match comptime!(kind) {
        Activation::Relu => select(x > 0.0, 1.0f32, 0.0f32),
        Activation::ReluSquared => 2.0 * max(x, 0.0),
        // Φ(x) + x φ(x)
        Activation::Gelu => normal_cdf(x) + x * DENSITY * (-0.5 * x * x).exp(),
        // σ(2u) + x · σ(2u) σ(-2u) · 2u'
        Activation::GeluTanh => {
            let argument = 2.0 * SCALE * (x + CUBIC * x * x * x);
            let inner = 2.0 * SCALE * (1.0 + 3.0 * CUBIC * x * x);
            sigmoid(argument) * (1.0 + x * sigmoid(-argument) * inner)
        }
        // σ(x) (1 + x σ(-x)): σ(-x) instead of 1 - σ(x), which cancels
        Activation::Silu => sigmoid(x) * (1.0 + x * sigmoid(-x)),
        Activation::ClampedSilu => {
            let y = Activation::STEEPNESS * min(x, Activation::CLAMP);
            let inner = sigmoid(y) * (1.0 + y * sigmoid(-y));
            select(x < Activation::CLAMP, inner, 0.0f32)
        }
    }
}

/// `Φ(x) = (1 + erf(x/√2)) / 2`.
#[cube]
fn normal_cdf(x: f32) -> f32 {
    0.5 + 0.5 * Erf::erf(x * FRAC_1_SQRT_2)
}

/// `1 / (1 + exp(-x))`, whose exponential does not overflow.
#[cube]
fn sigmoid(x: f32) -> f32 {
    let small = (-x.abs()).exp();
    select(x >= 0.0, 1.0 / (1.0 + small), small / (1.0 + small))
}
