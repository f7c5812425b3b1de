//! The AdamW update.

#![allow(unsafe_code)]

use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{
    ELEMENTWISE_UNITS, address_type, elementwise_cubes, input_or, operand, overwritable,
};
use super::queue::{Queued, queue};
use crate::AdamWStep;

/// See [`crate::Backend::adamw`]: one launch. Tensors that nothing else uses are updated in place, others are copied before.
pub fn adamw<R: CubeRuntime>(
    parameter: Queued<R>,
    grad: Queued<R>,
    moments: (Queued<R>, Queued<R>),
    factor: Option<Queued<R>>,
    step: AdamWStep,
) -> (Queued<R>, Queued<R>, Queued<R>) {
    let outputs = [&parameter, &moments.0, &moments.1].map(|of| (of.shape.clone(), of.dtype));
    let clipped = factor.is_some();
    let factor = input_or(factor, &grad);
    let [parameter, first, second] = queue(
        "adamw",
        [parameter, grad, moments.0, moments.1, factor],
        outputs,
        move |[parameter, grad, first, second, factor]| {
            let factor = clipped.then_some(factor);
            update(
                [parameter, first, second].map(overwritable),
                grad,
                factor,
                step,
            )
        },
    );
    (parameter, first, second)
}

fn update<R: CubeRuntime>(
    updated: [CubeTensor<R>; 3],
    grad: CubeTensor<R>,
    factor: Option<CubeTensor<R>>,
    step: AdamWStep,
) -> [CubeTensor<R>; 3] {
    let grad = into_contiguous(grad);
    let elements = grad.meta.num_elements();
    let client = grad.client.clone();
    let t = step.step as f64;
    let kinds = [updated[0].dtype, grad.dtype, updated[1].dtype].map(Into::into);
    let [parameter, first, second] = updated.clone().map(CubeTensor::into_array_arg);
    // SAFETY: the tensors are contiguous and of `elements` elements, `factor` of one. The kernel skips units beyond.
    unsafe {
        adamw_kernel::launch_unchecked::<R>(
            &client,
            elementwise_cubes(elements),
            CubeDim::new_1d(ELEMENTWISE_UNITS),
            address_type(&[&updated[0], &grad]),
            parameter,
            grad.into_array_arg(),
            first,
            second,
            operand(factor),
            elements,
            step.beta1 as f32,
            (1.0 - step.beta1) as f32,
            step.beta2 as f32,
            (1.0 - step.beta2) as f32,
            (1.0 - step.beta2.powf(t)).sqrt() as f32,
            step.epsilon as f32,
            (step.rate / (1.0 - step.beta1.powf(t))) as f32,
            (1.0 - step.rate * step.decay) as f32,
            kinds,
        );
    }
    updated
}

/// Each unit updates an element. `correction` is `√(1-β₂ᵗ)`, `rate` is the learning rate over `1-β₁ᵗ`, and `kept` is the
/// factor of weight decay. They are no constants of the kernel, which would be compiled for every step.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn adamw_kernel<P: Float, G: Float, M: Float>(
    parameter: &mut Array<P>,
    grad: &Array<G>,
    first: &mut Array<M>,
    second: &mut Array<M>,
    factor: &ComptimeOption<Array<G>>,
    elements: usize,
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    correction: f32,
    epsilon: f32,
    rate: f32,
    kept: f32,
    #[define(P, G, M)] _kinds: [StorageType; 3],
) {
    if ABSOLUTE_POS >= elements {
        terminate!();
    }
    let mut g = f32::cast_from(grad[ABSOLUTE_POS]);
    #[comptime]
    if let ComptimeOption::Some(factor) = factor {
        let factor = f32::cast_from(factor[0]);
        if factor < 0.0 {
            terminate!();
        }
        g *= factor;
    }
    let m = f32::cast_from(first[ABSOLUTE_POS]) * beta1 + g * rest1;
    let v = f32::cast_from(second[ABSOLUTE_POS]) * beta2 + g * g * rest2;
    let change = m / (v.sqrt() / correction + epsilon) * rate;
    let p = f32::cast_from(parameter[ABSOLUTE_POS]) * kept - change;
    parameter[ABSOLUTE_POS] = P::cast_from(p);
    first[ABSOLUTE_POS] = M::cast_from(m);
    second[ABSOLUTE_POS] = M::cast_from(v);
}
