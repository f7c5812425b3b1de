//! The AdamW update.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::{flat, scaled, typed, unflat};
use crate::{AdamWInputs, AdamWOutputs, AdamWStep};

/// See [`crate::Backend::adamw`]. In PyTorch's order: weight decay first, then `p -= rate · m̂ / (√v̂ + ε)` with
/// `m̂ = m/(1-β₁ᵗ)`, `v̂ = v/(1-β₂ᵗ)`. Cautious weight decay leaves out elements with `p · m < 0`.
pub fn adamw<B: Backend>(
    parameter: FloatTensor<B>,
    grad: FloatTensor<B>,
    moment1: FloatTensor<B>,
    moment2: FloatTensor<B>,
    step: AdamWStep,
) -> (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>) {
    let (p, shape) = flat::<B>(parameter);
    let (g, _) = flat::<B>(grad);
    let (m, _) = flat::<B>(moment1);
    let (v, _) = flat::<B>(moment2);
    let m = m * step.beta1 + g.clone() * (1.0 - step.beta1);
    let v = v * step.beta2 + g.clone() * g * (1.0 - step.beta2);
    let t = step.step as f64;
    let correction1 = 1.0 - step.beta1.powf(t);
    let correction2 = 1.0 - step.beta2.powf(t);
    let denominator = v.clone().sqrt() / correction2.sqrt() + step.epsilon;
    let update = m.clone() / denominator * (step.rate / correction1);
    let decayed = p.clone() * (1.0 - step.rate * step.decay);
    let decayed = match step.cautious {
        true => decayed.mask_where((p.clone() * m.clone()).lower_elem(0.0), p),
        false => decayed,
    };
    let p = decayed - update;
    (
        unflat(p, shape.clone()),
        unflat(m, shape.clone()),
        unflat(v, shape),
    )
}

/// See [`crate::Backend::adamw`]: [`adamw`] with the gradient times `factor`, unless that is negative.
pub fn clipped_adamw<B: Backend>(
    inputs: AdamWInputs<B>,
    factor: Option<FloatTensor<B>>,
) -> AdamWOutputs<B> {
    let AdamWInputs {
        parameter,
        grad,
        moments,
        step,
    } = inputs;
    let Some(factor) = factor else {
        return adamw::<B>(parameter, grad, moments.0, moments.1, step);
    };
    let skips = typed::<B, 1>(factor.clone()).lower_elem(0.0);
    let kept = |before: FloatTensor<B>, after| {
        let ((before, shape), (after, _)) = (flat::<B>(before), flat::<B>(after));
        let skips = skips.clone().expand(after.shape());
        unflat(after.mask_where(skips, before), shape)
    };
    let grad = scaled::<B>(grad, factor);
    let (p, m, v) = adamw::<B>(
        parameter.clone(),
        grad,
        moments.0.clone(),
        moments.1.clone(),
        step,
    );
    (kept(parameter, p), kept(moments.0, m), kept(moments.1, v))
}
