//! The AdamW update.

#![allow(unsafe_code)]

use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{ELEMENTWISE_UNITS, address_type, cubes, most_tensors, operand, overwritable};
use super::queue::{OnRuntime, Queued, queue_all};
use crate::{AdamWInputs, AdamWOutputs, AdamWStep};

/// The tensors of a parameter: itself, its gradient and two moments.
const TENSORS: usize = 4;

/// See [`crate::Backend::adamw`]: parameters with the same hyperparameters and types share launches. Tensors that nothing else
/// uses are updated in place, others are copied before.
pub fn adamw<B: OnRuntime<R>, R: CubeRuntime>(
    inputs: Vec<AdamWInputs<B>>,
    factor: Option<Queued<R>>,
) -> Vec<AdamWOutputs<B>> {
    let Some(first) = inputs.first() else {
        return Vec::new();
    };
    let most = most_tensors(&R::client(first.parameter.client.device()), TENSORS);
    let mut updated: Vec<Option<AdamWOutputs<B>>> = inputs.iter().map(|_| None).collect();
    let mut rest: Vec<_> = inputs.into_iter().enumerate().collect();
    while let Some((_, first)) = rest.first() {
        let kind = |of: &AdamWInputs<B>| {
            (
                of.step,
                of.parameter.dtype,
                of.grad.dtype,
                of.moments.0.dtype,
            )
        };
        let of_first = kind(first);
        let (mut group, mut others) = (Vec::new(), Vec::new());
        for (place, of) in rest {
            match kind(&of) == of_first && group.len() < most {
                true => group.push((place, of)),
                false => others.push((place, of)),
            }
        }
        let (places, group): (Vec<usize>, Vec<_>) = group.into_iter().unzip();
        let made = update_together(group, factor.clone(), of_first.0);
        for (place, made) in places.into_iter().zip(made) {
            updated[place] = Some(made);
        }
        rest = others;
    }
    updated.into_iter().flatten().collect()
}

/// Queues the update of parameters with the same hyperparameters and types.
fn update_together<B: OnRuntime<R>, R: CubeRuntime>(
    group: Vec<AdamWInputs<B>>,
    factor: Option<Queued<R>>,
    step: AdamWStep,
) -> Vec<AdamWOutputs<B>> {
    let mut outputs = Vec::new();
    let mut tensors = Vec::new();
    for of in group {
        let updated = [&of.parameter, &of.moments.0, &of.moments.1];
        outputs.extend(updated.map(|of| (of.shape.clone(), of.dtype)));
        tensors.extend([of.parameter, of.grad, of.moments.0, of.moments.1]);
    }
    tensors.extend(factor);
    let count = outputs.len() / 3;
    let updated = queue_all("adamw", tensors, outputs, move |tensors| {
        update(tensors, count, step)
    });
    let (of_each, _) = updated.as_chunks::<3>();
    of_each.iter().cloned().map(|[p, m, v]| (p, m, v)).collect()
}

