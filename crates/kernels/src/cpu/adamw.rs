//! The AdamW update, and the sum of squares for gradient clipping.

use super::parallel::{Tasks, elements_per_task};
use super::vector::{sum_by, wide};
use crate::{AdamWStep, SQUARES_CHUNK};

/// One AdamW step in place and in a single pass (Loshchilov and Hutter 2019), in PyTorch's order. With
/// `g = factor · grad`:
///
/// ```text
/// m ← β₁ m + (1 - β₁) g
/// v ← β₂ v + (1 - β₂) g²
/// p ← p (1 - rate · decay) - rate / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + ε)
/// ```
///
/// Cautious weight decay leaves out the factor of `p` where `p` and `m` have opposite signs.
///
/// `factor` is the scale of gradient clipping, 1 without clipping.
///
/// # Panics
/// Panics if the sizes differ.
pub fn adamw(
    parameter: &mut [f32],
    grad: &[f32],
    moment1: &mut [f32],
    moment2: &mut [f32],
    factor: f32,
    step: AdamWStep,
) {
    let len = parameter.len();
    assert!(
        grad.len() == len && moment1.len() == len && moment2.len() == len,
        "the sizes differ"
    );
    let (constants, cautious) = (Constants::of(step, factor), step.cautious);
    let step = elements_per_task(len);
    parameter
        .chunks_mut(step)
        .zip(grad.chunks(step))
        .zip(moment1.chunks_mut(step))
        .zip(moment2.chunks_mut(step))
        .for_each_task(|(((p, g), m), v)| {
            wide(
                #[inline(always)]
                || match cautious {
                    true => constants.update::<true>(p, g, m, v),
                    false => constants.update::<false>(p, g, m, v),
                },
            )
        });
}

/// The constants of a step, computed in f64 and rounded once.
#[derive(Clone, Copy)]
struct Constants {
    factor: f32,
    keep1: f32,
    take1: f32,
    keep2: f32,
    take2: f32,
    root_correction2: f32,
    epsilon: f32,
    rate: f32,
    shrink: f32,
}

impl Constants {
    fn of(step: AdamWStep, factor: f32) -> Self {
        let t = step.step as f64;
        let correction1 = 1.0 - step.beta1.powf(t);
        let correction2 = 1.0 - step.beta2.powf(t);
        Self {
            factor,
            keep1: step.beta1 as f32,
            take1: (1.0 - step.beta1) as f32,
            keep2: step.beta2 as f32,
            take2: (1.0 - step.beta2) as f32,
            root_correction2: correction2.sqrt() as f32,
            epsilon: step.epsilon as f32,
            rate: (step.rate / correction1) as f32,
            shrink: (1.0 - step.rate * step.decay) as f32,
        }
    }

    #[inline(always)]
    fn update<const CAUTIOUS: bool>(self, p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32]) {
        for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
            let g = *g * self.factor;
            *m = *m * self.keep1 + g * self.take1;
            *v = *v * self.keep2 + g * g * self.take2;
            let denominator = v.sqrt() / self.root_correction2 + self.epsilon;
            let shrink = match CAUTIOUS && *p * *m < 0.0 {
                true => 1.0,
                false => self.shrink,
            };
            *p = *p * shrink - *m / denominator * self.rate;
        }
    }
}

/// `Σ x²`, summed in f32 within chunks of 4096 elements and in f64, in order, across chunks.
pub fn sum_of_squares(x: &[f32]) -> f64 {
    chunk_sums_of_squares(x).into_iter().map(f64::from).sum()
}

/// `Σ x²` of each chunk of [`SQUARES_CHUNK`] elements.
pub fn chunk_sums_of_squares(x: &[f32]) -> Vec<f32> {
    let step = elements_per_task(x.len()).next_multiple_of(SQUARES_CHUNK);
    let mut sums = vec![0.0f32; x.len().div_ceil(SQUARES_CHUNK)];
    sums.chunks_mut(step / SQUARES_CHUNK)
        .zip(x.chunks(step))
        .for_each_task(|(sums, x)| {
            wide(
                #[inline(always)]
                || {
                    for (sum, x) in sums.iter_mut().zip(x.chunks(SQUARES_CHUNK)) {
                        *sum = sum_by(x, x, x, |x, _, _| x * x);
                    }
                },
            );
        });
    sums
}
