//! AdamW (Loshchilov and Hutter 2019); [`emberlm_kernels::Backend::adamw`] has its equations.

use burn::tensor::Tensor;
use emberlm_kernels::{AdamWStep, Backend, ops};
use emberlm_model::ParameterRole;

use super::rule::{RuleSettings, UpdateInputs, UpdateRule};
use super::state::StateKind;
use super::{Moments, Rule, typed};
use crate::config::{AdamWConfig, Group};

/// AdamW's hyperparameters for a group.
pub(super) struct Step {
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    decay: f64,
}

impl RuleSettings for AdamWConfig {
    fn rule(&self, _: &ParameterRole, own: &Group) -> Rule {
        Rule::AdamW(Step {
            beta1: own.beta1.unwrap_or(self.beta1),
            beta2: own.beta2.unwrap_or(self.beta2),
            epsilon: self.epsilon,
            decay: self.weight_decay * own.weight_decay,
        })
    }
}

impl Step {
    /// The numbers of update `number` at this learning rate.
    pub(super) fn numbers(&self, rate: f64, number: u64) -> AdamWStep {
        AdamWStep {
            rate,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            decay: self.decay,
            step: number,
        }
    }
}

impl UpdateRule for Step {
    const IS_ELEMENTWISE: bool = true;
    const READS_GUARD: bool = true;
    const STATE: &'static [StateKind] = &[StateKind::First, StateKind::Second];
    /// The update is in place.
    const TEMPORARIES: f64 = 0.0;

    fn update<B: Backend, const D: usize>(
        self,
        inputs: UpdateInputs<'_, B, D>,
    ) -> (Tensor<B, D>, Moments<B>) {
        let (first, second) = Moments::two_or_zeros(inputs.moments, &inputs.grad);
        let moments = (typed(first), typed(second));
        let step = self.numbers(inputs.rate, inputs.number);
        let UpdateInputs {
            parameter,
            grad,
            factor,
            ..
        } = inputs;
        let (updated, (first, second)) = ops::adamw(parameter, grad, moments, factor, step);
        (updated, Moments::two(first, second))
    }
}