/// Updates `count` parameters, [`TENSORS`] for each, with the gradients times the tensor after these if there is one. Returns
/// each parameter and its moments.
fn update<R: CubeRuntime>(
    mut tensors: Vec<CubeTensor<R>>,
    count: usize,
    step: AdamWStep,
) -> Vec<CubeTensor<R>> {
    let factor = tensors.split_off(TENSORS * count).into_iter().next();
    let mut updated = Vec::new();
    let (mut parameters, mut grads) = (SequenceArg::new(), SequenceArg::new());
    let (mut firsts, mut seconds) = (SequenceArg::new(), SequenceArg::new());
    let mut cube_count = 0;
    let mut tensors = tensors.into_iter();
    let mut largest = AddressType::default();
    let Some(client) = tensors.as_slice().first().map(|of| of.client.clone()) else {
        return updated;
    };
    let mut kinds = None;
    while let (Some(parameter), Some(grad), Some(first), Some(second)) = (
        tensors.next(),
        tensors.next(),
        tensors.next(),
        tensors.next(),
    ) {
        let [parameter, first, second] = [parameter, first, second].map(overwritable);
        let grad = into_contiguous(grad);
        cube_count += grad
            .meta
            .num_elements()
            .div_ceil(ELEMENTWISE_UNITS as usize);
        largest = largest.max(address_type(&[&parameter, &grad]));
        kinds = Some([parameter.dtype, grad.dtype, first.dtype].map(Into::into));
        parameters.push(parameter.clone().into_array_arg());
        grads.push(grad.into_array_arg());
        firsts.push(first.clone().into_array_arg());
        seconds.push(second.clone().into_array_arg());
        updated.extend([parameter, first, second]);
    }
    let Some(kinds) = kinds else {
        return updated;
    };
    let t = step.step as f64;
    // SAFETY: the tensors are contiguous, those of a parameter are of the same number of elements, and `factor` is of one. The
    // kernel skips units beyond.
    unsafe {
        adamw_kernel::launch_unchecked::<R>(
            &client,
            cubes(cube_count),
            CubeDim::new_1d(ELEMENTWISE_UNITS),
            largest,
            parameters,
            grads,
            firsts,
            seconds,
            operand(factor),
            step.beta1 as f32,
            (1.0 - step.beta1) as f32,
            step.beta2 as f32,
            (1.0 - step.beta2) as f32,
            (1.0 - step.beta2.powf(t)).sqrt() as f32,
            step.epsilon as f32,
            (step.rate / (1.0 - step.beta1.powf(t))) as f32,
            (1.0 - step.rate * step.decay) as f32,
            step.cautious,
            kinds,
        );
    }
    updated
}

/// Each unit updates an element; the cubes of the parameters follow each other. `correction` is `√(1-β₂ᵗ)`, `rate` is the
/// learning rate over `1-β₁ᵗ`, and `kept` is the factor of weight decay. They are no constants of the kernel, which would be
/// compiled for every step. With `cautious`, an element that the update moves away from 0 does not decay.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn adamw_kernel<P: Float, G: Float, M: Float>(
    parameters: &mut Sequence<Array<P>>,
    grads: &Sequence<Array<G>>,
    firsts: &mut Sequence<Array<M>>,
    seconds: &mut Sequence<Array<M>>,
    factor: &ComptimeOption<Array<G>>,
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    correction: f32,
    epsilon: f32,
    rate: f32,
    kept: f32,
    #[comptime] cautious: bool,
    #[define(P, G, M)] _kinds: [StorageType; 3],
) {
    let mut scale = f32::new(1.0);
    #[comptime]
    if let ComptimeOption::Some(factor) = factor {
        scale = f32::cast_from(factor[0]);
        if scale < 0.0 {
            terminate!();
        }
    }
    let mut before = 0;
    #[unroll]
    for n in 0..grads.len() {
        let grad = grads.index(n);
        let parameter = parameters.index_mut(n);
        let first = firsts.index_mut(n);
        let second = seconds.index_mut(n);
        let elements = grad.len();
        let own = elements.div_ceil(CUBE_DIM as usize);
        if CUBE_POS >= before && CUBE_POS < before + own {
            let at = (CUBE_POS - before) * CUBE_DIM as usize + UNIT_POS as usize;
            if at < elements {
                let g = f32::cast_from(grad[at]) * scale;
                let m = f32::cast_from(first[at]) * beta1 + g * rest1;
                let v = f32::cast_from(second[at]) * beta2 + g * g * rest2;
                let change = m / (v.sqrt() / correction + epsilon) * rate;
                let p = f32::cast_from(parameter[at]);
                let mut decayed = p * kept;
                if cautious {
                    decayed = select(p * m < 0.0, p, decayed);
                }
                parameter[at] = P::cast_from(decayed - change);
                first[at] = M::cast_from(m);
                second[at] = M::cast_from(v);
            }
        }
        before += own;
    }
}
