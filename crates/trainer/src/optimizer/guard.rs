//! An on-device decision whether to apply a step. The host would have to wait for the device to decide, so it
//! reads the outcome later.

use burn::tensor::{Bool, Tensor};
use emberlm_kernels::Backend;

/// A flag `[1]` on the device: true if the loss and gradient norm of this step, and of all pending steps
/// before it, are finite. Once a step is not finite, no later update applies, so the host can continue from
/// the state before it.
#[derive(Clone, Debug)]
pub(crate) struct Guard<B: Backend> {
    finite: Tensor<B, 1, Bool>,
}

impl<B: Backend> Guard<B> {
    /// Creates the guard of a step with this loss and norm, `[1]` each, after the step of guard `before`.
    pub(crate) fn new(loss: &Tensor<B, 1>, norm: &Tensor<B, 1>, before: Option<&Self>) -> Self {
        let finite = loss.clone().is_finite();
        let finite = finite.bool_and(norm.clone().is_finite());
        let finite = match before {
            Some(before) => finite.bool_and(before.finite.clone()),
            None => finite,
        };
        Self { finite }
    }

    /// The clipping factor of the step, or -1 if it is not applied; see [`Backend::adamw`].
    fn factor(&self, clip: Option<Tensor<B, 1>>) -> Tensor<B, 1> {
        let device = self.finite.device();
        let factor = clip.unwrap_or_else(|| Tensor::ones([1], &device));
        factor.mask_fill(self.finite.clone().bool_not(), -1.0)
    }

    /// Selects `after` if the step is applied and `before` if it is not. Multiplying by the flag would not
    /// work, since `0 · NaN` is NaN.
    pub(crate) fn choose<const D: usize>(
        &self,
        before: Tensor<B, D>,
        after: Tensor<B, D>,
    ) -> Tensor<B, D> {
        let mask = self.finite.clone().unsqueeze::<D>();
        // The fused kernel broadcasts a mask of one element; ndarray needs a mask of the full shape.
        let mask = match B::is_asynchronous() {
            true => mask,
            false => mask.expand(before.shape()),
        };
        before.mask_where(mask, after)
    }
}

/// The clipping factor of a step and its guard, if it has them.
#[derive(Clone, Debug)]
pub(super) struct StepFactor<'a, B: Backend> {
    /// The clipping factor, `[1]`.
    pub(super) clip: Option<Tensor<B, 1>>,
    /// The guard, and the factor that has its decision, too.
    pub(super) guarded: Option<(&'a Guard<B>, Tensor<B, 1>)>,
}

impl<'a, B: Backend> StepFactor<'a, B> {
    pub(super) fn new(clip: Option<Tensor<B, 1>>, guard: Option<&'a Guard<B>>) -> Self {
        let guarded = guard.map(|guard| (guard, guard.factor(clip.clone())));
        Self { clip, guarded }
    }

    /// The factor for a rule that reads the guard's decision in it.
    pub(super) fn of_guarded_rule(&self) -> Option<Tensor<B, 1>> {
        match &self.guarded {
            Some((_, guarded)) => Some(guarded.clone()),
            None => self.clip.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;
    use burn_ndarray::NdArray;

    use super::*;

    /// The selection between `[1, 2]` and `[NaN, 4]` after steps with these losses and norms.
    fn chosen<B: Backend>(steps: &[(f32, f32)]) -> Vec<f32> {
        let device = Default::default();
        let number = |x: f32| Tensor::<B, 1>::from_floats([x], &device);
        let mut guard = None;
        for &(loss, norm) in steps {
            guard = Some(Guard::new(&number(loss), &number(norm), guard.as_ref()));
        }
        let before = Tensor::<B, 2>::from_floats([[1.0, 2.0]], &device);
        let after = Tensor::<B, 2>::from_floats([[f32::NAN, 4.0]], &device);
        let chosen = guard.unwrap().choose(before, after);
        chosen.into_data().iter::<f32>().collect()
    }

    fn check<B: Backend>() {
        let taken = chosen::<B>(&[(1.0, f32::MAX), (-2.0, 0.0)]);
        assert!(taken[0].is_nan() && taken[1] == 4.0, "{taken:?}");
        for bad in [
            (f32::NAN, 1.0),
            (1.0, f32::NAN),
            (f32::INFINITY, 1.0),
            (1.0, f32::NEG_INFINITY),
        ] {
            assert_eq!(chosen::<B>(&[bad]), [1.0, 2.0], "{bad:?}");
            assert_eq!(chosen::<B>(&[bad, (1.0, 1.0)]), [1.0, 2.0], "sticky");
            assert_eq!(chosen::<B>(&[(1.0, 1.0), bad]), [1.0, 2.0], "{bad:?}");
        }
    }

    #[test]
    fn the_guard_rejects_all_steps_after_a_non_finite_one() {
        check::<Flex>();
        check::<NdArray>();
    }

    #[cfg(feature = "vulkan")]
    #[test]
    fn the_guard_rejects_all_steps_after_a_non_finite_one_on_vulkan() {
        check::<burn::backend::Vulkan>();
    }
}
