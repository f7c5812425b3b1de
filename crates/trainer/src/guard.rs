//! The decision on the device whether a step is applied. Reading a number would wait for the device, so the host learns it
//! later.

use burn::tensor::{Bool, Tensor};
use emberlm_kernels::Backend;

/// `[1]`: whether the loss and the gradients' norm of a step were finite, and those of all steps since the last reading
/// before it. After a step that was not finite nothing is taken, so that the host can go back to it.
#[derive(Clone, Debug)]
pub(crate) struct Guard<B: Backend> {
    go: Tensor<B, 1, Bool>,
}

impl<B: Backend> Guard<B> {
    /// Of a step with this loss and norm, `[1]` each, after the steps of another guard.
    pub(crate) fn new(loss: &Tensor<B, 1>, norm: &Tensor<B, 1>, before: Option<&Self>) -> Self {
        let finite = loss.clone().is_finite();
        let finite = finite.bool_and(norm.clone().is_finite());
        let go = match before {
            Some(before) => finite.bool_and(before.go.clone()),
            None => finite,
        };
        Self { go }
    }

    /// `after` where the step is taken, `before` where it is not: chosen and not computed, since `0 · NaN` is NaN.
    pub(crate) fn choose<const D: usize>(
        &self,
        before: Tensor<B, D>,
        after: Tensor<B, D>,
    ) -> Tensor<B, D> {
        let mask = self.go.clone().unsqueeze::<D>();
        // A mask of one element is read once by a fused kernel; ndarray wants it as large as what it is a mask of.
        let mask = match B::is_asynchronous() {
            true => mask,
            false => mask.expand(before.shape()),
        };
        before.mask_where(mask, after)
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;
    use burn_ndarray::NdArray;

    use super::*;

    /// The choice between `[1, 2]` and `[NaN, 4]` after steps with these losses and norms.
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
    fn nothing_is_taken_from_a_step_that_is_not_finite_on() {
        check::<Flex>();
        check::<NdArray>();
    }

    #[cfg(feature = "vulkan")]
    #[test]
    fn nothing_is_taken_from_a_step_that_is_not_finite_on_on_vulkan() {
        check::<burn::backend::Vulkan>();
    }
}
